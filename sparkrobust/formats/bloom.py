"""The bloom filters of record keys that Hudi keeps in the footers of base files.

``SIMPLE`` is one row of bits.  ``DYNAMIC_V0`` starts another row when one has got its number of
keys, up to a maximum of keys; after that the rows are filled in turn, and get fuller than meant.
Text in the footer: base64 of, big endian, a header (-1, number of hashes, 1 for the kind of hash,
number of bits), for ``DYNAMIC_V0`` the keys per row, the keys in the newest row, the number of
rows, and before each row's bits the header again.  Bit *i* is bit ``i & 7`` of byte ``i >> 3``,
which is also how Arrow lays out booleans.

Keys are hashed in columns, with Arrow's arithmetic on 32 bits: keys of one length together, word
by word.  That needs nothing beyond pyarrow, and is a hundred times faster than a loop.
"""

from __future__ import annotations

import base64
import binascii
import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache

import pyarrow as pa
import pyarrow.compute as pc

from sparkrobust.errors import CorruptTableError

FOOTER_KEY = "org.apache.hudi.bloomfilter"
KIND_FOOTER_KEY = "hoodie_bloom_filter_type_code"

MAX_TEXT_CHARS = 256 << 20

_HEADER = struct.Struct(">iibi")
_DYNAMIC = struct.Struct(">iii")
_MURMUR = 1
_MIX = pa.scalar(0x5BD1E995, pa.uint32())
_FEW_POSITIONS = 20_000
_LN_2 = math.log(2)


class BloomKind(Enum):
    """How the filter grows; the value is what Hudi writes beside it."""

    SIMPLE = "SIMPLE"
    DYNAMIC_V0 = "DYNAMIC_V0"


@dataclass(frozen=True, kw_only=True)
class BloomFilter:
    """A filter that is complete."""

    kind: BloomKind
    bits: int
    hashes: int
    rows: tuple[bytes, ...]
    entries_per_row: int = 0
    entries_in_last_row: int = 0

    def might_contain(self, keys: pa.Array | pa.ChunkedArray) -> pa.BooleanArray:
        """For each key whether the file may have it; a ``False`` is certain.  Nulls are in no file."""
        column = _as_binary(keys)
        found = [False] * len(column)
        rows = [pa.Array.from_buffers(pa.bool_(), self.bits, [None, pa.py_buffer(row)]) for row in self.rows]
        for indices, group in _by_length(column):
            hits = [pa.scalar(True)] * len(rows)
            for positions in _positions(group, self.bits, self.hashes):
                hits = [pc.and_(hit, row.take(positions)) for hit, row in zip(hits, rows, strict=True)]
            any_row = hits[0]
            for hit in hits[1:]:
                any_row = pc.or_(any_row, hit)
            for index, hit in zip(indices.to_pylist(), any_row.to_pylist(), strict=True):
                found[index] = hit
        return pa.array(found, pa.bool_())

    def to_text(self) -> str:
        """What stands in the footer."""
        header = _HEADER.pack(-1, self.hashes, _MURMUR, self.bits)
        parts = [header]
        if self.kind is BloomKind.DYNAMIC_V0:
            parts.append(_DYNAMIC.pack(self.entries_per_row, self.entries_in_last_row, len(self.rows)))
            for row in self.rows:
                parts += [header, row]
        else:
            parts.append(self.rows[0])
        return base64.b64encode(b"".join(parts)).decode("ascii")

    @classmethod
    def from_text(cls, text: str | bytes, kind: str | None, *, path: str) -> BloomFilter:
        """Read what stands in a footer; ``kind`` is the word beside it, absent in old files."""
        try:
            known = BloomKind(kind) if kind is not None else BloomKind.SIMPLE
            if len(text) > MAX_TEXT_CHARS:
                raise ValueError(f"{len(text)} characters")
            return _parse(base64.b64decode(text, validate=True), known)
        except (ValueError, struct.error, binascii.Error) as error:
            raise CorruptTableError(
                f"{path}: expected a bloom filter of keys in the footer ({str(error)[:100]})", path=path
            ) from error


