"""Requests to a NameNode: repeated where that is right, and what their answers mean.

An answer is a result, a refusal, which is certain (:class:`Refused`), or none that says what happened
(:class:`Unclear`).  The client itself repeats a request whose connection broke, so a refusal may mean
that an earlier try of the same request had worked: the caller has to look.

Paths here are whole ones, from the root of the file system.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
from collections.abc import Callable
from typing import Any, TypeVar

from sparkrobust.errors import (
    InvalidInputError,
    PermissionDeniedError,
    RobustWriteError,
    StorageFullError,
    UnavailableError,
    UnsafePathError,
    UnsupportedTableError,
)
from sparkrobust.storage.contract import AlreadyExistsError, NotFoundError, check_size
from sparkrobust.storage.hdfs_settings import HdfsSettings, client_of
from sparkrobust.storage.patience import Patience

Result = TypeVar("Result")

DEFAULT_PATIENCE = Patience(tries=8, first_pause=0.1, longest_pause=5.0)
"""Eleven seconds of pauses, at most, in which another NameNode may take over."""
_LOOKS = 20
_CHUNK = 512
"""What checksums are made of; the size of a block is a multiple of it."""


class Unclear(Exception):
    """No answer, or one that leaves open whether the request had its effect."""


class Refused(Exception):
    """The NameNode said no; ``kind`` is the library's error that this comes to."""

    def __init__(self, kind: type[RobustWriteError], reason: str) -> None:
        super().__init__(reason)
        self.kind, self.reason = kind, reason


_RPC = re.compile(r'(?:Fatal)?RPCError\("([^"]*)", "(.*)"\)', re.DOTALL)
_NO_FOLDER = "(is not a directory)"
_BY_CLASS: dict[str, type[RobustWriteError]] = {
    "FileNotFoundException": NotFoundError,
    "ParentNotDirectoryException": NotFoundError,
    "FileAlreadyExistsException": AlreadyExistsError,
    "PathIsNotEmptyDirectoryException": AlreadyExistsError,
    "AccessControlException": PermissionDeniedError,
    "AuthorizationException": PermissionDeniedError,
    "InvalidPathException": UnsafePathError,
    "PathComponentTooLongException": UnsafePathError,
    "NSQuotaExceededException": StorageFullError,
    "DSQuotaExceededException": StorageFullError,
    "QuotaByStorageTypeExceededException": StorageFullError,
    "QuotaExceededException": StorageFullError,
    "UnsupportedOperationException": UnsupportedTableError,
}
# Said under no class of their own.
_BY_WORDS: tuple[tuple[str, type[RobustWriteError]], ...] = (
    (" must both be ", AlreadyExistsError),  # a rename of a file to the name of a folder
    ("datanode(s) running and no node(s) are excluded", StorageFullError),
)
_NO_NODES = "There are 0 datanode(s) running"
_LOGIN = ("SASLError", "GSSAPIError", "NoSASLMechanism")
_CONFIGURED = ("InvalidArgument", "UrlParseError", "XmlParseError")


def _answer_of(error: Exception) -> Exception:
    """What an exception of the client says."""
    text = str(error)
    reason = text.replace("\\n", "\n").partition("\n")[0].strip()
    if isinstance(error, FileNotFoundError | IsADirectoryError | NotADirectoryError):
        return Refused(NotFoundError, reason)
    if isinstance(error, FileExistsError):
        return Refused(AlreadyExistsError, reason)
    if isinstance(error, NotImplementedError):
        return Refused(UnsupportedTableError, reason)
    remote = _RPC.match(text)
    if remote is not None:
        name, reason = remote[1].rpartition(".")[2], remote[2].partition("\\n")[0].strip()
        kind = _BY_CLASS.get(name)
        if kind is PermissionDeniedError and _NO_FOLDER in reason:
            kind = NotFoundError
        for words, meaning in _BY_WORDS if _NO_NODES not in text else ():
            kind = meaning if words in reason else kind
        return Unclear(f"{name}: {reason}") if kind is None else Refused(kind, reason)
    if text.startswith(_LOGIN):
        return Refused(PermissionDeniedError, f"the login failed: {reason}")
    if text.startswith(_CONFIGURED):
        return Refused(InvalidInputError, reason)
    return Unclear(f"{type(error).__name__}: {reason}")


