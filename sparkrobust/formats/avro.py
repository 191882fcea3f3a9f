"""Avro containers of one record, as Hudi keeps its timeline in.

A file of the timeline is empty, or an Avro object container with exactly one record, not
compressed.  The frame is read and written here, because it is a few lines and what they must
refuse is ours to decide; the record itself is read by fastavro.  It is resolved from the schema
that stands in the file to ours, so files of older and newer Hudi versions are read: fields that
are missing get their default, fields that we don't know are skipped.

What a file says about its own sizes is believed only as far as there are bytes behind it.
"""

from __future__ import annotations

import hashlib
import io
import json
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib import resources
from typing import Any

import fastavro
from fastavro.schema import parse_schema

from sparkrobust.errors import CorruptTableError, InternalError
from sparkrobust.formats.avro_writer import Write, write_bytes, write_long, writer_of

NAMESPACE = "org.apache.hudi.avro.model"

_MAGIC = b"Obj\x01"
_SYNC_BYTES = 16
_MAX_VARINT_BYTES = 10


def encode(record_name: str, value: Mapping[str, Any]) -> bytes:
    """Write one record of Hudi's model as a container.

    Equal values give equal bytes, so that a writer can tell its own file from another's.

    Parameters
    ----------
    record_name
        Name in Hudi's model, such as ``HoodieCommitMetadata``.
    value
        The fields; one that is left out gets its default, one that the record hasn't is a bug.
    """
    ours, record = _our_schema(record_name), bytearray()
    try:
        ours.write(record, value)
    except (ValueError, TypeError, AttributeError, struct.error) as error:
        raise InternalError(f"not a {record_name}: {error}") from error
    checksum = hashlib.md5(ours.text, usedforsecurity=False)
    checksum.update(record)
    sync, out = checksum.digest(), bytearray(_MAGIC)
    write_long(out, 1)
    write_bytes(out, b"avro.schema")
    write_bytes(out, ours.text)
    write_long(out, 0)
    out += sync
    write_long(out, 1)
    write_long(out, len(record))
    out += record
    out += sync
    return bytes(out)


def decode(data: bytes, record_name: str, *, path: str) -> dict[str, Any] | None:
    """Read a container of one record; ``None`` for a file without content.

    Raises
    ------
    CorruptTableError
        The bytes are not one whole, uncompressed record of that name.
    """
    if not data:
        return None
    cursor = _Cursor(data, path)
    if data[:1] == b"{":
        raise CorruptTableError(
            f"{path}: JSON, as table versions before 8 keep on their timeline, expected Avro",
            path=path,
            hint="let Hudi upgrade the table first",
        )
    if cursor.take(len(_MAGIC), "the Avro magic") != _MAGIC:
        raise cursor.wrong("the Avro magic", at=0)
    text = _schema_text(cursor)
    sync = cursor.take(_SYNC_BYTES, "a sync marker")
    record = _only_record(cursor, sync)
    reader = _our_schema(record_name).parsed
    try:
        writer = _writer_schema(text)
    except Exception as error:  # on odd JSON fastavro raises whatever its code runs into
        raise CorruptTableError(
            f"{path}: expected an Avro schema in the header ({type(error).__name__}: {str(error)[:200]})",
            path=path,
        ) from error
    found = writer.get("name") if isinstance(writer, dict) else writer
    if found != f"{NAMESPACE}.{record_name}":
        raise CorruptTableError(f"{path}: holds {str(found)[:100]!r}, expected {record_name}", path=path)
    body = io.BytesIO(record)
    try:
        value = fastavro.schemaless_reader(body, writer, reader)
    except Exception as error:  # on torn bytes fastavro raises whatever its code runs into
        raise CorruptTableError(
            f"{path}: expected a record of {record_name}, but its bytes don't decode "
            f"({type(error).__name__}: {str(error)[:200]})",
            path=path,
        ) from error
    if body.tell() != len(record):
        raise CorruptTableError(
            f"{path}: {len(record) - body.tell()} bytes too many, expected one {record_name}", path=path
        )
    if not isinstance(value, dict):
        raise CorruptTableError(f"{path}: expected a record of {record_name}", path=path)
    return value


# -- the frame ---------------------------------------------------------------------------------------


