"""Whether others have come between a write's decision and its end: Hudi's writers, who know of no decision.

Our own finish what is decided before they commit, and plan no rollback of it.  But the lock of a driver that
died, or could not reach the store any more, becomes free.  Then a writer of Hudi's finds a pending write,
which it is not held against, and commits; or it plans to roll it back.  To finish the write all the same
would make a second version of a file group from the same one, or what is about to be taken away again.
Its caller knows at most that nobody can tell what became of it, so it may be given up.
"""

from __future__ import annotations

from sparkrobust.coordinator.conflicts import Plan, conflicts_of
from sparkrobust.coordinator.control import Control
from sparkrobust.coordinator.planned import with_archived
from sparkrobust.coordinator.redo import made_from
from sparkrobust.coordinator.rollback_plans import pending_targets
from sparkrobust.coordinator.table import HudiTable
from sparkrobust.core.decision import Commit
from sparkrobust.core.instant import InstantTime
from sparkrobust.errors import ConflictError, CorruptTableError


def is_taken_away(table: HudiTable, time: InstantTime, inflight: str) -> bool:
    """Whether another writer has rolled back a write that was just completed, or is about to.

    Parameters
    ----------
    inflight
        The path of its inflight file, which stays for as long as nobody does.
    """
    if not table.coordination.lock.shared:
        return table.storage.stat(inflight) is None
    # Whoever plans to has the lock, which the write's driver may have lost since it decided.
    table.reload()
    return not table.shows(inflight) or time in pending_targets(table)


def is_overtaken(table: HudiTable, control: Control, commit: Commit) -> bool:
    """Whether a write that is decided must not be finished; to be called under the lock, after a reload.

    It is held against the same as when it was decided, which was not in its way then and so is not now, and
    against what came since.  Where nobody can tell any more it counts as overtaken.
    """
    if control.folder.instant in pending_targets(table):
        return True
    try:
        gate = control.gate()
        if gate is None:
            return False  # it has ended by now, as who wants to publish it finds
        again = control.completions(tuple(gate.superseded.values()))
        plan = Plan(
            folder=control.folder,
            groups=None if gate.terms.replaces_table else commit.groups,
            begun=gate.begun,
            made_from=made_from(again.values(), gate.superseded),
        )
        return bool(conflicts_of(table, with_archived(table, plan)))
    except (ConflictError, CorruptTableError):
        return True
