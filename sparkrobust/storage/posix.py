"""What a POSIX disk offers beyond Python's standard library, and what its errors mean.

Three primitives carry the local store: a file that appears whole under a name nobody has
(:func:`create_whole`), a rename that replaces nothing (:func:`rename_without_replacing`), and a
lock on a folder between processes (:func:`folder_lock`).  Each has a fallback for file systems and
systems that lack the best way; a file system that lacks them all is refused.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import os
import sys
from collections.abc import Callable, Iterator

from sparkrobust.errors import (
    InvalidInputError,
    PermissionDeniedError,
    RobustWriteError,
    StorageFullError,
    UnavailableError,
    UnsupportedTableError,
)
from sparkrobust.storage.contract import AlreadyExistsError, NotFoundError
from sparkrobust.storage.patience import Patience

_UNSUPPORTED = {errno.EINVAL, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}
_NO_TMPFILE = _UNSUPPORTED | {errno.EISDIR}
_NO_FLOCK = _UNSUPPORTED | {errno.EBADF, errno.ENOLCK, errno.EACCES, errno.EPERM}

_LOCK_PATIENCE = Patience(tries=600, first_pause=0.001, longest_pause=0.05)


# -- errors ------------------------------------------------------------------------------------

_BY_ERRNO: dict[int, tuple[type[RobustWriteError], str]] = {
    errno.ENOENT: (NotFoundError, "there is no file or folder"),
    errno.ENOTDIR: (NotFoundError, "there is no such folder"),
    errno.EEXIST: (AlreadyExistsError, "there is already a file"),
    errno.EISDIR: (AlreadyExistsError, "there is a folder of this name"),
    errno.ENOTEMPTY: (AlreadyExistsError, "there is a folder of this name"),
    errno.ENOSPC: (StorageFullError, "no space is left on the disk"),
    errno.EDQUOT: (StorageFullError, "the disk quota is used up"),
    errno.EACCES: (PermissionDeniedError, "permission denied"),
    errno.EPERM: (PermissionDeniedError, "the operation is not permitted"),
    errno.EROFS: (PermissionDeniedError, "the file system is read-only"),
    errno.ENAMETOOLONG: (InvalidInputError, "the file system refuses a name this long"),
    errno.EXDEV: (UnsupportedTableError, "the table spans several file systems"),
    errno.ENOTSUP: (UnsupportedTableError, "the file system lacks an operation"),
    errno.EOPNOTSUPP: (UnsupportedTableError, "the file system lacks an operation"),
}
_HINTS = {
    errno.EXDEV: "a file can only be renamed within one file system: keep the table on one",
    errno.ENOTSUP: "neither renameat2 nor hard links work here: put the table on another file system",
    errno.EOPNOTSUPP: "neither renameat2 nor hard links work here: put the table on another file system",
}


def error_of(error: OSError, action: str, path: str) -> RobustWriteError:
    """The library's error for an ``OSError``; what is not understood is ``UnavailableError``."""
    number = error.errno or 0
    cls, reason = _BY_ERRNO.get(number, (UnavailableError, error.strerror or str(error)))
    return cls(f"can't {action} {path}: {reason}", path=path, hint=_HINTS.get(number))


@contextlib.contextmanager
def translated(action: str, path: str) -> Iterator[None]:
    """Turn an ``OSError`` of the block into the library's error, which names the path."""
    try:
        yield
    except OSError as error:
        raise error_of(error, action, path) from error


# -- durable folders ---------------------------------------------------------------------------


def sync_folder(folder: str) -> None:
    """Make the entries of a folder durable; one that was taken away meanwhile has none."""
    try:
        descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    except FileNotFoundError:
        return
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some network file systems have no fsync for folders, and need none.
        if error.errno not in _UNSUPPORTED:
            raise
    finally:
        os.close(descriptor)


def write_all(descriptor: int, data: bytes | bytearray | memoryview) -> None:
    """Write every byte; one ``os.write`` may take fewer."""
    with memoryview(data) as view:
        done = 0
        while done < len(view):
            done += os.write(descriptor, view[done:])


# -- a rename that replaces nothing ---------------------------------------------------------------


def _native_rename() -> Callable[[bytes, bytes], int] | None:
    """The system's own no-replace rename as ``(source, target) -> errno``, if it has one."""
    library = ctypes.CDLL(None, use_errno=True)
    if sys.platform == "linux" and hasattr(library, "renameat2"):
        at_cwd, no_replace = -100, 1
        renameat2 = library.renameat2
        renameat2.argtypes = [ctypes.c_int, ctypes.c_char_p, ctypes.c_int, ctypes.c_char_p, ctypes.c_uint]

        def on_linux(source: bytes, target: bytes) -> int:
            failed = renameat2(at_cwd, source, at_cwd, target, no_replace)
            return ctypes.get_errno() if failed else 0

        return on_linux
    if sys.platform == "darwin" and hasattr(library, "renamex_np"):
        exclusive = 4
        renamex_np = library.renamex_np
        renamex_np.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_uint]

        def on_mac(source: bytes, target: bytes) -> int:
            return ctypes.get_errno() if renamex_np(source, target, exclusive) else 0

        return on_mac
    return None


