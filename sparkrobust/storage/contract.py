"""What a table asks of the store that it lies on: the contract, and nothing of any one store.

A path is relative to the storage's root (the table's base path), with ``/`` between its parts and
no leading or trailing one; ``""`` is the root itself.  A store takes nothing else: an absolute
path, ``..``, an empty part or a NUL is an :class:`~sparkrobust.errors.InternalError`, so that no
mistake above can reach outside of the table.

Everything that the protocols rest on is here, with its meaning under races:

* ``put_if_absent``: of any number of racing callers exactly one wins; the object appears whole or
  not at all; its bytes are durable before the call returns.
* ``replace_if_unchanged``: replaces the very version that was read, or nothing.
* ``delete``: a missing object is fine.
* *staging*: bytes are written where no reader looks (``stage``), and later made visible under
  their final name in one step that **consumes** the staged bytes and never replaces an existing
  object (``publish``), or thrown away (``discard``).  A publish may be repeated: a second one
  finds the final object there.  A staging folder can be taken out of reach of those who still write
  in it (``seal``).
* *folders*: writing makes none.  On a store that has folders (``Staging.has_folders``), a write, a put
  or a stage into a missing one is a :class:`NotFoundError`, so that a task whose folder was taken
  away can't bring it back; only ``make_folder``, ``make_staging`` and ``publish`` (which holds
  bytes that a driver decided on) make folders.  An object store has none, and nothing to miss.

An answer that never came (a timeout, a cut connection) raises
:class:`~sparkrobust.errors.UnavailableError`: the effect may or may not have happened.  Protocols
look, they never guess.
"""

from __future__ import annotations

import io
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import TypeVar

from sparkrobust.core.names import is_inside
from sparkrobust.core.written import StagedFile as StagedFile
from sparkrobust.errors import CorruptTableError, InternalError, RobustWriteError

Ended = TypeVar("Ended")


class NotFoundError(RobustWriteError):
    """No object at this path."""

    default_kind = "not-found"


class AlreadyExistsError(RobustWriteError):
    """There is an object at this path, and it was left as it is."""

    default_kind = "already-exists"


class ChangedError(RobustWriteError):
    """The object is not the version that the caller had read."""

    default_kind = "changed"


@dataclass(frozen=True, kw_only=True)
class FileInfo:
    """One object of a listing."""

    path: str
    size: int
    modified_ms: int
    """By the storage's own clock, milliseconds since 1970."""


class Staging(Enum):
    """How a store makes staged bytes visible; what it promises is in ``docs/architecture.md``."""

    RENAME = "rename"
    """Staged in a folder of the table, published by a rename that replaces nothing."""
    MULTIPART = "multipart"
    """Staged as an upload that is not completed, published by completing it."""
    COPY = "copy"
    """Staged as an object of its own, published by a copy that replaces nothing; then the source goes."""

    @property
    def has_folders(self) -> bool:
        """A folder has to be made, can be taken away from those who write in it, and can be sealed."""
        return self is Staging.RENAME

    @property
    def is_listed(self) -> bool:
        """Staged files are listed, each with its size and by its token."""
        return self is not Staging.MULTIPART

    @property
    def needs_its_token(self) -> bool:
        """Only who knows its token can find a staged file that nobody wants."""
        return self is Staging.MULTIPART


@dataclass(frozen=True, kw_only=True)
class Look:
    """The names of the objects directly in a folder, as they were at one moment."""

    names: frozenset[str]
    stamp: Hashable = None
    """As long as the store says this of the folder, they are the ones; ``None``: it does not say."""


class StagedWriter(io.RawIOBase, ABC):
    """A binary file that is being staged: ``write``, ``tell``, then ``finish`` or ``discard``.

    Leaving it any other way (``close`` without ``finish``, an exception) discards what was written.  One that
    is forgotten, and never closed, leaves it to a sweep: its memory is collected at any moment, within
    whatever the thread is at, where nobody may wait for a store.
    """

    def __del__(self) -> None:
        """Nothing, in place of the ``close`` of every other file."""

    @property
    @abstractmethod
    def token(self) -> str:
        """Enough for a sweep to find and discard it, known before the first byte is written."""

    @abstractmethod
    def finish(self) -> StagedFile:
        """Make the bytes durable and give back what publishes them.

        On a store with folders its name is durable once its folder is sealed, or once something else
        is put into that folder.
        """

    @abstractmethod
    def discard(self) -> None:
        """Throw away what was written; never raises for something already gone."""


