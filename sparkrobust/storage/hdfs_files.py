"""Files on HDFS: one that is read in parts, and one that is being staged."""

from __future__ import annotations

import contextlib
import io
import os
from collections.abc import Iterator
from typing import Any

from sparkrobust.errors import UnsupportedTableError
from sparkrobust.storage.contract import StagedFile, StagedWriter
from sparkrobust.storage.hdfs_requests import Refused, Requests, Unclear, error_of
from sparkrobust.storage.hdfs_settings import hdfs_module
from sparkrobust.storage.ranged import RangedFile

_BUFFER = 1 << 20
_SMALLEST_BLOCK = 1 << 20
"""As NameNodes are set up: a smaller file has one block, and needs no look at the size of blocks."""


class HdfsFile(RangedFile):
    """A seekable file.  What was opened is read to its end, even if it is deleted or replaced meanwhile.

    (HDFS frees the blocks of a deleted file only after a while; a read of a block that is gone raises
    ``UnavailableError``.)
    """

    def __init__(self, requests: Requests, full: str) -> None:
        self._requests, self._full = requests, full
        self._file = requests.reader(full)
        super().__init__(len(self._file), b"")

    def _range(self, start: int, length: int) -> bytes:
        try:
            found: bytes = self._requests.repeated(
                "read", self._full, lambda _: self._file.read_range(start, length)
            )
        except Refused as refused:
            raise error_of(refused, "read", self._full) from None
        return found


class OpenFile:
    """A new file that is being written; its bytes are on the DataNodes' disks once it is finished.

    Parameters
    ----------
    requests, full
        The file's path must be free, and its folder there.
    """

    def __init__(self, requests: Requests, full: str) -> None:
        self._requests, self._full = requests, full
        self._size = 0
        self._block_size: int | None = None
        options = hdfs_module().WriteOptions(
            overwrite=False, create_parent=False, permission=0o666 & ~requests.settings.umask
        )
        self._file = requests.once(lambda client: client.create(full, options))

    def write(self, data: bytes) -> None:
        """Append; ``Refused``, ``Unclear``."""
        for piece in self._by_blocks(data):
            self._requests.once(lambda _, piece=piece: self._file.write(piece))  # type: ignore[misc]
            self._size += len(piece)
            if self._block_size and self._size % self._block_size == 0:
                self._sync()  # which reaches the block that is being written, and no other

    def _by_blocks(self, data: bytes) -> Iterator[bytes]:
        if self._block_size is None and self._size + len(data) >= _SMALLEST_BLOCK:
            found = self._requests.once(lambda client: client.get_file_info(self._full))
            self._block_size = int(found.blocksize or 0)
        if not self._block_size:
            yield data
            return
        done = 0
        while done < len(data):
            room = self._block_size - (self._size % self._block_size)
            yield data[done : done + room]
            done += room

    def _sync(self) -> None:
        try:
            self._requests.once(lambda _: self._file.hsync())
        except Refused as refused:
            # A file that is kept with an erasure code can't be synced, only closed.
            if refused.kind is not UnsupportedTableError:
                raise

    def finish(self) -> int:
        """Sync and close; the size."""
        if self._size:
            self._sync()
        self._requests.once(lambda _: self._file.close())
        self.forget()
        return self._size

    def forget(self) -> None:
        """Leave the file as it is: else it would be closed, and so completed, when it is thrown away."""
        io.RawIOBase.close(self._file)


class HdfsStagedWriter(StagedWriter):
    """Writes a new file in a staging folder that must be there already.

    Parameters
    ----------
    requests, full
        The staged file's path on HDFS.
    token, final_path
        As in :class:`~sparkrobust.storage.contract.StagedFile`.
    """

    def __init__(self, requests: Requests, full: str, *, token: str, final_path: str) -> None:
        self._requests, self._full = requests, full
        self._token, self._final_path = token, final_path
        self._size = 0
        self._buffer = bytearray()
        self._settled = True
        with self._translated():
            self._open = OpenFile(requests, full)
        self._settled = False
        # A forked child has a copy of this object, and must not discard the parent's file with it.
        self._process = os.getpid()

    @property
    def token(self) -> str:
        return self._token

    def writable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._size

    def write(self, data: Any, /) -> int:
        if self._settled:
            raise ValueError("the staged file is finished or discarded")
        with self._translated(), memoryview(data) as view, view.cast("B") as taken:
            self._buffer += taken
            self._size += len(taken)
            if len(self._buffer) >= _BUFFER:
                self._empty_buffer()
            return len(taken)

    def _empty_buffer(self) -> None:
        data = bytes(self._buffer)
        self._buffer.clear()
        self._open.write(data)

    def flush(self) -> None:
        """Nothing: the bytes need to be on the disks at ``finish``, not before."""

    def finish(self) -> StagedFile:
        if self._settled:
            raise ValueError("the staged file is finished or discarded")
        with self._translated():
            if self._buffer:
                self._empty_buffer()
            self._open.finish()
            # HDFS completes a file wherever its folder was renamed to; then it is nobody's any more.
            self._requests.repeated("stage", self._full, lambda client: client.get_file_info(self._full))
        self._settled = True
        return StagedFile(final_path=self._final_path, token=self._token, size=self._size)

    def discard(self) -> None:
        if self._settled:
            return
        self._settled = True
        self._buffer.clear()
        self._open.forget()
        if self._process == os.getpid():
            with contextlib.suppress(Refused, Unclear):
                self._requests.once(lambda client: client.delete(self._full, False))

    def close(self) -> None:
        self.discard()
        super().close()

    def __del__(self) -> None:
        if not self._settled:
            self._open.forget()

    @contextlib.contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except Refused as refused:
            raise error_of(refused, "stage", self._full) from None
        except Unclear as unclear:
            raise self._requests.unavailable("stage", self._full, unclear) from None
