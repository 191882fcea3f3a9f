"""The data files of a table, and those that a snapshot or commit of it names, read without its engine."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import fastavro

from fault_injection.spark import verify
from fault_injection.spark.comparison.subjects import Subject


def unnamed(subject: Subject, table: Path) -> list[str]:
    """Data files that no commit or snapshot names, or, of plain parquet, that were never moved in place."""
    there = {str(file.relative_to(table)) for file in table.rglob("*.parquet") if file.is_file()}
    if subject.family == "plain":
        return sorted(name for name in there if name.startswith("_temporary"))
    data = {name for name in there if not name.startswith((".hoodie/", "_delta_log/", "metadata/"))}
    return sorted(data - _named(subject, table))


def _named(subject: Subject, table: Path) -> set[str]:
    if subject.family == "delta":
        return set(_of_delta(table))
    if subject.family == "iceberg":
        return set(_of_iceberg(table))
    return set(verify.named_files(table))


def _of_delta(table: Path) -> Iterator[str]:
    for log in (table / "_delta_log").glob("*.json"):
        for line in log.read_text().splitlines():
            added = json.loads(line).get("add")
            if added:
                yield unquote(added["path"])


def _of_iceberg(table: Path) -> Iterator[str]:
    folder = table / "metadata"
    version = (folder / "version-hint.text").read_text().strip()
    newest = json.loads((folder / f"v{version}.metadata.json").read_text())
    for snapshot in newest["snapshots"]:
        for listed in _records(snapshot["manifest-list"]):
            for entry in _records(listed["manifest_path"]):
                path = Path(entry["data_file"]["file_path"].removeprefix("file:"))
                yield str(path.relative_to(table))


def _records(name: str) -> list[Any]:
    with Path(name.removeprefix("file:")).open("rb") as file:
        return list(fastavro.reader(file))
