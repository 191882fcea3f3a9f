"""A table on a local or network disk that behaves as POSIX says.

Theory of operation
-------------------
*Appearing.*  A file is written without a name (``O_TMPFILE``), synced, and then linked under its
name, which fails where the name is taken: so of racing writers one wins, and nobody sees half a
file.  Where that can't be done, it is written in the store's scratch folder and moved by a rename
that replaces nothing.

*Publishing* is that rename, out of a staging folder: it consumes what it publishes, so a file that
was published once can't come back after somebody deleted it.

*Replacing.*  POSIX has no compare-and-swap of files.  ``replace_if_unchanged`` compares and renames
under a lock on the folder, which ``put`` and ``delete`` take too.  So it holds against every
process on this machine (on NFS and the like: on every machine whose locks the server coordinates)
that uses this class, and not against software that writes the file without asking.  A version is
the file's inode, time, size and content hash.

*Scratch* is one folder inside of ``.hoodie``, where neither Hudi nor Spark looks, and never inside
of ``.hoodie/.temp``, whose every file Hudi takes for a marker.  What a crash left there is swept by
a later ``delete_tree``.

*Checksums of Hadoop.*  Hadoop's local file system keeps ``.name.crc`` beside ``name`` and refuses
to read a file that doesn't match.  We write none; whoever replaces, publishes or deletes ``name``
first removes a stale one.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import io
import os
import stat as stat_bits
from collections.abc import Callable, Iterable, Iterator

from sparkrobust.errors import InvalidInputError, PermissionDeniedError, UnavailableError
from sparkrobust.storage import local_looks, local_marks, posix
from sparkrobust.storage.contract import (
    ChangedError,
    FileInfo,
    Look,
    NotFoundError,
    StagedFile,
    StagedWriter,
    Staging,
    Storage,
    check_size,
    checked,
    enclosing,
    staged_path,
)
from sparkrobust.storage.local_looks import OUT_OF_SIGHT, SCRATCH, is_hidden
from sparkrobust.storage.local_removal import remove_tree
from sparkrobust.storage.local_staging import LocalStagedWriter
from sparkrobust.storage.posix import error_of, translated
from sparkrobust.world import Clock, Hands, Ids

_TABLE_FOLDER = ".hoodie"
_ABANDONED_AFTER_MS = 24 * 3600 * 1000
_SYNCERS = 16
"""The disk is told of many folders at once at no higher price than of one."""
_CLOCK, _IDS, _HANDS = Clock(), Ids(), Hands()


class LocalStorage(Storage):
    """A table's root on a disk.

    Parameters
    ----------
    root
        A folder, which need not be there yet; a relative one is taken from the working directory.
    """

    def __init__(self, root: str) -> None:
        if not root or "\0" in root:
            raise InvalidInputError(f"not a folder: {root!r}")
        self._root = os.path.abspath(root)
        if self._root == os.sep:
            raise InvalidInputError("a table can't be the root folder of the disk", path=self._root)

    @property
    def url(self) -> str:
        return f"file://{self._root}"

    @property
    def staging(self) -> Staging:
        return Staging.RENAME

    def __repr__(self) -> str:
        return f"LocalStorage({self._root!r})"

    # -- reading -------------------------------------------------------------------------------

    def read(self, path: str, *, at_most: int | None = None) -> bytes:
        with self.open(path) as file, translated("read", self._full(path)):
            check_size(path, os.fstat(file.fileno()).st_size, at_most)
            return file.read()

    def read_versioned(self, path: str, *, at_most: int | None = None) -> tuple[bytes, str]:
        full = self._full(path)
        # Only software that writes in place (Hudi does so) can change a file while it is read.
        for _ in range(20):
            with self.open(path) as file, translated("read", full):
                before = os.fstat(file.fileno())
                check_size(path, before.st_size, at_most)
                data = file.read()
                after = os.fstat(file.fileno())
            if _same_version(before, after) and len(data) == after.st_size:
                return data, _version(after, data)
        raise UnavailableError(f"{full} changes while it is read", path=full)

    def open(self, path: str) -> io.BufferedReader:
        full = self._full(path)
        try:
            return open(full, "rb")
        except IsADirectoryError as error:
            raise error_of(FileNotFoundError(errno.ENOENT, ""), "read", full) from error
        except OSError as error:
            raise error_of(error, "read", full) from error

    def stat(self, path: str) -> FileInfo | None:
        full = self._full(path)
        try:
            found = os.stat(full)
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as error:
            raise error_of(error, "look at", full) from error
        return _info(path, found) if stat_bits.S_ISREG(found.st_mode) else None

    def list(self, folder: str) -> tuple[list[FileInfo], list[str]]:
        files: list[FileInfo] = []
        folders: list[str] = []
        for path, entry, is_folder in self._entries(folder):
            if is_folder:
                folders.append(path)
                continue
            try:
                files.append(_info(path, entry.stat()))
            except OSError as error:
                if error.errno != errno.ENOENT:  # deleted since it was listed
                    raise error_of(error, "list", entry.path) from error
        return sorted(files, key=lambda info: info.path), sorted(folders)

    def names(self, folder: str) -> Iterable[str]:
        names = local_looks.names_in(self._full(folder), folder)
        if names is None:
            return [entry.name for _, entry, is_folder in self._entries(folder) if not is_folder]
        return names

    def look(self, folder: str, before: Look | None = None) -> Look:
        full, names = self._full(folder), None
        # First the stamp: what comes while the names are listed changes it.
        stamp = local_looks.stamp_of(full, _CLOCK)
        if before is not None:
            if before.stamp is not None and before.stamp == stamp:
                return before
            names = local_looks.names_since(full, folder, before.names)
        return Look(names=frozenset(self.names(folder)) if names is None else names, stamp=stamp)

    def settles_in(self, folder: str) -> float | None:
        return local_looks.settles_in(self._full(folder), _CLOCK)

    def walk(self, folder: str) -> Iterator[FileInfo]:
        yield from self._walk(folder, ())

    def _walk(self, folder: str, above: tuple[tuple[int, int], ...]) -> Iterator[FileInfo]:
        with translated("list", self._full(folder)):
            try:
                here = os.stat(self._full(folder))
            except (FileNotFoundError, NotADirectoryError):
                return
        identity = (here.st_dev, here.st_ino)
        if identity in above:  # a symbolic link that leads in circles
            return
        files, folders = self.list(folder)
        yield from files
        for inner in folders:
            yield from self._walk(inner, (*above, identity))

    def _entries(self, folder: str) -> Iterator[tuple[str, os.DirEntry[str], bool]]:
        """Files and folders in a folder, and which it is; not Hadoop's checksums and our own scratch."""
        full = self._full(folder)
        try:
            with os.scandir(full) as entries:
                for entry in entries:
                    path = f"{folder}/{entry.name}" if folder else entry.name
                    if entry.name[0] == "." and is_hidden(path, entry.name):
                        continue
                    try:
                        is_folder = entry.is_dir()
                        if not is_folder and not entry.is_file():
                            continue
                    except OSError as error:
                        # A symbolic link to itself, or through a file that is no folder.
                        if error.errno in (errno.ELOOP, errno.ENOTDIR):
                            continue
                        raise error_of(error, "list", entry.path) from error
                    yield path, entry, is_folder
        except (FileNotFoundError, NotADirectoryError):
            return
        except OSError as error:
            raise error_of(error, "list", full) from error

    # -- writing -------------------------------------------------------------------------------

    def put_if_absent(self, path: str, data: bytes) -> None:
        full = self._full(path)
        with translated("create", full):
            if os.path.lexists(full):
                raise FileExistsError(errno.EEXIST, "", full)
            self._drop_checksum(full)
            posix.create_whole(full, data, lambda: self._temporary(full))
        self._make_entry_durable(full)

    def make_marks(self, folder: str) -> None:
        self.make_folder(folder)
        with translated("prepare", self._full(folder)):
            local_marks.say_that_they_are_listed(self._full(folder))

    def mark(self, path: str, data: bytes, *, under: str, durable: bool = False) -> None:
        name = checked(path)[len(under) + 1 :]
        if data or not local_marks.may_be_listed(name):
            super().mark(path, data, under=under, durable=durable)
            return
        with translated("mark in", self._full(under)):
            local_marks.add(self._full(under), name, durable=durable)

    def put(self, path: str, data: bytes) -> None:
        full = self._full(path)
        with translated("write", full), self._locked(full):
            self._write_over(full, data)

    def replace_if_unchanged(self, path: str, data: bytes, version: str) -> str:
        full = self._full(path)
        with translated("replace", full), self._locked(full):
            if self.read_versioned(path)[1] != version:
                raise ChangedError(f"{full} was changed by somebody else", path=full)
            return _version(self._write_over(full, data), data)

    def delete(self, path: str) -> None:
        full = self._full(path)
        missing_is_fine = contextlib.suppress(FileNotFoundError, NotADirectoryError)
        with translated("delete", full), missing_is_fine, self._locked(full):
            self._drop_checksum(full)
            if not stat_bits.S_ISDIR(os.lstat(full).st_mode):  # a folder is no object
                os.unlink(full)

    def delete_tree(self, folder: str) -> None:
        if not folder:
            # The table's own folder goes first: without it there is no table.
            with translated("list", self._root):
                names = set(os.listdir(self._root)) if os.path.isdir(self._root) else set()
            for name in sorted(names, key=lambda name: (name != _TABLE_FOLDER, name)):
                self._delete_child(name, files_too=True)
            with contextlib.suppress(OSError):
                os.rmdir(self._root)  # not possible for a mount point or a link, nor needed
            return
        self._delete_child(checked(folder), files_too=False)
        self._sweep_scratch()

    def _delete_child(self, path: str, *, files_too: bool) -> None:
        full = self._full(path)
        with translated("delete", full), contextlib.suppress(FileNotFoundError, NotADirectoryError):
            self._refuse_to_leave(full)
            found = os.lstat(full)
            if stat_bits.S_ISLNK(found.st_mode):
                os.unlink(full)  # the link alone, never what it leads to
            elif stat_bits.S_ISDIR(found.st_mode):
                trash = self._trash(path, full)
                os.rename(full, trash)
                remove_tree(trash)
            elif files_too:
                os.unlink(full)

    def _refuse_to_leave(self, full: str) -> None:
        parent, root = os.path.realpath(os.path.dirname(full)), os.path.realpath(self._root)
        if os.path.commonpath([parent, root]) != root:
            raise PermissionDeniedError(
                f"won't delete {full}: a symbolic link on the way leads out of the table", path=full
            )

    # -- staging -------------------------------------------------------------------------------

    def make_staging(self, folder: str) -> None:
        self.make_folder(folder)

    def make_folder(self, folder: str, *, under: str = "") -> None:
        with translated("make the folder", self._full(folder)):
            if not under:
                self._make_root()
            self._make_below(folder, under, _make_durably)

    def make_folders(self, folders: Iterable[str]) -> None:
        """One sync of each folder that has got new ones, because that is what takes the time."""
        grown: set[str] = set()

        def make(full: str) -> None:
            os.mkdir(full)
            grown.add(os.path.dirname(full))

        self._make_root()
        try:
            for folder in folders:
                with translated("make the folder", self._full(folder)):
                    self._make_below(folder, "", make)
        finally:
            for full in sorted(grown):
                with translated("make folders in", full):
                    posix.sync_folder(full)

    def _make_below(self, folder: str, under: str, make: Callable[[str], None]) -> None:
        """Level by level below what is there: a folder that is taken away meanwhile is not made again."""
        full, base = self._full(folder), self._full(enclosing(folder, under))
        if not os.path.isdir(base):
            raise FileNotFoundError(errno.ENOENT, "", base)
        for part in full[len(base) :].split("/")[1:]:
            base = f"{base}/{part}"
            _make_one(base, make)

    def _make_root(self) -> None:
        missing, folder = [], self._root
        while not os.path.isdir(folder):
            missing.append(folder)
            folder = os.path.dirname(folder)
        for one in reversed(missing):
            _make_one(one, _make_durably)

    def stage(self, folder: str, name: str, final_path: str) -> StagedWriter:
        token = checked(f"{folder}/{name}" if folder else name)
        return LocalStagedWriter(full=self._full(token), token=token, final_path=checked(final_path))

    def seal(self, folder: str, sealed: str) -> None:
        source, target = self._full(folder), self._full(sealed)
        with translated("seal", source):
            # Only drivers get here, and make both folders once: nobody fills the place in between.
            if os.path.isdir(source) and os.path.isdir(target):
                raise FileExistsError(errno.EEXIST, "", target)
            try:
                os.rename(source, target)
            except FileNotFoundError:
                if not os.path.isdir(target):
                    raise
            posix.sync_folder(target)
            posix.sync_folder(os.path.dirname(target))

    def publish(self, staged: StagedFile) -> None:
        self.publish_all([staged])

    def publish_all(self, staged: Iterable[StagedFile]) -> None:
        """One sync per folder for all, because that is what takes the time."""
        folders: set[str] = set()
        try:
            for one in staged:
                folders.add(self._move_into_place(one))
        finally:
            _HANDS.map(self._sync_published, sorted(folders), most=_SYNCERS)

    @staticmethod
    def _sync_published(folder: str) -> None:
        with translated("publish into", folder):
            posix.sync_folder(folder)

    def _move_into_place(self, staged: StagedFile) -> str:
        """Rename one staged file to its final name, and tell the folder that this changed."""
        source, target = self._full(staged_path(staged.token)), self._full(staged.final_path)
        with translated("publish", target):
            # The second round is for a final folder that is missing; a file in its place is found then.
            for _ in range(2):
                self._drop_checksum_of_missing(target)
                try:
                    posix.rename_without_replacing(source, target)
                    return os.path.dirname(target)
                except FileExistsError:
                    if os.path.lexists(source):
                        raise
                except (FileNotFoundError, NotADirectoryError):
                    if os.path.lexists(source) and not os.path.isdir(os.path.dirname(target)):
                        self.make_folder(os.path.dirname(staged.final_path))
                        continue
                published = self.stat(staged.final_path)
                if published is None:
                    break
                if published.size != staged.size:
                    raise FileExistsError(errno.EEXIST, "", target)
                return os.path.dirname(target)
        raise NotFoundError(f"neither {source} nor {target} is there to be published", path=target)

    def discard(self, token: str) -> None:
        full = self._full(staged_path(token))
        with translated("discard", full), contextlib.suppress(FileNotFoundError, NotADirectoryError):
            os.unlink(full)

    # -- helpers -------------------------------------------------------------------------------

    def _full(self, path: str) -> str:
        return f"{self._root}/{path}" if checked(path) else self._root

    def _locked(self, full: str) -> contextlib.AbstractContextManager[None]:
        return posix.folder_lock(os.path.dirname(full), lambda: self._own_file(full, "lock"))

    def _write_over(self, full: str, data: bytes) -> os.stat_result:
        """Write beside, then rename over; the caller holds the folder's lock."""
        temporary = self._temporary(full)
        written = posix.write_new(temporary, data)
        try:
            # A reader in between finds the old file without a checksum, which it accepts.
            self._drop_checksum(full)
            os.replace(temporary, full)
        except BaseException:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(temporary)
            raise
        self._make_entry_durable(full)
        return written

    def _make_entry_durable(self, full: str) -> None:
        """Sync the folder; a failure leaves open whether the file outlives a crash."""
        try:
            posix.sync_folder(os.path.dirname(full))
        except OSError as error:
            raise UnavailableError(
                f"{full} is written, but the disk can't tell whether it is durable: {error.strerror}",
                path=full,
            ) from error

    def _drop_checksum(self, full: str) -> None:
        folder, name = os.path.split(full)
        with contextlib.suppress(FileNotFoundError):
            os.unlink(f"{folder}/.{name}.crc")

    def _drop_checksum_of_missing(self, full: str) -> None:
        if not os.path.lexists(full):
            with contextlib.suppress(NotADirectoryError):
                self._drop_checksum(full)

    def _temporary(self, full: str) -> str:
        return self._own_file(full, "put-" + _IDS.nonce())

    def _trash(self, path: str, full: str) -> str:
        """A name out of sight for a folder that goes; beside it where scratch would go with it."""
        name = "trash-" + _IDS.nonce()
        if f"{SCRATCH}/".startswith(f"{path}/"):
            return f"{os.path.dirname(full)}/{OUT_OF_SIGHT}{name}"
        return self._own_file(full, name)

    def _own_file(self, full: str, name: str) -> str:
        """A path for a file of ours: in scratch, or beside the other where there is no table yet."""
        if not os.path.isdir(f"{self._root}/{_TABLE_FOLDER}"):
            return f"{os.path.dirname(full)}/{OUT_OF_SIGHT}{name}"
        scratch = f"{self._root}/{SCRATCH}"
        # Level by level, so that a table that is being deleted is not made again.
        for folder in (os.path.dirname(scratch), scratch):
            with contextlib.suppress(FileExistsError):
                os.mkdir(folder)
        return f"{scratch}/{name}"

    def _sweep_scratch(self) -> None:
        """Remove what crashes left: trash at once, files once they are surely nobody's."""
        with contextlib.suppress(OSError), os.scandir(f"{self._root}/{SCRATCH}") as entries:
            for entry in entries:
                if entry.name.startswith("trash-"):
                    remove_tree(entry.path)
                elif entry.name.startswith("put-") and _age_ms(entry) > _ABANDONED_AFTER_MS:
                    os.unlink(entry.path)


def _make_one(full: str, make: Callable[[str], None]) -> None:
    try:
        make(full)
    except FileExistsError:
        if not os.path.isdir(full):
            raise


def _make_durably(full: str) -> None:
    os.mkdir(full)
    posix.sync_folder(os.path.dirname(full))


def _info(path: str, found: os.stat_result) -> FileInfo:
    return FileInfo(path=path, size=found.st_size, modified_ms=found.st_mtime_ns // 1_000_000)


def _age_ms(entry: os.DirEntry[str]) -> int:
    return _CLOCK.now_ms() - entry.stat().st_mtime_ns // 1_000_000


def _same_version(one: os.stat_result, other: os.stat_result) -> bool:
    return (one.st_ino, one.st_mtime_ns, one.st_size) == (other.st_ino, other.st_mtime_ns, other.st_size)


def _version(found: os.stat_result, data: bytes) -> str:
    content = hashlib.sha256(data).hexdigest()[:32]
    return f"{found.st_ino:x}-{found.st_mtime_ns:x}-{found.st_size:x}-{content}"
