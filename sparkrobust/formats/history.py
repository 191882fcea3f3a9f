"""The archived timeline: its manifests, and the completed writes in its files.

Hudi moves what is old on the timeline into Parquet files, one row for each instant, and lists the files
that count in a manifest.  A row holds the very bytes of the completed instant's file.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Set
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from sparkrobust.core import strict_json
from sparkrobust.core.instant import WRITES, Action, Instant, InstantTime, State
from sparkrobust.core.names import HistoryFileName
from sparkrobust.errors import CorruptTableError
from sparkrobust.formats.avro_writer import write_bytes
from sparkrobust.formats.commit_metadata import CompletedWrite
from sparkrobust.formats.parquet import open_file, read_pieces

_COLUMNS = {
    "instantTime": pa.string(),
    "completionTime": pa.string(),
    "action": pa.string(),
    "metadata": pa.binary(),
}
"""What is read of a file; plans are left out."""
_MOST_ROWS, _MOST_BYTES = 64, 32 << 20
"""Of a piece that is held at once; one commit that is larger by itself is a piece of its own."""
_MOST_DIGITS = 9


def parse_version(data: bytes) -> int | None:
    """The number of the newest manifest; ``None`` for what is just being written, or says nothing."""
    return int(data) if data.isdigit() and len(data) <= _MOST_DIGITS else None


def files_in_manifest(data: bytes, *, path: str) -> list[HistoryFileName]:
    """The files of the history, newest first.

    Raises
    ------
    CorruptTableError
        It is torn, or lists what is no file of a history.
    """
    try:
        names = [entry["fileName"] for entry in strict_json.loads(data)["files"]]
        files = {HistoryFileName.parse(name) for name in names}
    except (ValueError, TypeError, KeyError) as error:
        raise CorruptTableError(
            f"{path}: expected a manifest of the history ({error!r:.200})", path=path
        ) from error
    if None in files:
        raise CorruptTableError(
            f"{path}: expected names of files of the history, found {strict_json.shown(names)}", path=path
        )
    known = (file for file in files if file is not None)
    return sorted(known, key=lambda file: (file.last, file.first, file.level), reverse=True)


def find_write(source: Any, key: str, value: str, *, path: str) -> CompletedWrite | None:
    """The write whose extra metadata has this entry, the newest of them, in a file of the history.

    Few rows are decoded: those of completed writes whose bytes have the key and the value somewhere.

    Parameters
    ----------
    source
        The file, open for reading.
    path
        What to call it in an error.

    Raises
    ------
    CorruptTableError
        It is torn, or not a file of a history.
    """
    found = None
    for write in _writes(source, lambda batch: _mentions(batch, key, value), path):
        if write.metadata.extra_metadata.get(key) == value:
            found = write
    return found


def find_writes(source: Any, after: str, times: Set[str], *, path: str) -> list[CompletedWrite]:
    """The writes of a file of the history that were requested after a time, or at one of some others.

    Raises
    ------
    CorruptTableError
        It is torn, or not a file of a history.
    """

    def wanted(batch: pa.RecordBatch) -> pa.Array:
        time = batch.column("instantTime")
        return pc.or_(pc.greater(time, after), pc.is_in(time, value_set=pa.array(times, pa.string())))

    return list(_writes(source, wanted, path))


def _writes(source: Any, wanted: Callable[[pa.RecordBatch], pa.Array], path: str) -> Iterator[CompletedWrite]:
    with open_file(source, path=path, in_pieces=True) as file:
        _refuse_other_columns(file, path)
        for batch in read_pieces(file, list(_COLUMNS), rows=_rows_at_once(file.metadata), path=path):
            for row in _chosen(batch, wanted(batch), path):
                yield _write_of(row, path)


def _refuse_other_columns(file: pq.ParquetFile, path: str) -> None:
    try:
        schema = file.schema_arrow
    except (pa.ArrowException, ValueError) as error:
        raise CorruptTableError(f"{path}: expected columns of the history ({error})", path=path) from error
    for name, kind in _COLUMNS.items():
        at = schema.get_field_index(name)  # -1 also where there are two
        if at < 0 or schema.field(at).type != kind:
            raise CorruptTableError(
                f"{path}: expected a file of the history, with one column {name} of {kind}", path=path
            )


def _rows_at_once(metadata: pq.FileMetaData) -> int:
    """So many rows as are held at once, by their mean size: each is a commit, of a few files or of many."""
    groups = (metadata.row_group(number) for number in range(metadata.num_row_groups))
    size: int = sum(group.total_byte_size for group in groups)
    rows: int = metadata.num_rows
    return max(1, min(_MOST_ROWS, _MOST_BYTES * rows // max(1, size)))


def _mentions(batch: pa.RecordBatch, key: str, value: str) -> pa.Array:
    chosen = pa.repeat(True, len(batch))
    for text in (key, value):
        framed = bytearray()
        write_bytes(framed, text.encode())  # a text in Avro has its length before it
        chosen = pc.and_(chosen, pc.match_substring(batch.column("metadata"), pattern=bytes(framed)))
    return chosen


def _chosen(batch: pa.RecordBatch, chosen: pa.Array, path: str) -> list[dict[str, Any]]:
    writes = pc.is_in(batch.column("action"), value_set=pa.array([action.value for action in WRITES]))
    try:
        rows: list[dict[str, Any]] = batch.filter(pc.and_(writes, chosen)).to_pylist()
    except ValueError as error:
        raise CorruptTableError(f"{path}: expected text ({error})", path=path) from error
    return rows


def _write_of(row: dict[str, Any], path: str) -> CompletedWrite:
    completion = row["completionTime"]
    try:
        instant = Instant(
            time=InstantTime(row["instantTime"] or ""),
            action=Action(row["action"]),
            state=State.COMPLETED,
            completion=InstantTime(completion) if completion else None,
        )
    except ValueError as error:
        raise CorruptTableError(f"{path}: expected an instant ({error!s:.200})", path=path) from error
    return CompletedWrite.from_bytes(instant, row["metadata"], path=f"{path} (instant {instant.time})")