class Requests:
    """The requests to one NameNode."""

    def __init__(self, settings: HdfsSettings, patience: Patience) -> None:
        self.settings, self.patience = settings, patience

    def once(self, call: Callable[[Any], Result]) -> Result:
        """Do something with the client; ``Refused``, ``Unclear``."""
        try:
            return call(client_of(self.settings))
        except (OSError, RuntimeError, NotImplementedError) as error:
            raise _answer_of(error) from None

    def repeated(self, action: str, full: str, call: Callable[[Any], Result]) -> Result:
        """Do what may be done several times, until there is a clear answer; ``Refused``."""
        unclear: Unclear | None = None
        for _ in self.patience.attempts():
            try:
                return self.once(call)
            except Unclear as error:
                unclear = error
        raise self.unavailable(action, full, unclear) from None

    def unavailable(self, action: str, full: str, unclear: Unclear | None) -> UnavailableError:
        return UnavailableError(
            f"can't {action} {full}: no clear answer after {self.patience.tries} tries: {unclear}",
            path=full,
        )

    # -- what the stores' modules ask for -----------------------------------------------------------

    def asked(self, action: str, full: str, call: Callable[[Any], Result]) -> Result:
        """Do what may be done several times; a refusal is raised as the library's error."""
        try:
            return self.repeated(action, full, call)
        except Refused as refused:
            raise error_of(refused, action, full) from None

    def status(self, full: str) -> Any:
        """What the NameNode knows about a file or folder, ``None`` where there is none."""
        try:
            return self.asked("look at", full, lambda client: client.get_file_info(full))
        except NotFoundError:
            return None

    def is_folder(self, full: str) -> bool:
        found = self.status(full)
        return found is not None and bool(found.isdir)

    def read(self, full: str, at_most: int | None = None) -> bytes:
        def all_of_it(client: Any) -> bytes:
            file = _reader_of_all(client, full)
            check_size(full, len(file), at_most)
            found: bytes = file.read()
            return found

        return self.asked("read", full, all_of_it)

    def reader(self, full: str) -> Any:
        """The client's file, with all of its blocks."""
        return self.asked("read", full, lambda client: _reader_of_all(client, full))

    def read_versioned(self, full: str, at_most: int | None = None) -> tuple[bytes, str]:
        """The content and its version: time, size and hash."""
        # Only software that replaces the file without asking, or many that ask, can outrun this.
        for _ in range(_LOOKS):
            before = self.status(full)
            data = self.read(full, at_most)
            after = self.status(full)
            if before and after and _same(before, after) and len(data) == after.length:
                content = hashlib.sha256(data).hexdigest()[:32]
                return data, f"{after.modification_time:x}-{after.length:x}-{content}"
        raise UnavailableError(f"{full} changes while it is read", path=full)

    def version(self, full: str) -> str | None:
        """The version of a file, ``None`` where there is none."""
        try:
            return self.read_versioned(full)[1]
        except NotFoundError:
            return None

    def delete(self, full: str, *, tree: bool = False) -> bool:
        """Delete a file, or a folder with all that is in it in one step; whether it was there."""
        try:
            return bool(self.asked("delete", full, lambda client: client.delete(full, tree)))
        except NotFoundError:
            return False

    def make_folder(self, full: str, *, parents: bool = False) -> None:
        mode = 0o777 & ~self.settings.umask
        self.asked("make the folder", full, lambda client: client.mkdirs(full, mode, parents))

    def move(self, action: str, source: str, target: str, is_ours: Callable[[], bool]) -> None:
        """Rename a file that nobody else renames elsewhere, without replacing anything.

        As long as the source is there, nothing has happened.  Once it is gone without an answer that
        says so, ``is_ours`` tells whether what has the name now is what was moved.

        Raises
        ------
        AlreadyExistsError
            Something else has the name.
        NotFoundError
            The target's folder is missing, or source and target are.
        """
        try:
            self.asked(action, target, lambda client: client.rename(source, target, False))
        except (AlreadyExistsError, NotFoundError):
            if self.status(source) is not None:
                raise
            if not is_ours():
                raise AlreadyExistsError(
                    f"can't {action} {target}: another file has the name", path=target
                ) from None

    def drop(self, full: str) -> None:
        """Delete a file of ours, if that can be done now; a sweep finds it otherwise."""
        with contextlib.suppress(Refused, Unclear):
            self.once(lambda client: client.delete(full, False))


def _reader_of_all(client: Any, full: str) -> Any:
    """The client's file; ``Unclear`` while the NameNode does not know yet where its last block is.

    A site may let files be closed before a DataNode has reported their last block
    (``dfs.namenode.file.close.num-committed-allowed``).  Until it has, the client takes the file to end
    where that block begins.
    """
    file = client.read(full)
    size = len(file)
    # No other file needs the second look: its last block is there, since it is not a full one.
    if size % _CHUNK == 0 and size < client.get_file_info(full).length:
        raise Unclear("its last block has not been reported yet")
    return file


def _same(one: Any, other: Any) -> bool:
    return bool((one.modification_time, one.length) == (other.modification_time, other.length))


def parent(full: str) -> str:
    return full.rpartition("/")[0] or "/"


def error_of(refused: Refused, action: str, full: str) -> RobustWriteError:
    """The library's error for a refusal that has no special meaning to the caller."""
    hint = None
    if refused.kind is StorageFullError:
        hint = "a quota is used up, or no DataNode takes another block: they are full, or too busy"
    elif refused.kind is PermissionDeniedError:
        hint = "HDFS knows a user by HADOOP_USER_NAME, the account, or the Kerberos ticket"
    elif refused.kind is UnsafePathError:
        hint = "HDFS takes no colon in a name: hoodie.datasource.write.partitionpath.urlencode escapes it"
    return refused.kind(f"can't {action} {full}: {refused.reason}", path=full, hint=hint)
