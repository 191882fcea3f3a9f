"""What is done under the table's lock, and what has to be done first by who gets it.

A lock can be lost while its holder sleeps: it expires, its session ends, somebody deletes its file.  Who
gets it then can't know, and may not be told even whose it was.  So who is about to commit leaves a mark;
whoever has the lock, and finds one of another, ends that write first by the one object that decides:
``ABORT`` is put, or the write is finished if ``COMMIT`` stands.  A holder that wakes up finds it so.

And whoever commits first finishes the writes of others that were decided and not finished, since what they
are going to change it has to know.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress

from sparkrobust.coordinator.control import Control
from sparkrobust.coordinator.forward import roll_forward
from sparkrobust.coordinator.leftovers import committing, control_folders
from sparkrobust.coordinator.table import HudiTable
from sparkrobust.core.decision import Commit
from sparkrobust.core.names import ControlFolder
from sparkrobust.errors import FencedError
from sparkrobust.storage.locks import Grip, Waiting


@contextmanager
def locked(
    table: HudiTable, owner: str, *, of: ControlFolder | None = None, waiting: Waiting = nullcontext
) -> Iterator[Grip]:
    """Hold the table's lock in the block.

    Parameters
    ----------
    owner
        What the lock is told.
    of
        The write for which it is taken, if it is for one.
    waiting
        What is around each wait for it.

    Raises
    ------
    LockError
        Another one has it.
    """
    coordination = table.coordination
    lock = coordination.lock
    with lock.holding(owner, seconds=coordination.lock_seconds, waiting=waiting) as grip:
        taken = table.clock.elapsed()
        if lock.shared:
            _fence(table, of)
        yield grip
        if lock.shared:
            # A time that was taken in here is over on every host's clock before another is taken.
            left = coordination.skew_ms / 1000 - (table.clock.elapsed() - taken)
            if left > 0:
                table.clock.sleep(left)


def _fence(table: HudiTable, mine: ControlFolder | None) -> None:
    """End the writes of those who are about to commit, and have lost the lock that this driver has."""
    for folder in committing(table.storage):
        if folder == mine:
            continue
        control = Control(table, folder)
        with suppress(FencedError):  # that write has ended, and was cleaned away
            decided = control.give_up("it lost the table's lock")
            if isinstance(decided, Commit):
                roll_forward(table, control, decided)
        control.remove_committing()


def finish_undone(table: HudiTable, mine: ControlFolder) -> None:
    """Finish the writes of others whose commit is decided; to be called under the lock."""
    for folder in control_folders(table.storage):
        if folder == mine:
            continue
        control = Control(table, folder)
        decided = control.decision()
        if isinstance(decided, Commit):
            roll_forward(table, control, decided)
