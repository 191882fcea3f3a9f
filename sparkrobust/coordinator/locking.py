"""What is done under the table's lock, and what has to be done first by who gets it.

Whoever takes a lock that had expired can't know whether its last holder only sleeps.  So that holder's
write is ended first, by the one object that decides: ``ABORT`` is put, or the write is finished if
``COMMIT`` stands.  And whoever commits first finishes the writes of others that were decided and
not finished, since what they are going to change it has to know.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress

from sparkrobust.coordinator.control import Control
from sparkrobust.coordinator.forward import roll_forward
from sparkrobust.coordinator.leftovers import control_folders
from sparkrobust.coordinator.table import HudiTable
from sparkrobust.core.decision import Commit
from sparkrobust.core.names import ControlFolder
from sparkrobust.errors import FencedError, RobustWriteError
from sparkrobust.storage.locks import Grip


@contextmanager
def locked(table: HudiTable, owner: str) -> Iterator[Grip]:
    """Hold the table's lock in the block.

    Raises
    ------
    LockError
        Another one has it.
    """
    coordination = table.coordination
    grip = coordination.lock.acquire(owner, seconds=coordination.lock_seconds)
    taken = table.clock.elapsed()
    try:
        if grip.taken_from:
            _fence(table, grip.taken_from)
        yield grip
        if coordination.lock.shared:
            # A time that was taken in here is over on every host's clock before another is taken.
            left = coordination.skew_ms / 1000 - (table.clock.elapsed() - taken)
            if left > 0:
                table.clock.sleep(left)
    finally:
        with suppress(RobustWriteError):  # it expires, or its file is named to who waits for it
            grip.release()


def _fence(table: HudiTable, owner: str) -> None:
    nonce = named.nonce if (named := ControlFolder.parse(owner)) else None
    for folder in control_folders(table.storage):
        if folder.nonce != nonce:
            continue
        control = Control(table, folder)
        with suppress(FencedError):  # that write has ended, and was cleaned away
            decided = control.give_up("the lock that it held had expired")
            if isinstance(decided, Commit):
                roll_forward(table, control, decided)


def finish_undone(table: HudiTable, mine: ControlFolder) -> None:
    """Finish the writes of others whose commit is decided; to be called under the lock."""
    for folder in control_folders(table.storage):
        if folder == mine:
            continue
        control = Control(table, folder)
        decided = control.decision()
        if isinstance(decided, Commit):
            roll_forward(table, control, decided)
