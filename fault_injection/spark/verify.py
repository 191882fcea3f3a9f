"""Whether a table is as it must be, by a reader and a lister that share no line with sparkrobust."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fault_injection.spark import plain_reader
from fault_injection.spark.jobs import Expected

_COMPLETED = re.compile(r"(\d{17})_\d{17}\.(commit|replacecommit)")
_INSTANT = re.compile(r"(\d{17})(?:_\d{17})?\.(.+)")


def problems(table: Path, expected: Expected) -> list[str]:
    """Everything that is not as it must be, in words; nothing if all is well."""
    return [*wrong_rows(plain_reader.snapshot(table), expected), *wrong_files(table)]


def wrong_rows(found: list[dict[str, Any]], expected: Expected) -> Iterator[str]:
    """Rows that are missing, doubled, of another version, or torn."""
    read = sorted((row["id"], row["ts"], row["text"], row["part"]) for row in found)
    wanted = expected.rows()
    if read == wanted:
        return
    yield f"{len(read):,} rows instead of {len(wanted):,}"
    have, want = set(read), set(wanted)
    if len(have) < len(read):
        yield f"{len(read) - len(have):,} rows stand twice"
    for what, rows in (("lost", want - have), ("not wanted", have - want)):
        if rows:
            yield f"{len(rows):,} rows {what}, the first {min(rows)}"


_STAYING = (".scratch", "committing")
"""Folders that every write may use."""


def wrong_files(table: Path) -> Iterator[str]:
    """Files that no commit names, files that one names and that are not there, and what writes have left."""
    named = named_files(table)
    there = {
        str(file.relative_to(table)): file.stat().st_size
        for file in table.rglob("*")
        if file.is_file() and ".hoodie" not in file.relative_to(table).parts
    }
    data = {path: size for path, size in there.items() if not path.endswith(".hoodie_partition_metadata")}
    # Hadoop puts a checksum beside each file of Hudi's.
    parts = (path.rpartition("/") for path in named)
    checksums = {f"{folder}{bar}.{name}.crc" for folder, bar, name in parts}
    for path in sorted(set(data) - set(named) - checksums):
        yield f"a file that no commit names: {path}"
    for path in sorted(set(named) - set(data)):
        yield f"a file that is not there: {path}"
    for path in sorted(set(named) & set(data)):
        if named[path] != data[path]:
            yield f"a file of {data[path]:,} bytes instead of {named[path]:,}: {path}"
    hoodie = table / ".hoodie"
    left = {file for name in (".temp", ".robust", ".heartbeat") for file in (hoodie / name).rglob("*")}
    for file in sorted(left - {hoodie / ".robust" / name for name in _STAYING}):
        yield f"left behind: {file.relative_to(table)}"
    for name in sorted(pending(table)):
        yield f"an instant that never ended: {name}"


def named_files(table: Path) -> dict[str, int]:
    """Every data file that a completed commit names, with its size."""
    named: dict[str, int] = {}
    for file in (table / ".hoodie" / "timeline").iterdir():
        if _COMPLETED.fullmatch(file.name):
            for stats in plain_reader.record_of(file)["partitionToWriteStats"].values():
                named |= {stat["path"]: stat["fileSizeInBytes"] for stat in stats}
    return named


def pending(table: Path) -> set[str]:
    """The instants that are not completed."""
    done: set[str] = set()
    begun: dict[str, str] = {}
    for file in (table / ".hoodie" / "timeline").iterdir():
        match = _INSTANT.fullmatch(file.name)
        if match and match[2].endswith(("requested", "inflight")):
            begun[file.name] = match[1]
        elif match:
            done.add(match[1])
    return {name for name, instant in begun.items() if instant not in done}