_rename_natively = _native_rename()


def rename_without_replacing(source: str, target: str) -> None:
    """Rename a file, or raise ``FileExistsError`` and leave both as they are.

    Where the system or the file system has no such call: a hard link under the new name, then the
    old name goes.  Both names are there for a moment; whoever finds them so finishes the job, and
    when a call returns the source is gone.
    """
    if _rename_natively is not None:
        number = _rename_natively(os.fsencode(source), os.fsencode(target))
        if number == 0:
            return
        if number == errno.EEXIST and _same_file(source, target):
            os.unlink(source)
            return
        if number not in _UNSUPPORTED:
            raise OSError(number, os.strerror(number), source, None, target)
    link_and_unlink(source, target)


def link_and_unlink(source: str, target: str) -> None:
    """The fallback of :func:`rename_without_replacing`."""
    try:
        os.link(source, target)
    except FileExistsError:
        # Ours, when an earlier call was cut off here, or a network file system sent it twice.
        if not _same_file(source, target):
            raise
    with contextlib.suppress(FileNotFoundError):
        os.unlink(source)


def _same_file(one: str, other: str) -> bool:
    try:
        return os.path.samestat(os.lstat(one), os.lstat(other))
    except OSError:
        return False


# -- a file that appears whole --------------------------------------------------------------------


def create_whole(path: str, data: bytes, temporary: Callable[[], str]) -> None:
    """Create a file that is whole from the moment it has its name; ``FileExistsError``.

    The bytes are durable; the folder's entry is not yet (:func:`sync_folder`).

    Parameters
    ----------
    temporary
        Gives a path for a temporary file, asked for only where the file system can't make a file
        without a name.
    """
    if not data:
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o666))
        return
    if not _create_nameless(path, data):
        staged = temporary()
        write_new(staged, data)
        try:
            rename_without_replacing(staged, path)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(staged)
            raise


def _create_nameless(path: str, data: bytes) -> bool:
    """Write a file that has no name yet, then give it one; ``False`` where that can't be done."""
    flag: int | None = getattr(os, "O_TMPFILE", None)
    if flag is None:
        return False
    try:
        descriptor = os.open(os.path.dirname(path), flag | os.O_WRONLY | os.O_CLOEXEC, 0o666)
    except OSError as error:
        if error.errno in _NO_TMPFILE:
            return False
        raise
    try:
        write_all(descriptor, data)
        os.fsync(descriptor)
        # Naming a folder makes Python call linkat, which follows the link in /proc; link would not.
        os.link(f"/proc/self/fd/{descriptor}", path, src_dir_fd=descriptor, follow_symlinks=True)
        return True
    except OSError as error:
        # No /proc, or a file system that gives no second life to a nameless file.
        if error.errno in _UNSUPPORTED | {errno.EXDEV} or (
            error.errno == errno.ENOENT and not os.path.exists("/proc/self/fd")
        ):
            return False
        raise
    finally:
        os.close(descriptor)


def append(path: str, data: bytes, *, durable: bool) -> None:
    """Add to a file, which is made if there is none and which nobody else writes: all of it, or nothing."""
    descriptor = os.open(path, os.O_CREAT | os.O_APPEND | os.O_WRONLY | os.O_CLOEXEC, 0o666)
    try:
        before = os.fstat(descriptor).st_size
        try:
            write_all(descriptor, data)
            if durable:
                os.fsync(descriptor)
                if not before:
                    sync_folder(os.path.dirname(path))
        except BaseException:
            os.ftruncate(descriptor, before)
            raise
    finally:
        os.close(descriptor)


def write_new(path: str, data: bytes) -> os.stat_result:
    """Create a file under a name of its own and make its bytes durable; gone again on failure."""
    descriptor = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC, 0o666)
    try:
        write_all(descriptor, data)
        os.fsync(descriptor)
        return os.fstat(descriptor)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(path)
        raise
    finally:
        os.close(descriptor)


# -- a lock between processes ----------------------------------------------------------------------


@contextlib.contextmanager
def folder_lock(folder: str, instead: Callable[[], str]) -> Iterator[None]:
    """Hold a folder's lock against other threads and processes of this kind.

    It is ``flock`` on the folder itself: nothing is left behind, and a holder that dies lets go.
    Where a folder can't be locked (NFS wants a file that is open for writing), the file that
    ``instead`` names is locked in its place.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        try:
            _acquire(descriptor, folder)
        except OSError as error:
            if error.errno not in _NO_FLOCK:
                raise
            os.close(descriptor)
            descriptor = -1
            descriptor = os.open(instead(), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o666)
            _acquire(descriptor, folder)
        yield
    finally:
        if descriptor >= 0:
            os.close(descriptor)


def _acquire(descriptor: int, folder: str) -> None:
    for _ in _LOCK_PATIENCE.attempts():
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            continue
    raise UnavailableError(f"another process keeps {folder} locked", path=folder)
