"""What writes leave besides their files: begin markers and control folders."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterable, Iterator, Set

from sparkrobust.core.instant import is_instant_time
from sparkrobust.core.names import (
    COMMITTING,
    HEARTBEATS,
    MARKER_LIST,
    MARKER_LISTS_SAY,
    ROBUST,
    TEMP,
    BaseFileName,
    ControlFolder,
    MarkerType,
    marker_folder,
    parse_begin_marker,
)
from sparkrobust.core.written import StagedFile, uploads
from sparkrobust.errors import CorruptTableError
from sparkrobust.storage.contract import NotFoundError, Storage


def begin_markers(storage: Storage, instant: str) -> Iterator[tuple[str, MarkerType]]:
    """The data files that a write marked, in either of Hudi's two ways of marking."""
    folder = marker_folder(instant)
    files = [info.path.removeprefix(f"{folder}/") for info in storage.walk(folder)]
    names = files
    if MARKER_LISTS_SAY in files:
        # As Hudi's timeline server writes them: marks stand as lines in a few files.  Ours that no line
        # can hold stand beside them, and no list has the name of a mark.
        lists = [name for name in files if _is_list(name)]
        names = files + [line for name in lists for line in _text(storage, f"{folder}/{name}").split("\n")]
    for name in names:
        mark = parse_begin_marker(name)
        if mark is not None:
            yield mark


def _is_list(name: str) -> bool:
    return name.startswith(MARKER_LIST) and name != MARKER_LISTS_SAY and "/" not in name


def attempts_besides(storage: Storage, instant: str, known: Set[str]) -> int:
    """How many attempts have begun a file of a write, besides those with these tokens."""
    names = (BaseFileName.parse(path.rpartition("/")[2]) for path, _ in begin_markers(storage, instant))
    return len({name.write_token for name in names if name} - known)


def _text(storage: Storage, path: str) -> str:
    try:
        return storage.read(path).decode()
    except UnicodeDecodeError as error:
        raise CorruptTableError(f"{path}: expected text, found other bytes ({error})", path=path) from error


def control_folders(storage: Storage) -> list[ControlFolder]:
    """The control folders that lie in the table."""
    return ours(storage)[0]


def ours(storage: Storage) -> tuple[list[ControlFolder], list[str]]:
    """The control folders, and the files beside them, which are of no more use than a moment."""
    files, folders = storage.list(ROBUST)
    controls = [found for path in folders if (found := ControlFolder.parse(path)) is not None]
    return controls, [info.path for info in files]


def committing(storage: Storage) -> list[ControlFolder]:
    """The writes that are about to be committed, by who has the table's lock, or had it."""
    names = storage.names(COMMITTING)
    return [found for name in names if (found := ControlFolder.parse(name)) is not None]


def marked_instants(storage: Storage) -> list[str]:
    """The instants that have a folder of begin markers."""
    _, folders = storage.list(TEMP)
    return [name for path in folders if is_instant_time(name := path.rpartition("/")[2])]


def heartbeats(storage: Storage) -> list[str]:
    """The instants that have a heartbeat."""
    return [name for name in storage.names(HEARTBEATS) if is_instant_time(name)]


def delete_unnamed(storage: Storage, instant: str, named: Collection[str]) -> None:
    """Delete the data files of a write that were marked, and that it does not consist of."""
    for path, _ in list(begin_markers(storage, instant)):
        if path not in named:
            storage.delete(path)


def discard_staged(storage: Storage, files: Iterable[StagedFile]) -> None:
    """Throw away what is staged of these files, but not what has its final name."""
    for file in files:
        if not file.in_place:
            storage.discard(file.token)


def discard_uploads(storage: Storage, instant: str, published: Collection[str] = ()) -> list[str]:
    """Throw away the uploads that begin markers tell of; the markers, which stay.

    No store need list uploads by a prefix.
    """
    if not storage.staging.needs_its_token:
        return []
    folder = marker_folder(instant)
    seen = [info.path for info in storage.walk(folder)]
    for path in seen:
        mark = parse_begin_marker(path.removeprefix(f"{folder}/"))
        if mark is not None and mark[0] not in published:
            with contextlib.suppress(NotFoundError):
                token = _text(storage, path)
                if token and not uploads(token, mark[0]):
                    raise CorruptTableError(
                        f"{path}: expected the upload of {mark[0]}, found {token[:200]!r}",
                        path=path,
                        instant=instant,
                    )
                if token:
                    storage.discard(token)
    return seen


def remove_markers(storage: Storage, instant: str, published: Collection[str] = ()) -> None:
    """Remove a write's begin markers, and the uploads that they tell of but for those that are published."""
    seen = discard_uploads(storage, instant, published)
    if storage.staging.needs_its_token:
        # Only those: one that a task puts meanwhile tells of an upload, too, and goes with the next write.
        storage.delete_all(seen)
    else:
        storage.delete_tree(marker_folder(instant))
