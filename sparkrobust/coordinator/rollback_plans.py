"""The plans of rollbacks that are pending: what they are going to undo, whoever has made them."""

from __future__ import annotations

from dataclasses import replace

from sparkrobust.coordinator.table import HudiTable
from sparkrobust.core.instant import Action, Instant, State
from sparkrobust.core.names import instant_file
from sparkrobust.formats.rollback import RollbackPlan


def pending_targets(table: HudiTable) -> set[str]:
    """The instants that a pending rollback is to undo."""
    return set(pending_plans(table))


def pending_plans(table: HudiTable) -> dict[str, tuple[Instant, RollbackPlan]]:
    """The pending rollbacks, by what they are to undo."""
    rollbacks = [i for i in table.timeline.pending if i.action is Action.ROLLBACK]
    plans = [(rollback, plan) for rollback in rollbacks if (plan := plan_of(table, rollback)) is not None]
    return {plan.instant_to_rollback.commit_time: (rollback, plan) for rollback, plan in plans}


def plan_of(table: HudiTable, rollback: Instant) -> RollbackPlan | None:
    """What a rollback is to do; ``None`` if it has ended since the timeline was seen, or never got a plan."""
    path, data = instant_file(replace(rollback, state=State.REQUESTED)), table.requested(rollback)
    if data is None or is_without_plan(rollback, data):
        return None
    return RollbackPlan.from_bytes(data, path=path)


def is_without_plan(rollback: Instant, data: bytes | None) -> bool:
    """Whether its maker died between making the file and writing the plan, so that nothing came of it."""
    return data == b"" and rollback.state is State.REQUESTED
