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
* *folders*: writing makes none.  On a store that has folders (``Staging.RENAME``), a write, a put
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
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import Enum

from sparkrobust.core.written import StagedFile as StagedFile
from sparkrobust.errors import InternalError, RobustWriteError


class NotFoundError(RobustWriteError):
    """No object at this path."""

    default_kind = "not-found"


class AlreadyExistsError(RobustWriteError):
    """There is an object at this path, and it was left as it is."""

    default_kind = "already-exists"


class ChangedError(RobustWriteError):
    """The object is not the version that the caller had read."""

    default_kind = "changed"


class StorageFullError(RobustWriteError):
    """No space is left on the store."""

    default_kind = "storage-full"


class PermissionDeniedError(RobustWriteError):
    """The store refuses us this operation."""

    default_kind = "permission-denied"


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


class StagedWriter(io.RawIOBase, ABC):
    """A binary file that is being staged: ``write``, ``tell``, then ``finish`` or ``discard``.

    Leaving it any other way (``close`` without ``finish``, an exception) discards what was written.
    """

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
    def read(self, path: str) -> bytes:
        """The whole object; ``NotFoundError``."""

    @abstractmethod
    def read_versioned(self, path: str) -> tuple[bytes, str]:
        """The whole object and the version to give to ``replace_if_unchanged``."""

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

    @abstractmethod
    def walk(self, folder: str) -> Iterator[FileInfo]:
        """Every object at any depth under a folder, in no particular order."""

    # -- writing ---------------------------------------------------------------------------------

    @abstractmethod
    def put_if_absent(self, path: str, data: bytes) -> None:
        """Create the object, whole and durable; ``AlreadyExistsError``."""

    def mark(self, path: str, data: bytes, *, under: str) -> None:
        """Put a note for who cleans up: as ``make_folder`` of its folder, then ``put_if_absent``.

        It need not be durable when this returns, since it only tells what may be there later: a store
        that can do it in less time does.
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

    @abstractmethod
    def delete_tree(self, folder: str) -> None:
        """Remove everything under a folder, and the folder; a missing one is fine.

        Where the store can, the folder first goes out of sight in one step.
        """

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

    @abstractmethod
    def stage(self, folder: str, name: str, final_path: str) -> StagedWriter:
        """Begin a staged file under a prepared staging folder; ``NotFoundError`` if that is gone."""

    @abstractmethod
    def seal(self, folder: str, sealed: str) -> None:
        """Rename a staging folder: nothing more is staged in it, and what was has another token, durably.

        The token is the one of ``StagedFile.moved``.  A file that was being written is lost.  Again:
        fine; ``NotFoundError`` where neither folder is there.  On a store without folders nothing is
        done, and nothing is lost.  Only drivers call it.
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

    @abstractmethod
    def discard(self, token: str) -> None:
        """Throw away a staged file by its token; one already gone or published is left alone."""


def checked(path: str) -> str:
    """The path, if it is one that stays inside of the root; every store calls this first."""
    if not path:
        return path
    if "\0" in path or any(part in ("", ".", "..") for part in path.split("/")):
        raise InternalError(f"not a path inside of a table: {path!r}")
    return path


def enclosing(folder: str, under: str) -> str:
    """The ``under`` of ``make_folder``, if ``folder`` lies in it; both checked."""
    if checked(under) and checked(folder) != under and not folder.startswith(under + "/"):
        raise InternalError(f"{folder!r} does not lie in {under!r}")
    checked(folder)
    return under
