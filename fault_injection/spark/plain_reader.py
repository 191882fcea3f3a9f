"""A reader of Hudi's copy-on-write tables that shares no line with ours: pyarrow and the timeline's rules."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import fastavro
import pyarrow.parquet as pq

_COMPLETED = re.compile(r"(\d+)_\d+\.(commit|replacecommit)")
_BASE_FILE = re.compile(r"([^_]+)_[^_]+_(\d+)\.parquet")


def snapshot_files(table: Path) -> list[Path]:
    """The newest committed file of every file group that no replacecommit took out of the table."""
    completed: set[str] = set()
    replaced: set[tuple[str, str]] = set()
    for file in (table / ".hoodie" / "timeline").iterdir():
        match = _COMPLETED.fullmatch(file.name)
        if match is None:
            continue
        completed.add(match[1])
        if match[2] == "replacecommit":
            for partition, ids in (record_of(file)["partitionToReplaceFileIds"] or {}).items():
                replaced |= {(partition, file_id) for file_id in ids}
    newest: dict[tuple[str, str], tuple[str, Path]] = {}
    for marker in table.rglob(".hoodie_partition_metadata"):
        partition = marker.parent.relative_to(table).as_posix().removeprefix(".")
        for file in marker.parent.iterdir():
            match = _BASE_FILE.fullmatch(file.name)
            if match is None or (partition, match[1]) in replaced:
                continue
            if match[2] in completed or match[2] < min(completed, default=""):
                key = (partition, match[1])
                newest[key] = max(newest.get(key, ("", file)), (match[2], file))
    return sorted(file for _, file in newest.values())


def record_of(file: Path) -> dict[str, Any]:
    """What an instant's file says."""
    with file.open("rb") as opened:
        (record,) = fastavro.reader(opened)
    assert isinstance(record, dict)
    return record


def rows_of(file: Path) -> list[dict[str, Any]]:
    """The rows of one base file, in its order."""
    rows: list[dict[str, Any]] = pq.ParquetFile(file).read().to_pylist()
    return rows


def snapshot(table: Path) -> list[dict[str, Any]]:
    """The rows of the latest snapshot, meta columns too."""
    return [row for file in snapshot_files(table) for row in rows_of(file)]
