"""Publishing by copying, where the source outlives the copy.

Theory of operation
-------------------
A rename consumes its source; a copy leaves it, to be deleted after.  Who sleeps in between does no
harm.  Who dies there leaves a source, from which somebody who has slept since before could publish
a second time, after all else was taken away.

*Data files* are safe from that by their order: a commit file is only published by who has published
every data file, which ends with their sources gone.  So once a write is completed, nothing is left
to publish its data from.

*The commit file* comes last, so whoever publishes it takes a **turn**: a copy of the source under a
name of his own, higher than all that are there.  He lists the turns again, and leaves the file to a
higher one; else he deletes the source and all lower turns, then looks whether the write has ended,
and only then copies from his turn.  Say that A has copied, and B copies later.  If B's look came
after A's copy, it saw that the write had ended.  If it came before, then A's turn was there at the
time, or A took it later.  In the one case B found it with the list: he left the file to A, or had
deleted A's turn before A copied.  In the other A's list came after B's turn was there: A left the
file to B, or deleted B's turn before he copied.  So B's copy finds no source, or A's has found none.

The driver that has staged the file may copy from the source itself, once: it is the lowest turn, and
nobody else's.  A request without an answer may arrive at any time, so who tries again takes a turn.

A turn is made only from the source or from another turn, by the store.  So once the source is deleted
and a listing after that shows no turn, the file can never be published any more.
"""

from __future__ import annotations

import contextlib
from abc import abstractmethod
from collections.abc import Callable

from sparkrobust.errors import UnavailableError
from sparkrobust.storage.contract import (
    AlreadyExistsError,
    Ended,
    NotFoundError,
    StagedFile,
    Staging,
    Storage,
    staged_path,
)
from sparkrobust.world import Ids

_TRIES = 5
_ROUNDS = 100


class CopyingStorage(Storage):
    """A store without folders that publishes by copying."""

    _ids: Ids

    @abstractmethod
    def copy_if_absent(self, source: str, target: str) -> None:
        """Copy within the store; ``AlreadyExistsError``, ``NotFoundError`` where the source is gone.

        The request is sent once: without an answer, ``UnavailableError``.
        """

    @abstractmethod
    def require_published(self, staged: StagedFile) -> None:
        """The final object is there, whole, and this one; ``NotFoundError``, ``AlreadyExistsError``."""

    @property
    def staging(self) -> Staging:
        return Staging.COPY

    def publish(self, staged: StagedFile) -> None:
        source = staged_path(staged.token)
        self._copied(source, staged)
        self.delete(source)

    def _copied(self, source: str, staged: StagedFile) -> None:
        # Whose the name is, and whether the source is gone since it was published, the look tells.
        with contextlib.suppress(AlreadyExistsError, NotFoundError):
            self.copy_if_absent(source, staged.final_path)
        self.require_published(staged)

    def publish_last(
        self, staged: StagedFile, look: Callable[[], Ended | None], *, alone: bool = False
    ) -> Ended | None:
        source: str | None = staged_path(staged.token)
        if not alone:
            source = self._take_turn(staged)
        ended = look()
        if source is None:  # it was published, or given up
            if ended is None:
                self.require_published(staged)
            return ended
        if ended is None:
            try:
                self._copied(source, staged)
            except NotFoundError as error:
                raise _overtaken(staged) from error
        self.delete(source)
        return ended

    def _take_turn(self, staged: StagedFile) -> str | None:
        """Take a turn; the path of its own source, ``None`` where nothing is left to make one from."""
        for _ in range(_TRIES):
            turns = self._turns_of(staged.token)
            newest = max(turns, default=staged.token)
            number = int(newest.rpartition("/")[2].partition("-")[0]) + 1 if turns else 1
            mine = f"{_folder(staged.token)}/{number:06d}-{self._ids.nonce()}"
            try:
                self.copy_if_absent(newest, mine)
            except NotFoundError:
                if not turns and not self._turns_of(staged.token):
                    return None
                continue
            others = [turn for turn in self._turns_of(staged.token) if turn != mine]
            if any(turn > mine for turn in others):
                self.delete(mine)
                raise _overtaken(staged)
            self._outdo(staged.token, *others)
            return mine
        raise _overtaken(staged)

    def _outdo(self, *lower: str) -> None:
        """Let nobody publish from these any more."""
        for path in lower:
            self.delete(path)

    def _turns_of(self, token: str) -> list[str]:
        return [info.path for info in self.list(_folder(token))[0]]

    def discard(self, token: str) -> None:
        staged_path(token)
        for _ in range(_ROUNDS):
            self.delete(token)
            turns = self._turns_of(token)
            if not turns:
                return
            for turn in turns:
                self.delete(turn)
        raise UnavailableError(f"others keep trying to publish {token}", path=token)


def _folder(token: str) -> str:
    return f"{token}.turns"


def _overtaken(staged: StagedFile) -> UnavailableError:
    return UnavailableError(
        f"another driver is about to publish {staged.final_path}, or was", path=staged.final_path
    )
