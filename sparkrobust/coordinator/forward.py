"""Finishing a write whose COMMIT is decided: by its own driver, or by whoever finds it.

The decision says everything, so all who finish do the same things in the same order, and each thing
consumes its source: it happens once, whoever does it, and can't happen again later.  Before anything
is published comes a look, since a driver may have slept since it decided: the write may have been
finished, and cleaned away, or rolled back by a writer of Hudi's that knows nothing of decisions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import Enum

from sparkrobust.coordinator.control import Control
from sparkrobust.coordinator.leftovers import delete_unnamed, discard_staged
from sparkrobust.coordinator.overtaken import is_overtaken
from sparkrobust.coordinator.partitions import make_partitions
from sparkrobust.coordinator.stand_in import replace_properties, restore_properties, retire_old_partitions
from sparkrobust.coordinator.table import HudiTable
from sparkrobust.core.decision import Commit
from sparkrobust.core.instant import Action, State
from sparkrobust.core.names import ControlFolder, instant_file
from sparkrobust.core.written import StagedFile
from sparkrobust.errors import UnavailableError
from sparkrobust.formats.commit_metadata import ReplaceCommitMetadata
from sparkrobust.formats.rollback import RollbackMetadata
from sparkrobust.probe import Point, reached
from sparkrobust.storage.contract import NotFoundError

_LOOKERS = 16
_TRIES = 5
_PAUSE_SECONDS = 1.0


class Ending(Enum):
    """What became of a write whose COMMIT was decided."""

    DURABLE = "durable"
    GIVEN_UP = "given up"
    """A writer that goes by no decision rolled it back, or is about to; or has changed what it changes."""
    OUT_OF_SIGHT = "out of sight"
    """It is older than the active timeline, which so can't tell; nothing of it may be touched."""


def look(table: HudiTable, folder: ControlFolder, action: Action) -> Ending | None:
    """Whether a write has ended; ``None`` while it is inflight.

    The timeline is seen anew: who acts on a decision that another driver put can't know how old it is.
    """
    table.reload()
    found = table.timeline.find(folder.instant, action)
    if found is not None and not found.pending:
        return Ending.DURABLE
    if found is not None and found.state is State.INFLIGHT:
        return None
    if table.timeline.is_past(folder.instant):
        return Ending.GIVEN_UP if was_rolled_back(table, folder.instant) else Ending.OUT_OF_SIGHT
    return Ending.GIVEN_UP


def was_rolled_back(table: HudiTable, time: str) -> bool:
    """Whether a rollback on the active timeline says so of a write that the timeline shows no more."""
    for rollback in table.timeline.instants:
        if rollback.action is Action.ROLLBACK and not rollback.pending and rollback.time > time:
            path = instant_file(rollback)
            if time in RollbackMetadata.from_bytes(table.read(path), path=path).commits_rollback:
                return True
    return False


def _glance(table: HudiTable, folder: ControlFolder, commit: Commit) -> Ending | None:
    """The same by two names, where the decision is known to be the one that the write ends by."""
    done = commit.instant(folder)
    if table.storage.stat(instant_file(done)) is not None:
        return Ending.DURABLE
    if table.storage.stat(instant_file(replace(done, state=State.INFLIGHT, completion=None))) is not None:
        return None
    return look(table, folder, commit.action)


def roll_forward(table: HudiTable, control: Control, commit: Commit, *, first_hand: bool = False) -> Ending:
    """Finish the write; may be done again, and by several at once.

    Who is not its driver has the table's lock, and gives the write up if others have come in between.

    Parameters
    ----------
    first_hand
        We put this decision ourselves, just now, it was the first one, and this is our first try.
    """
    folder = control.folder
    ending = _glance(table, folder, commit) if first_hand else look(table, folder, commit.action)
    if ending is None and not first_hand and is_overtaken(table, control, commit):
        ending = _give_up(table, folder, commit)
    elif ending is None:
        if commit.properties is not None:
            replace_properties(table, commit.properties)
        make_partitions(table, commit.new_partitions, folder.instant)
        reached(Point.PARTITIONS_MADE, instant=folder.instant)
        ending = _publish(table, folder, commit, alone=first_hand)
    if ending is Ending.GIVEN_UP:
        _undo(table, commit)
    return ending


def rolled_forward(table: HudiTable, control: Control, commit: Commit, *, first_hand: bool) -> Ending:
    """The same, begun anew if the store does not answer, as nobody may be left in doubt by that."""
    for number in range(_TRIES - 1):
        try:
            return roll_forward(table, control, commit, first_hand=first_hand and not number)
        except UnavailableError:
            table.clock.sleep(_PAUSE_SECONDS)
    return roll_forward(table, control, commit)


def _publish(table: HudiTable, folder: ControlFolder, commit: Commit, *, alone: bool) -> Ending:
    try:
        table.storage.publish_all(tuple(file for file in commit.files if not file.in_place))
        _require_visible(table, [file for file in commit.files if file.in_place])
        reached(Point.DATA_PUBLISHED, instant=folder.instant)
        # Once more, as near to the commit as can be: for a writer that shares no lock with us, and
        # for a store whose publishers have to take turns.
        ending = table.storage.publish_last(
            commit.commit_file, lambda: _glance(table, folder, commit), alone=alone
        )
        if ending is None:
            reached(Point.COMMIT_PUBLISHED, instant=folder.instant)
        return ending or Ending.DURABLE
    except NotFoundError:
        # What is gone was published by another driver, or deleted by a foreign rollback.
        return look(table, folder, commit.action) or _give_up(table, folder, commit)


def _give_up(table: HudiTable, folder: ControlFolder, commit: Commit) -> Ending:
    """Nobody may complete what lacks a file, or comes too late: without its commit file none can."""
    table.storage.discard(commit.commit_file.token)
    return look(table, folder, commit.action) or Ending.GIVEN_UP


def _require_visible(table: HudiTable, files: Sequence[StagedFile]) -> None:
    """``NotFoundError`` unless what tasks have made visible is still there."""

    def require(file: StagedFile) -> None:
        if table.storage.stat(file.final_path) is None:
            raise NotFoundError(f"{file.final_path} is gone", path=file.final_path)

    table.hands.map(require, files, most=_LOOKERS)


def _undo(table: HudiTable, commit: Commit) -> None:
    """Take back what was done of a commit that a foreign writer has made impossible."""
    # First what is not published: another driver may be on its way to do that.
    discard_staged(table.storage, (*commit.files, commit.commit_file))
    for file in commit.files:
        table.storage.delete(file.final_path)
    if commit.properties is not None:
        restore_properties(table, commit.properties)


def tidy_up(table: HudiTable, control: Control, commit: Commit) -> None:
    """After the commit: partitions of a replaced table, markers, what lost attempts have staged."""
    if commit.properties is not None:
        done = table.timeline.find(control.folder.instant, commit.action)
        if done is not None and not done.pending:
            metadata = table.commit(done)
            assert isinstance(metadata, ReplaceCommitMetadata)
            replaced = set(metadata.partition_to_replace_file_ids)
            retire_old_partitions(table, commit.properties.before, replaced, commit.partitions)
    published = {file.final_path for file in commit.files}
    if any(file.in_place for file in commit.files):
        delete_unnamed(table.storage, control.folder.instant, published)
    control.remove(published)
