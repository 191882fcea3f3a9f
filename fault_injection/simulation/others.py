"""Who else is at the table: who tidies it up, who reads it, and writers of Hudi's."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import pairwise
from typing import Any, Protocol

from fault_injection.histories import Archiver, take_off_timeline
from fault_injection.simulation.actors import Pipelines
from sparkrobust.coordinator.leftovers import begin_markers, control_folders
from sparkrobust.coordinator.locking import locked
from sparkrobust.coordinator.recovery import recover
from sparkrobust.coordinator.rollback import roll_back_failed_writes
from sparkrobust.coordinator.table import HudiTable
from sparkrobust.coordinator.times import next_time
from sparkrobust.core.instant import WRITES, Action, Instant, State
from sparkrobust.core.names import BaseFileName, instant_file, joined, marker_folder
from sparkrobust.formats.commit_metadata import ReplaceCommitMetadata


def rollbacker(pipelines: Pipelines) -> Callable[[], Any]:
    """``sr.Table(path).rollback_failed_writes()``."""
    return lambda: roll_back_failed_writes(pipelines.open())


def recoverer(pipelines: Pipelines) -> Callable[[], Any]:
    """``sr.Table(path).recover()``."""
    return lambda: recover(pipelines.open(), even_alive=pipelines.settings.even_alive)


# -- who reads -------------------------------------------------------------------------------------------


class Judge(Protocol):
    """Knows what a reader has to see."""

    def snapshot(self) -> object:
        """What there is to be seen by who lists the timeline now."""

    def has_seen(self, snapshot: Any, files: Mapping[str, bytes]) -> None:
        """That is what he found: of each file its bytes."""


def reader(pipelines: Pipelines, judge: Judge) -> Callable[[], None]:
    """Reads the latest snapshot: the timeline at one moment, then, file by file, what it says is there."""

    def read() -> None:
        table = pipelines.open()
        # The timeline was listed last of all, and nobody had a turn since then.
        snapshot = judge.snapshot()
        judge.has_seen(snapshot, {base.path: table.read(base.path) for base in table.base_files()})

    return read


# -- who tidies up ---------------------------------------------------------------------------------------


def cleaner(pipelines: Pipelines, announce: Callable[[str], None]) -> Callable[[], None]:
    """Deletes every file that the latest snapshot does not need, in the two steps of Hudi's: plan, then act.

    It keeps nothing for those who read what was the latest snapshot a moment ago.
    """

    def clean() -> None:
        table = pipelines.open()
        old = _superseded(table)
        if not old:
            return
        with locked(table, "cleaning"):
            table.reload()
            time = next_time(table.clock, table.config, table.timeline.newest_time)
            plan = Instant(time=time, action=Action.CLEAN, state=State.REQUESTED)
            table.storage.put_if_absent(instant_file(plan), b"")
        table.storage.put_if_absent(instant_file(replace(plan, state=State.INFLIGHT)), b"")
        for path in old:
            announce(path)
            table.storage.delete(path)
        with locked(table, "cleaning"):
            table.reload()
            completion = next_time(table.clock, table.config, table.timeline.newest_time)
            done = replace(plan, state=State.COMPLETED, completion=completion)
            table.storage.put_if_absent(instant_file(done), b"")

    return clean


def _superseded(table: HudiTable) -> list[str]:
    """Committed files that newer ones of their groups, or an overwrite, have put in the shade."""
    listing = table.listing()
    needed = {base.path for base in table.latest(listing, whole=True)}
    found = []
    for partition, files in listing.items():
        for text, _ in files:
            name = BaseFileName.parse(text)
            path = joined(partition, text)
            if name and table.timeline.is_committed(name.instant) and path not in needed:
                found.append(path)
    return found


def archiver(
    pipelines: Pipelines, *, own: bool, announce: Callable[[str], None], history: Archiver | None = None
) -> Callable[[], None]:
    """Takes completed writes off the active timeline but for the newest one, the oldest first.

    Parameters
    ----------
    own
        Ours never passes a write that still has a control folder; Hudi's knows nothing of them.
    history
        Where it keeps them.  It then goes as far as archivers may, since readers go by the timeline: of the
        writes before a pending one the newest stays, and so does one that has replaced files which are still
        there.  Without, it is worse than any.
    """

    def archive() -> None:
        storage = pipelines.storage()
        table = pipelines.open()
        pending = min((one.time for one in table.timeline.pending if one.action in WRITES), default="~")
        for oldest, newer in pairwise(table.timeline.completed_writes):
            if own and any(folder.instant == oldest.time for folder in control_folders(storage)):
                return
            if history is not None and (pending < newer.time or _still_there(table, oldest)):
                return
            announce(oldest.time)
            if history is not None:
                history.archive(oldest)
            else:
                take_off_timeline(storage, oldest)

    return archive


def _still_there(table: HudiTable, write: Instant) -> bool:
    """Whether some of what a write has replaced can still be found."""
    metadata = table.commit(write)
    if not isinstance(metadata, ReplaceCommitMetadata):
        return False
    replaced = metadata.partition_to_replace_file_ids
    names = map(BaseFileName.parse, table.names(replaced))
    there = {name.file_id for name in names if name}
    return any(not there.isdisjoint(ids) for ids in replaced.values())


def forgets(pipelines: Pipelines) -> Callable[[], None]:
    """The timeline forgets what was rolled back, as an archiver would make it; times may come again."""

    def forget() -> None:
        storage = pipelines.storage()
        for instant in pipelines.open().timeline.instants:
            if instant.action is Action.ROLLBACK and not instant.pending:
                take_off_timeline(storage, instant)

    return forget


def foreign_rollback(pipelines: Pipelines, announce: Callable[[str], object]) -> Callable[[], None]:
    """A writer of Hudi's, which takes every pending write for dead, and knows begin markers alone."""

    def roll_back() -> None:
        storage = pipelines.storage()
        table = pipelines.open()
        for instant in [one for one in table.timeline.pending if one.action in WRITES]:
            for path, _ in list(begin_markers(storage, instant.time)):
                storage.delete(path)
            for state in (State.INFLIGHT, State.REQUESTED):
                storage.delete(instant_file(replace(instant, state=state)))
            announce(instant.time)
            storage.delete_tree(marker_folder(instant.time))

    return roll_back
