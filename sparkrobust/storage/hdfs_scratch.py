"""Files of our own on HDFS that are on their way to their place, and what is left of them."""

from __future__ import annotations

import contextlib
from typing import Any

from sparkrobust.errors import RobustWriteError
from sparkrobust.storage.contract import AlreadyExistsError, NotFoundError
from sparkrobust.storage.hdfs_files import OpenFile
from sparkrobust.storage.hdfs_requests import Refused, Requests, Unclear, error_of, parent
from sparkrobust.world import Ids

TABLE_FOLDER = ".hoodie"
SCRATCH = ".hoodie/.robust/.scratch"
CLAIMS = "claims-"
OUT_OF_SIGHT = ".sparkrobust-"
"""How names of ours begin where there is no table yet, and so no scratch folder."""
_TEMPORARY = "put-"
_ABANDONED_AFTER_MS = 24 * 3600 * 1000
_IDS = Ids()


class Scratch:
    """The scratch folder of one table."""

    def __init__(self, requests: Requests, root: str) -> None:
        self._requests = requests
        self.full = f"{root}/{SCRATCH}"

    def write(self, target: str, data: bytes) -> str:
        """A new file with this content, durable, that is to be renamed to ``target``; its path."""
        try:
            with contextlib.suppress(_Missing):
                return self._written(f"{self.full}/{_TEMPORARY}", target, data)
            if self._made():
                return self._written(f"{self.full}/{_TEMPORARY}", target, data)
            return self._written(f"{parent(target)}/{OUT_OF_SIGHT}{_TEMPORARY}", target, data)
        except Refused as refused:
            raise error_of(refused, "write", target) from None

    def _written(self, prefix: str, target: str, data: bytes) -> str:
        unclear: Unclear | None = None
        for _ in self._requests.patience.attempts():
            temporary = prefix + _IDS.nonce()
            try:
                self._fill(temporary, data)
                return temporary
            except Unclear as error:
                unclear = error
            except Refused as refused:
                if refused.kind is NotFoundError:
                    raise _Missing(refused.kind, refused.reason) from None
                # The name is nobody else's: the answer to our own first try was lost.
                if refused.kind is not AlreadyExistsError:
                    raise
        raise self._requests.unavailable("write", target, unclear)

    def _fill(self, temporary: str, data: bytes) -> None:
        file = OpenFile(self._requests, temporary)
        try:
            if data:
                file.write(data)
            file.finish()
        except BaseException:
            file.forget()
            self._requests.drop(temporary)
            raise

    def _made(self) -> bool:
        """Make the folder, level by level, so that a table that is being deleted is not made again."""
        try:
            self._requests.make_folder(parent(self.full))
            self._requests.make_folder(self.full)
        except NotFoundError:
            return False
        return True

    def sweep(self) -> None:
        """Remove what crashes left, once it is surely nobody's.

        A file that waits to be installed goes before the claim for it does: see
        :mod:`sparkrobust.storage.hdfs_replacing`.
        """
        with contextlib.suppress(Refused, Unclear, RobustWriteError):
            found = self._list(self.full)
            if not found:
                return
            # The folder's last change: by HDFS's own clock, and never later than now.
            now = self._requests.once(lambda client: client.get_file_info(self.full)).modification_time
            folders = [one.path for one in found if one.isdir]
            old = [one for one in found if not one.isdir]
            old += [claim for folder in folders for claim in self._list(folder)]
            for one in old:
                if now - one.modification_time > _ABANDONED_AFTER_MS:
                    self._requests.delete(one.path)

    def _list(self, folder: str) -> list[Any]:
        return self._requests.once(lambda client: list(client.list_status(folder)))


class _Missing(Refused):
    """The folder for the file is not there."""
