"""A large object as a seekable file, of which only what is needed is fetched."""

from __future__ import annotations

import io
from abc import abstractmethod
from typing import Any

TAIL = 64 << 10
"""How much of an object's end is fetched with its size."""
_READ_AHEAD = 1 << 20
_LONGEST_READ = 8 << 20


class RangedFile(io.RawIOBase):
    """A seekable file over requests for ranges.

    Made for parquet: the end, where the footer is, is there from the beginning; a read brings a bit
    more than was asked for, and ever more while it goes on where the last ended.

    Parameters
    ----------
    size
        Of the object.
    tail
        Its last bytes.
    """

    def __init__(self, size: int, tail: bytes) -> None:
        self._size, self._tail, self._tail_start = size, tail, size - len(tail)
        self._position = 0
        self._ahead = _READ_AHEAD
        self._block_start, self._block = 0, b""

    @abstractmethod
    def _range(self, start: int, length: int) -> bytes:
        """That many bytes, of the version of the object that the file was opened on."""

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._position

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        base = {io.SEEK_SET: 0, io.SEEK_CUR: self._position, io.SEEK_END: self._size}[whence]
        if base + offset < 0:
            raise ValueError("a position before the beginning")
        self._position = base + offset
        return self._position

    def readall(self) -> bytes:
        return self.read(max(self._size - self._position, 0)) or b""

    def readinto(self, buffer: Any, /) -> int:
        with memoryview(buffer) as view, view.cast("B") as target:
            done = 0
            while done < len(target) and self._position < self._size:
                piece = self._piece(self._position, len(target) - done)
                target[done : done + len(piece)] = piece
                done += len(piece)
                self._position += len(piece)
            return done

    def _piece(self, start: int, wanted: int) -> bytes:
        """Some bytes from ``start`` on, at least one."""
        if start >= self._tail_start:
            return self._tail[start - self._tail_start :][:wanted]
        block_end = self._block_start + len(self._block)
        if not self._block_start <= start < block_end:
            goes_on = start == block_end and start > 0
            self._ahead = min(self._ahead * 2, _LONGEST_READ) if goes_on else _READ_AHEAD
            length = min(max(wanted, self._ahead), _LONGEST_READ, self._tail_start - start)
            self._block_start, self._block = start, self._range(start, length)
        return self._block[start - self._block_start :][:wanted]
