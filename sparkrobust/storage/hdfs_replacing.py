"""Replacing just the version of a file that was read, on HDFS, which can't compare and swap.

Theory of operation
-------------------
A version is a file's time, size and content; in a chain of replacements the time always grows, so a
version that is gone never comes back.  Who replaces version V

1. writes the new content to a file with a name of its own,
2. *claims* V, by an object for V that is put if absent and says which file is to come,
3. looks that V is still there,
4. renames the new file over the old one.

Of many who want to replace V, one gets the claim.  The rename is one step of the NameNode, so a reader
finds a valid file at every moment; and it consumes the new file, so it happens once, whoever does it
and however late.  If the owner of the claim dies, the next one who wants to replace V does the rename
for it, and then starts from what is there.

Who deletes the file looks for claims afterwards (:meth:`Replacing.stop`): a new file that waits for a
version which is no longer there is thrown away, and if one slipped in, the file is deleted again.

A claim stays when its version is gone, for somebody may still come with that version.  It is swept a
day later, after the file that it names: so an owner that slept for a day between claim and rename
finds nothing to rename.

Software that writes the file without asking (Hudi's does so) is found out at step 3, or not at all.
"""

from __future__ import annotations

import contextlib
import hashlib
from dataclasses import dataclass

from sparkrobust.errors import UnavailableError
from sparkrobust.storage.contract import AlreadyExistsError, ChangedError, NotFoundError
from sparkrobust.storage.hdfs_requests import Requests, parent
from sparkrobust.storage.hdfs_scratch import CLAIMS, OUT_OF_SIGHT, TABLE_FOLDER, Scratch
from sparkrobust.storage.patience import Patience

_NEXT_MILLISECOND = Patience(tries=16, first_pause=0.002, longest_pause=2.0)


@dataclass(frozen=True, kw_only=True)
class _Claim:
    """The one replacement of a version that may happen."""

    file: str
    """The new file, until it is renamed."""
    version: str
    """What the new file's version is."""

    def render(self) -> bytes:
        return f"{self.version}\n{self.file}".encode()

    @classmethod
    def parse(cls, data: bytes) -> _Claim:
        version, _, file = data.decode().partition("\n")
        return cls(file=file, version=version)


class Replacing:
    """Replacements in one table; paths are whole ones."""

    def __init__(self, requests: Requests, scratch: Scratch, root: str) -> None:
        self._requests, self._scratch, self._root = requests, scratch, root

    def replace(self, full: str, data: bytes, version: str) -> str:
        """As the contract's ``replace_if_unchanged``."""
        if self._requests.read_versioned(full)[1] != version:
            raise _changed(full)
        mine = self._next(full, data, version)
        # From here to the claim an error leaves the file to a sweep: it may be claimed already.
        if not self._claimed(full, version, mine):
            self._requests.drop(mine.file)
            self._finish_for_another(full, version)
            raise _changed(full)
        now = self._requests.version(full)
        if now != version and self._requests.delete(mine.file):
            raise _changed(full) if now else _missing(full)
        try:
            self._install(full, mine)
        except NotFoundError:
            self._explain(full, mine)
        return mine.version

    def _next(self, full: str, data: bytes, version: str) -> _Claim:
        """The new file, later than the old one by HDFS's clock."""
        for _ in _NEXT_MILLISECOND.attempts():
            file = self._scratch.write(full, data)
            found = self._requests.read_versioned(file)[1]
            if _time_of(found) > _time_of(version):
                return _Claim(file=file, version=found)
            self._requests.drop(file)
        raise UnavailableError(f"{full} is newer than HDFS's clock is now", path=full)

    def _claimed(self, full: str, version: str, mine: _Claim) -> bool:
        """Whether the version is ours to replace."""
        folder, data = self._claims(full), mine.render()
        self._requests.make_folder(folder)
        place = f"{folder}/{version}"
        temporary = self._scratch.write(full, data)
        try:
            self._requests.move("claim", temporary, place, lambda: self._requests.read(place) == data)
        except AlreadyExistsError:
            self._requests.drop(temporary)
            return False
        return True

    def _finish_for_another(self, full: str, version: str) -> None:
        with contextlib.suppress(NotFoundError):
            theirs = _Claim.parse(self._requests.read(f"{self._claims(full)}/{version}"))
            if self._requests.version(full) == version:
                self._install(full, theirs)

    def _install(self, full: str, claim: _Claim) -> None:
        self._requests.asked("replace", full, lambda client: client.rename(claim.file, full, True))

    def _explain(self, full: str, mine: _Claim) -> None:
        """The new file is gone: others have installed it, or thrown it away."""
        now = self._requests.version(full)
        if now == mine.version or self._requests.status(f"{self._claims(full)}/{mine.version}") is not None:
            return
        if now is None:
            raise _missing(full)
        raise UnavailableError(
            f"nobody can tell whether {full} was replaced before it was written anew", path=full
        )

    def stop(self, full: str) -> bool:
        """End what was claimed before the file was deleted; whether something slipped in after that."""
        folder = self._claims(full)
        try:
            claims = self._requests.asked("list", folder, lambda client: list(client.list_status(folder)))
        except NotFoundError:
            return False
        if not claims:
            return False
        now, newer = self._requests.version(full), set()
        for claim in claims:
            replaced = claim.path.rpartition("/")[2]
            with contextlib.suppress(NotFoundError):
                found = _Claim.parse(self._requests.read(claim.path))
                newer.add(found.version)
                # A claim for what is there now came after us, and is right.
                if replaced != now:
                    self._requests.delete(found.file)
        return self._requests.version(full) in newer

    def _claims(self, full: str) -> str:
        """The folder of all claims for one file, whether or not there is one."""
        name = CLAIMS + hashlib.sha256(full.encode()).hexdigest()[:16]
        if full.startswith(f"{self._root}/{TABLE_FOLDER}/"):
            return f"{self._scratch.full}/{name}"
        return f"{parent(full)}/{OUT_OF_SIGHT}{name}"


def _time_of(version: str) -> int:
    return int(version.partition("-")[0], 16)


def _missing(full: str) -> NotFoundError:
    return NotFoundError(f"there is no {full}", path=full)


def _changed(full: str) -> ChangedError:
    return ChangedError(f"{full} was changed by somebody else", path=full)