def _parse(data: bytes, kind: BloomKind) -> BloomFilter:
    header = data[: _HEADER.size]
    version, hashes, murmur, bits = _HEADER.unpack(header)
    if version != -1 or murmur != _MURMUR or not 0 < hashes <= 1024 or bits <= 0:
        raise ValueError(f"odd header {version} {hashes} {murmur} {bits}")
    row_bytes = (bits + 7) // 8
    if kind is BloomKind.SIMPLE:
        if len(data) != _HEADER.size + row_bytes:
            raise ValueError(f"{len(data)} bytes for {bits} bits")
        return BloomFilter(kind=kind, bits=bits, hashes=hashes, rows=(data[_HEADER.size :],))
    start = _HEADER.size + _DYNAMIC.size
    per_row, in_last, count = _DYNAMIC.unpack(data[_HEADER.size : start])
    stride = _HEADER.size + row_bytes
    if count <= 0 or per_row <= 0 or in_last < 0 or len(data) != start + count * stride:
        raise ValueError(f"{len(data)} bytes for {count} rows of {bits} bits")
    rows = []
    for at in range(start, len(data), stride):
        if data[at : at + _HEADER.size] != header:
            raise ValueError("a row with another header")
        rows.append(data[at + _HEADER.size : at + stride])
    return BloomFilter(
        kind=kind,
        bits=bits,
        hashes=hashes,
        rows=tuple(rows),
        entries_per_row=per_row,
        entries_in_last_row=in_last,
    )


