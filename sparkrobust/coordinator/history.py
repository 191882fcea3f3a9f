"""Completed writes that Hudi, which may keep the table beside us, has moved to the archived timeline.

Hudi takes an instant off the active timeline only once a manifest of the history has it, so who does not
see it there finds it here, if he looks in this order.  The newest manifest says which files count; a file
never changes, and goes away some time after it was merged with others into another one.  Then the newest
manifest is another one too, and the search goes on with that.

What can't be read is an error, whatever it may hold: to take a write for missing is to write it twice.
"""

from __future__ import annotations

from collections.abc import Callable, Set
from typing import TypeVar

from sparkrobust.coordinator.table import HudiTable
from sparkrobust.core.names import (
    HISTORY,
    HISTORY_VERSION,
    TIMELINE,
    WRITE_ID,
    HistoryFileName,
    history_manifest,
    is_inside,
    parse_history_manifest,
)
from sparkrobust.errors import CorruptTableError, RobustWriteError
from sparkrobust.formats.commit_metadata import CompletedWrite
from sparkrobust.formats.history import files_in_manifest, find_write, find_writes, parse_version
from sparkrobust.remembered import Remembered
from sparkrobust.storage.contract import ChangedError, NotFoundError, Storage

Found = TypeVar("Found")

UNREADABLE = "unreadable-history"
"""The kind of the error for a history that can't be read."""
_FOLDER_KEY = "hoodie.timeline.history.path"
_TRIES = 5
_PAUSE_SECONDS = 1.0

_searched: Remembered[tuple[str, str], frozenset[HistoryFileName]] = Remembered(64)
"""By table and write id, the files that don't have it: a write asks again, the last time under the lock."""


def find_archived(table: HudiTable, write_id: str) -> CompletedWrite | None:
    """The write of this id, if the history has it; to be asked when the active timeline does not have it.

    Raises
    ------
    CorruptTableError
        The history can't be read, also not when it is looked at again.
    """
    return _asked(
        table,
        lambda: _search(table, write_id),
        "whether an earlier run has committed this write",
        hint="mend the archived timeline; or, if you know that no earlier run has committed it, write "
        "without hoodie.write.robust.write.id",
    )


def archived_writes(table: HudiTable, after: str, times: Set[str]) -> list[CompletedWrite]:
    """What the history has of the writes that were requested after a time, or at one of some others.

    Raises
    ------
    CorruptTableError
        The history can't be read, also not when it is looked at again.
    """
    oldest = min((after, *times))

    def look() -> list[CompletedWrite]:
        folder, found = _folder(table), dict[str, CompletedWrite]()
        for file in _newest_files(table.storage, folder):
            if file.last >= oldest:
                path = f"{folder}/{file}"
                with table.storage.open(path) as source:
                    writes = find_writes(source, after, times, path=path)
                found |= {write.instant.time: write for write in writes}
        return list(found.values())

    hint = "mend the archived timeline; or write when no other writer is at it"
    return _asked(table, look, "what others have committed meanwhile", hint=hint)


def _asked(table: HudiTable, look: Callable[[], Found], what: str, *, hint: str) -> Found:
    """What a look at the history tells; again, as files of it come and go."""
    problem: RobustWriteError | None = None
    for number in range(_TRIES):
        if number:
            table.clock.sleep(_PAUSE_SECONDS)
        try:
            return look()
        except (CorruptTableError, NotFoundError, ChangedError) as error:
            problem = error
    assert problem is not None
    gone = isinstance(problem, NotFoundError)
    raise CorruptTableError(
        f"{what} can't be found out, since the archived timeline can't be read: {problem}"
        + (" (it is gone, though the history names it)" if gone else ""),
        kind=UNREADABLE,
        path=problem.path or HISTORY,
        hint=hint,
    ) from problem


def _search(table: HudiTable, write_id: str) -> CompletedWrite | None:
    folder, place = _folder(table), (table.storage.url, write_id)
    files = _newest_files(table.storage, folder)
    if not files:
        return None
    searched = (_searched.get(place) or frozenset()) & frozenset(files)
    for file in files:
        if file in searched:
            continue
        path = f"{folder}/{file}"
        with table.storage.open(path) as source:
            found = find_write(source, WRITE_ID, write_id, path=path)
        if found is not None:
            return found
        searched |= {file}
        _searched.keep(place, searched)
    return None


def _folder(table: HudiTable) -> str:
    name = table.config.values.get(_FOLDER_KEY)
    folder = f"{TIMELINE}/{name}" if name else HISTORY
    if not is_inside(folder):
        raise CorruptTableError(f"{_FOLDER_KEY} leads out of the table: {name!r:.200}", path=HISTORY)
    return folder


def _newest_files(storage: Storage, folder: str) -> list[HistoryFileName]:
    """The files that the newest manifest lists, newest first; none where nothing was archived ever.

    Files without any manifest are of an archiving that has not come to its end: what they hold is on the
    active timeline still.
    """
    names = frozenset(storage.names(folder))
    numbers = [number for name in names if (number := parse_history_manifest(name)) is not None]
    if not numbers and HISTORY_VERSION not in names:
        return []
    newest = _said_newest(storage, folder)
    if newest is None:
        # Hudi takes the file away before it writes it anew.
        newest = max(numbers, default=None)
    if newest is None:
        raise CorruptTableError(f"{folder}: there is a {HISTORY_VERSION}, and no manifest", path=folder)
    path = f"{folder}/{history_manifest(newest)}"
    return files_in_manifest(storage.read(path), path=path)


def _said_newest(storage: Storage, folder: str) -> int | None:
    try:
        return parse_version(storage.read(f"{folder}/{HISTORY_VERSION}"))
    except NotFoundError:
        return None
