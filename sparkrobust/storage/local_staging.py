"""The file that a task writes on a local disk before anybody may see it."""

from __future__ import annotations

import contextlib
import os
from typing import Any

from sparkrobust.storage.contract import StagedFile, StagedWriter
from sparkrobust.storage.posix import translated, write_all

_BUFFER = 1 << 20


class LocalStagedWriter(StagedWriter):
    """Writes a new file in a staging folder that must be there already.

    Parameters
    ----------
    full
        The staged file's path on the disk.
    token, final_path
        As in :class:`~sparkrobust.storage.contract.StagedFile`.
    """

    def __init__(self, *, full: str, token: str, final_path: str) -> None:
        self._full, self._token, self._final_path = full, token, final_path
        self._size = 0
        self._buffer = bytearray()
        self._settled = True
        with translated("stage", full):
            self._descriptor = os.open(full, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o666)
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
        with translated("stage", self._full), memoryview(data) as view, view.cast("B") as taken:
            if len(self._buffer) + len(taken) > _BUFFER:
                self._empty_buffer()
            if len(taken) > _BUFFER:
                write_all(self._descriptor, taken)
            else:
                self._buffer += taken
            self._size += len(taken)
            return len(taken)

    def _empty_buffer(self) -> None:
        write_all(self._descriptor, self._buffer)
        self._buffer.clear()

    def flush(self) -> None:
        """Nothing: the bytes need to be on the disk at ``finish``, not before."""

    def finish(self) -> StagedFile:
        if self._settled:
            raise ValueError("the staged file is finished or discarded")
        with translated("stage", self._full):
            self._empty_buffer()
            os.fsync(self._descriptor)
            # Where the staging folder was renamed away, the file is nobody's any more.  Its entry there
            # is synced with those of all others when the folder is sealed.
            os.stat(self._full)
        self._settle()
        return StagedFile(final_path=self._final_path, token=self._token, size=self._size)

    def discard(self) -> None:
        if self._settled:
            return
        if self._process == os.getpid():
            with contextlib.suppress(OSError):
                os.unlink(self._full)
        self._settle()

    def _settle(self) -> None:
        self._settled = True
        self._buffer.clear()
        with contextlib.suppress(OSError):
            os.close(self._descriptor)

    def close(self) -> None:
        self.discard()
        super().close()

    def __del__(self) -> None:
        # Here nothing has to be waited for, and a descriptor is not to be lost.
        self.close()