class Storage(ABC):
    """One table's root on one store.  Thread-safe; small to pickle; a pickled copy works elsewhere."""

    @property
    @abstractmethod
    def url(self) -> str:
        """The root, as users and Spark spell it; never with credentials in it."""

    @property
    @abstractmethod
    def staging(self) -> Staging: ...

    # -- reading ---------------------------------------------------------------------------------

    @abstractmethod
    def read(self, path: str, *, at_most: int | None = None) -> bytes:
        """The whole object; ``NotFoundError``.

        Parameters
        ----------
        at_most
            A larger one is not fetched: ``CorruptTableError``.
        """

    @abstractmethod
    def read_versioned(self, path: str, *, at_most: int | None = None) -> tuple[bytes, str]:
        """The same, and the version to give to ``replace_if_unchanged``."""

    @abstractmethod
    def open(self, path: str) -> io.BufferedIOBase | io.RawIOBase:
        """A seekable binary file for reading parts of a large object; ``NotFoundError``."""

    @abstractmethod
    def stat(self, path: str) -> FileInfo | None:
        """The object's size and time, ``None`` where there is none (a folder is no object)."""

    @abstractmethod
    def list(self, folder: str) -> tuple[list[FileInfo], list[str]]:
        """The objects directly in a folder, and the paths of its sub-folders; both sorted by path.

        A folder that is not there is empty.  Names that begin with a dot are listed too; left out
        are only the checksum files that Hadoop lays beside its own on a local disk (``.name.crc``)
        and the store's own scratch.
        """

    def names(self, folder: str) -> Iterable[str]:
        """The names, without the folder, of the objects directly in a folder, in any order."""
        return [info.path.rpartition("/")[2] for info in self.list(folder)[0]]

    def look(self, folder: str, before: Look | None = None) -> Look:
        """The names as of now; the look from before itself where the store knows that nothing has changed."""
        return Look(names=frozenset(self.names(folder)))

    def settles_in(self, folder: str) -> float | None:
        """The seconds until a look can tell that the names are those of the look before it.

        That is if nobody changes them; ``None``: no look ever can, each takes a listing.
        """
        return None

    @abstractmethod
    def walk(self, folder: str) -> Iterator[FileInfo]:
        """Every object at any depth under a folder, in no particular order."""

    # -- writing ---------------------------------------------------------------------------------

    @abstractmethod
    def put_if_absent(self, path: str, data: bytes) -> None:
        """Create the object, whole and durable; ``AlreadyExistsError``."""

    def make_marks(self, folder: str) -> None:
        """Prepare a folder for :meth:`mark`.  Only drivers call it."""
        self.make_folder(folder)

    def mark(self, path: str, data: bytes, *, under: str, durable: bool = False) -> None:
        """Put a begin marker for who cleans up: as ``make_folder`` of its folder, then ``put_if_absent``.

        A store that can has it as a line in a list, as Hudi's timeline server writes them.

        Parameters
        ----------
        durable
            It has to be when this returns.  It need not be where it only tells what may be there later: a
            store that can do it in less time then does.
        """
        self.make_folder(path.rpartition("/")[0], under=under)
        self.put_if_absent(path, data)

    @abstractmethod
    def put(self, path: str, data: bytes) -> None:
        """Create or replace the object, whole and durable.  For contents that nobody races for."""

    @abstractmethod
    def replace_if_unchanged(self, path: str, data: bytes, version: str) -> str:
        """Replace just this version, return the new one; ``ChangedError``, ``NotFoundError``."""

    @abstractmethod
    def delete(self, path: str) -> None:
        """Remove the object; a missing one is fine."""

    def delete_all(self, paths: Iterable[str]) -> None:
        """Remove many objects, in no order; missing ones are fine."""
        for path in paths:
            self.delete(path)

    @abstractmethod
    def delete_tree(self, folder: str) -> None:
        """Remove everything under a folder, and the folder; a missing one is fine.

        Where the store can, the folder first goes out of sight in one step.
        """

    def delete_mark(self, folder: str) -> None:
        """Remove the object by which other tools mark an empty folder, on a store that has no folders.

        No listing of files shows it.  What lies in the folder stays.
        """
        checked(folder)  # most stores have none

    # -- staging ---------------------------------------------------------------------------------

    @abstractmethod
    def make_staging(self, folder: str) -> None:
        """Prepare a staging folder.  Only drivers call it: a task must never make a parent."""

    @abstractmethod
    def make_folder(self, folder: str, *, under: str = "") -> None:
        """Prepare an ordinary folder, parents included (nothing to do on an object store).

        Nothing is made unless ``under``, which ``folder`` lies in, is there: ``NotFoundError``.  A
        task that comes late so finds that its marker folder was taken away, and can't bring it back.
        """

    def make_folders(self, folders: Iterable[str]) -> None:
        """Prepare many ordinary folders, parents included."""
        for folder in folders:
            self.make_folder(folder)

    @abstractmethod
    def stage(self, folder: str, name: str, final_path: str) -> StagedWriter:
        """Begin a staged file under a prepared staging folder; ``NotFoundError`` if that is gone."""

    @abstractmethod
    def seal(self, folder: str, sealed: str) -> None:
        """Rename a staging folder: nothing more is staged in it, and what was has another token, durably.

        The token is the one of ``StagedFile.moved``.  A file that was being written is lost.  Again:
        fine; ``NotFoundError`` where neither folder is there.  On a store without folders nothing is
        done, nothing is lost, and tokens stay.  Only drivers call it.
        """

    @abstractmethod
    def publish(self, staged: StagedFile) -> None:
        """Make it visible under its final path; again: fine.

        ``AlreadyExistsError`` where another object has the name (told by its size, once the staged
        bytes are consumed), ``NotFoundError`` where neither the staged bytes nor the final object
        are there.  Durable when it returns.
        """

    def publish_all(self, staged: Iterable[StagedFile]) -> None:
        """Publish many, whose names nobody else gives to anything; the first error ends it.

        Then any of the others may be published.  That another object has a name need not be noticed
        where the staged bytes are consumed already.
        A store overrides it where it can do better than one after the other.
        """
        for one in staged:
            self.publish(one)

    def publish_last(
        self, staged: StagedFile, look: Callable[[], Ended | None], *, alone: bool = False
    ) -> Ended | None:
        """Publish what nothing comes after, unless a look says that the end has come already.

        However long a caller sleeps in here, and whatever was deleted meanwhile, what was published
        once is not published again.  Where a publish consumes in one step that is so by itself.

        Parameters
        ----------
        look
            Whether it was published, whatever became of it since; asked right before it is published.
        alone
            We have staged it, nobody but us can have tried yet, and we not more than this once.

        Returns
        -------
        What the look said; ``None`` if it said nothing, and the file is published now.
        """
        ended = look()
        if ended is None:
            self.publish(staged)
        return ended

    @abstractmethod
    def discard(self, token: str) -> None:
        """Throw away a staged file by its token; one already gone or published is left alone.

        Where staged files are copied, one that is not finished yet has nothing to be thrown away: it
        may still come to be, and lies there until its write is swept.
        """


def checked(path: str) -> str:
    """The path, if it is one that stays inside of the root; every store calls this first."""
    if not is_inside(path):
        raise InternalError(f"not a path inside of a table: {path!r}")
    return path


def check_size(path: str, size: int, at_most: int | None) -> None:
    """``CorruptTableError`` for an object that is larger than what is read of it."""
    if at_most is not None and size > at_most:
        raise CorruptTableError(f"{path}: {size} bytes, expected at most {at_most}", path=path)


def staged_path(token: str) -> str:
    """A token, which may come from a file that anybody wrote, where tokens are paths."""
    if not token or not is_inside(token):
        raise CorruptTableError(f"not the token of a staged file: {token[:200]!r}")
    return token


def enclosing(folder: str, under: str) -> str:
    """The ``under`` of ``make_folder``, if ``folder`` lies in it; both checked."""
    if checked(under) and checked(folder) != under and not folder.startswith(under + "/"):
        raise InternalError(f"{folder!r} does not lie in {under!r}")
    checked(folder)
    return under