class _Cursor:
    """Reads forward through bytes, and never past their end."""

    def __init__(self, data: bytes, path: str) -> None:
        self.data = data
        self.path = path
        self.at = 0

    def wrong(self, expected: str, at: int | None = None) -> CorruptTableError:
        where = self.at if at is None else at
        return CorruptTableError(f"{self.path}: expected {expected} at byte {where}", path=self.path)

    def take(self, size: int, what: str) -> bytes:
        if not 0 <= size <= len(self.data) - self.at:
            raise self.wrong(f"{what} of {size} bytes, and the file ends at {len(self.data)},")
        self.at += size
        return self.data[self.at - size : self.at]

    def long(self, what: str) -> int:
        raw = shift = 0
        for _ in range(_MAX_VARINT_BYTES):
            byte = self.take(1, what)[0]
            raw |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return (raw >> 1) ^ -(raw & 1)
        raise self.wrong(what)


def _schema_text(cursor: _Cursor) -> bytes:
    """The header's entries; only the schema and the codec mean anything to us."""
    entries: dict[bytes, bytes] = {}
    while count := cursor.long("a count of header entries"):
        if count < 0:  # then the block's size follows, for those who want to skip it
            count = -count
            cursor.long("a size of header entries")
        if count > len(cursor.data):
            raise cursor.wrong("a count of header entries that fits the file")
        for _ in range(count):
            key = cursor.take(cursor.long("a header key"), "a header key")
            entries[key] = cursor.take(cursor.long("a header value"), "a header value")
    codec = entries.get(b"avro.codec", b"null")
    if codec != b"null":
        raise cursor.wrong(f"an uncompressed record (codec null, not {codec[:20]!r})")
    if b"avro.schema" not in entries:
        raise cursor.wrong("avro.schema in the header")
    return entries[b"avro.schema"]


def _only_record(cursor: _Cursor, sync: bytes) -> bytes:
    records = 0
    record = b""
    while cursor.at < len(cursor.data):
        count = cursor.long("a count of records")
        block = cursor.take(cursor.long("a block's size"), "a block")
        if cursor.take(_SYNC_BYTES, "a sync marker") != sync:
            raise cursor.wrong("the file's sync marker", at=cursor.at - _SYNC_BYTES)
        if count:
            records += count
            record = block
        if count < 0 or records > 1 or (not count and block):
            raise cursor.wrong("exactly one record")
    if not records:
        raise cursor.wrong("a record")
    return record


# -- schemas -------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class _Schema:
    """A schema of ours."""

    text: bytes
    parsed: Any
    """As fastavro has it."""
    write: Write


@cache
def _our_schema(record_name: str) -> _Schema:
    """The schema of a record that ships with us."""
    try:
        text = (resources.files(__package__) / "avsc" / f"{record_name}.avsc").read_text("utf-8")
    except FileNotFoundError:
        raise InternalError(f"no Avro schema of {record_name} ships with this library") from None
    schema = json.loads(text)
    compact = json.dumps(schema, separators=(",", ":")).encode()
    return _Schema(text=compact, parsed=parse_schema(schema), write=writer_of(schema))


@lru_cache(maxsize=64)
def _writer_schema(text: bytes) -> Any:
    """The schema in a file, parsed, once it is known to be sane; anything raised means that it isn't."""
    raw = json.loads(text)
    _least_bytes(raw, {})
    return parse_schema(raw)


def _least_bytes(schema: Any, named: dict[str, int]) -> int:
    """0 if a value of this type can take no bytes at all, else 1.

    Raises ``ValueError`` on an array of such items: a few bytes could claim any number of them.
    Names are compared without their namespace; of two alike the smaller answer counts.  A record
    that is used inside itself is so through a union or a collection, which take a byte.
    """
    if isinstance(schema, list):
        for branch in schema:
            _least_bytes(branch, named)
        return 1
    if isinstance(schema, str):
        return 0 if schema == "null" else named.get(schema.rpartition(".")[2], 1)
    kind = schema["type"]
    if kind == "array":
        if not _least_bytes(schema["items"], named):
            raise ValueError("an array of items that take no bytes")
        return 1
    if kind == "map":
        _least_bytes(schema["values"], named)
        return 1
    if kind not in ("record", "error", "fixed"):
        return 1 if kind == "enum" else _least_bytes(kind, named)
    if kind == "fixed":
        least = 1 if schema["size"] > 0 else 0
    else:
        least = max([_least_bytes(field["type"], named) for field in schema["fields"]], default=0)
    name = str(schema["name"]).rpartition(".")[2]
    named[name] = min(least, named.get(name, 1))
    return least
