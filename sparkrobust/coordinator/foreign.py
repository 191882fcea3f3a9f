"""What lies at a path that holds no Hudi table: recognised, so that nobody writes into it by mistake."""

from __future__ import annotations

from sparkrobust.storage.contract import Storage


def kind_of_foreign_table(storage: Storage) -> str | None:
    """What another program seems to keep at the root; ``None`` where nothing speaks against a new table."""
    files, folders = storage.list("")
    if "_delta_log" in folders:
        return "a Delta table"
    if "metadata" in folders:
        described, _ = storage.list("metadata")
        if any(info.path.endswith(".metadata.json") for info in described):
            return "an Iceberg table"
    names = [info.path for info in files]
    if "_SUCCESS" in names or any(name.endswith((".parquet", ".orc", ".csv", ".json")) for name in names):
        return "plain data files"
    return None
