"""Executing the plan of a table service, by nobody twice at a time (RFC-79)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from sparkrobust.coordinator.conflicts import refuse_while_restoring
from sparkrobust.coordinator.heartbeat import Heartbeat, seconds_since
from sparkrobust.coordinator.locking import locked
from sparkrobust.coordinator.rollback_plans import pending_targets
from sparkrobust.coordinator.table import HudiTable
from sparkrobust.core.instant import Instant, State
from sparkrobust.core.names import REMOVABLE, heartbeat_file
from sparkrobust.errors import CommitOutcome, ConflictError


@contextmanager
def executing(table: HudiTable, plan: Instant) -> Iterator[Heartbeat]:
    """Hold a plan in the block, which rolls an earlier attempt back and executes it.

    The steps are RFC-79's, by their numbers; the first is the caller's, who has found the plan.

    Raises
    ------
    ConflictError
        Somebody else executes it, or it is not to be executed any more; or the table is being restored.
    """
    heartbeat, mine = Heartbeat(table, plan.time), False
    try:
        with locked(table, f"execution of {plan.time}") as grip:  # 2, and 6 where the block ends
            table.reload()
            refuse_while_restoring(table)
            _refuse_if_alive(table, plan)  # 3
            _refuse_if_spent(table, plan)  # 4
            heartbeat.start()  # 5
            grip.refuse_if_lost()  # else somebody may have looked for it before it was there
            mine = True
        yield heartbeat  # 7
    finally:
        heartbeat.stop()  # 8
        if mine:  # else the file may be of who executes it
            table.storage.delete(heartbeat_file(plan.time))


def _refuse_if_alive(table: HudiTable, plan: Instant) -> None:
    age = seconds_since(table, plan.time)
    if age is not None:
        raise ConflictError(
            f"{plan} is being executed: its heartbeat is {age:.0f} s old",
            instant=plan.time,
            path=table.storage.url,
            outcome=CommitOutcome.RETRYABLE,
            hint="wait until it is completed, or until its heartbeat has expired",
        )


def _refuse_if_spent(table: HudiTable, plan: Instant) -> None:
    now = table.timeline.find(plan.time, plan.action)
    if now is None or not now.pending:
        raise ConflictError(
            f"{plan} is not pending any more",
            instant=plan.time,
            path=table.storage.url,
            hint="another writer has executed it, or rolled it back",
        )
    if table.plan_says(now, REMOVABLE) != "true":
        return
    begun = now.state is State.INFLIGHT
    if begun or plan.time in pending_targets(table):
        raise ConflictError(
            f"{plan} is removable and {'was executed once' if begun else 'is being rolled back'}: "
            "it can't be executed again",
            instant=plan.time,
            path=table.storage.url,
            hint="the next writer that rolls failed writes back removes it; schedule another one",
        )