class BloomBuilder:
    """Collects the keys of one file, batch by batch, in the order written.

    Parameters
    ----------
    kind
        ``DYNAMIC_V0`` is what Hudi writes unless told otherwise.
    entries, error_rate, max_entries
        ``hoodie.index.bloom.num_entries``, ``.fpp`` and ``hoodie.bloom.index.filter.dynamic.max.entries``;
        the last means nothing to ``SIMPLE``.
    """

    def __init__(
        self,
        kind: BloomKind = BloomKind.DYNAMIC_V0,
        *,
        entries: int = 60_000,
        error_rate: float = 1e-9,
        max_entries: int = 100_000,
    ) -> None:
        self._kind = kind
        self._entries = entries
        self._bits = math.ceil(entries * (-math.log(error_rate) / (_LN_2 * _LN_2)))
        self._hashes = math.ceil(_LN_2 * self._bits / entries)
        self._rows = [bytearray((self._bits + 7) // 8)]
        self._added = 0
        self._most_rows = max(1, math.ceil(max_entries / entries)) if kind is BloomKind.DYNAMIC_V0 else 1

    def add(self, keys: pa.Array | pa.ChunkedArray) -> None:
        """Add a batch of keys; none may be null."""
        column = _as_binary(keys)
        if self._kind is BloomKind.SIMPLE:
            self._set(0, column)
            return
        capacity = self._entries * self._most_rows
        done = 0
        while done < len(column) and self._added < capacity:
            row = self._added // self._entries
            if row == len(self._rows):
                self._rows.append(bytearray(len(self._rows[0])))
            some = min(len(column) - done, (row + 1) * self._entries - self._added)
            self._set(row, column.slice(done, some))
            done += some
            self._added += some
        self._add_beyond_capacity(column.slice(done), self._added - capacity)
        self._added += len(column) - done

    def _add_beyond_capacity(self, column: pa.Array, already: int) -> None:
        """The first key too many goes to the first row, those after it to the rows in turn from there."""
        for row in range(self._most_rows):
            mine = [
                at
                for at in range(len(column))
                if (max(already + at - 1, 0) % self._most_rows if already + at else 0) == row
            ]
            if mine:
                self._set(row, column.take(pa.array(mine, pa.int64())))

    def _set(self, row: int, column: pa.Array) -> None:
        bits = self._rows[row]
        for _, group in _by_length(column):
            groups = list(_positions(group, self._bits, self._hashes))
            positions = pa.chunked_array(groups, pa.int32())
            if len(positions) <= _FEW_POSITIONS:
                for position in positions.to_pylist():
                    bits[position >> 3] |= 1 << (position & 7)
            else:
                _or_into(bits, positions, self._bits)

    def finish(self) -> BloomFilter:
        """The filter of all keys added."""
        if self._kind is BloomKind.SIMPLE:
            return BloomFilter(
                kind=self._kind, bits=self._bits, hashes=self._hashes, rows=(bytes(self._rows[0]),)
            )
        return BloomFilter(
            kind=self._kind,
            bits=self._bits,
            hashes=self._hashes,
            rows=tuple(bytes(row) for row in self._rows),
            entries_per_row=self._entries,
            entries_in_last_row=self._added - (len(self._rows) - 1) * self._entries,
        )


# -- hashing in columns --------------------------------------------------------------------------------------


def _as_binary(keys: pa.Array | pa.ChunkedArray) -> pa.Array:
    column = keys.combine_chunks() if isinstance(keys, pa.ChunkedArray) else keys
    if isinstance(column, pa.ChunkedArray):  # what older versions give for a column without chunks
        column = pa.concat_arrays(column.chunks) if column.num_chunks else pa.array([], pa.binary())
    return column.cast(pa.binary())


def _by_length(column: pa.Array) -> Iterator[tuple[pa.Array, pa.Array]]:
    """Keys of one length in bytes together, each group with where its keys stood; nulls left out."""
    lengths = pc.binary_length(column)
    for length in pc.unique(lengths).to_pylist():
        if length is not None:
            mask = pc.equal(lengths, length)
            yield pc.indices_nonzero(mask), column.filter(mask)


def _positions(group: pa.Array, bits: int, hashes: int) -> Iterator[pa.Array]:
    """The bit of each key, once for each hash; the seed of a hash is the value of the one before it."""
    length = len(group[0].as_py()) if len(group) else 0
    blocks, tail = _words(group, length)
    size = _u32(length)
    modulus = pa.scalar(bits, pa.int64())
    value = pa.repeat(_u32(0), len(group))
    for _ in range(hashes):
        value = pc.bit_wise_xor(value, size)
        for block in blocks:
            value = pc.bit_wise_xor(pc.multiply(value, _MIX), block)
        if tail is not None:
            value = pc.multiply(pc.bit_wise_xor(value, tail), _MIX)
        value = pc.multiply(_fold(value, 13), _MIX)
        value = _fold(value, 15)
        signed = pc.abs(value.view(pa.int32()).cast(pa.int64()))
        yield pc.subtract(signed, pc.multiply(pc.divide(signed, modulus), modulus)).cast(pa.int32())


def _words(group: pa.Array, length: int) -> tuple[list[pa.Array], pa.Array | None]:
    """Every whole word, mixed as each hash will want it, and the bytes that remain as one word."""
    if not length:
        return [], None
    missing = -length % 4
    padded = pc.binary_join_element_wise(group, b"", b"\0" * missing) if missing else group
    count = (length + missing) // 4
    first = struct.unpack_from("=i", padded.buffers()[1], 4 * padded.offset)[0]
    flat = pa.Array.from_buffers(pa.uint32(), len(group) * count, [None, padded.buffers()[2].slice(first)])
    rows = pa.FixedSizeListArray.from_arrays(flat, count)
    words = [pc.list_element(rows, i) for i in range(count)]
    tail = _tail(words.pop(), 4 - missing) if missing else None
    mixed = [pc.multiply(_fold(pc.multiply(word, _MIX), 24), _MIX) for word in words]
    return mixed, tail


def _fold(value: pa.Array, by: int) -> pa.Array:
    return pc.bit_wise_xor(value, pc.shift_right(value, _u32(by)))


def _tail(word: pa.Array, count: int) -> pa.Array:
    """The last 1 to 3 bytes as Java takes them: the last one lowest, and each with its sign.

    A byte of 0x80 or more also flips all bits above its own.
    """
    found = pa.repeat(_u32(0), len(word))
    for i in range(count):
        byte = pc.bit_wise_and(pc.shift_right(word, _u32(8 * i)), _u32(0xFF))
        above = pc.multiply(pc.shift_right(byte, _u32(7)), _u32(0xFFFFFF00))
        signed = pc.bit_wise_xor(byte, above)
        found = pc.bit_wise_xor(found, pc.shift_left(signed, _u32(8 * (count - 1 - i))))
    return found


def _u32(value: int) -> pa.Scalar:
    return pa.scalar(value, pa.uint32())


def _or_into(bits: bytearray, positions: pa.ChunkedArray, size: int) -> None:
    """Set many bits at once, as an Arrow column of booleans."""
    found = pc.is_in(_all_positions(size), value_set=positions)
    raw = found.buffers()[1].to_pybytes()[: len(bits)]
    both = int.from_bytes(raw, "little") | int.from_bytes(bits, "little")
    bits[:] = both.to_bytes(len(bits), "little")


@lru_cache(maxsize=1)
def _all_positions(size: int) -> pa.Array:
    return pc.cumulative_sum(pa.repeat(pa.scalar(1, pa.int32()), size), start=pa.scalar(-1, pa.int32()))
