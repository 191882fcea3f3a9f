"""Table services of the simulated world: plans that are scheduled, executed by one at a time, and over.

What a service would write does not matter to who writes beside it: that nobody changes the file groups of
a plan does, and that no two execute it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from dataclasses import dataclass, field, replace

from fault_injection.service_plans import plan_of
from fault_injection.simulation.scheduler import Actor
from fault_injection.simulation.sharing import ManyWriters
from sparkrobust.coordinator.locking import locked
from sparkrobust.coordinator.services import executing
from sparkrobust.coordinator.table import HudiTable
from sparkrobust.coordinator.times import next_time
from sparkrobust.core.conflicts import FileGroup, Work, work_of
from sparkrobust.core.instant import Action, Instant, State
from sparkrobust.core.names import instant_file
from sparkrobust.errors import ConflictError
from sparkrobust.storage.contract import AlreadyExistsError

_STEPS_OF_WORK = 5


@dataclass(eq=False)
class Services:
    """What is scheduled, and who executes what."""

    writers: ManyWriters
    groups: dict[str, FileGroup] = field(default_factory=dict)
    """Of each plan, by its instant."""
    at_work: list[tuple[Actor, str]] = field(default_factory=list)
    """Who executes which instant's plan, or died while at it."""
    is_alone: Callable[[str], None] = lambda plan: None
    """Asked when somebody begins to."""

    @property
    def by_name(self) -> dict[str, Callable[[], None]]:
        """What the actors of a story may be."""
        return {
            "clustering": self.service(Action.CLUSTERING),
            "removable clustering": self.service(Action.CLUSTERING, removable=True),
            "compaction": self.service(Action.COMPACTION),
            "executor": self.executor(),
        }

    def service(self, action: Action, *, removable: bool = False) -> Callable[[], None]:
        """Schedules a plan for one file group, if one is free, and executes it."""

        def run() -> None:
            table = self.writers.open()
            plan = self._scheduled(table, action, removable=removable)
            if plan is not None:
                self._execute(table, plan)

        return run

    def executor(self) -> Callable[[], None]:
        """Executes whatever plan it finds."""

        def run() -> None:
            table = self.writers.open()
            for plan in table.timeline.pending:
                if work_of(plan) not in (None, Work.INGESTION):
                    with contextlib.suppress(ConflictError):  # of another one, or to be rolled back
                        self._execute(table, plan)

        return run

    def _scheduled(self, table: HudiTable, action: Action, *, removable: bool) -> Instant | None:
        """Under the lock, with file groups that no other plan has."""
        with locked(table, f"scheduling of a {action.value}") as grip:
            table.reload()
            plans = [one for one in table.timeline.pending if work_of(one) not in (None, Work.INGESTION)]
            taken = {group for plan in plans for group in table.groups_in_plan(plan) or ()}
            free = [
                group for base in table.base_files() if (group := (base.partition, base.file_id)) not in taken
            ]
            if not free:
                return None
            time = next_time(table.clock, table.config, table.timeline.newest_time)
            plan = Instant(time=time, action=action, state=State.REQUESTED)
            group = self.writers.world.choices.among(free)
            table.storage.put_if_absent(instant_file(plan), plan_of(action, group, removable=removable))
            if not grip.is_held():  # it may have come too late for a write that others have decided
                table.storage.delete(instant_file(plan))
                return None
            self.groups[plan.time] = group
            return plan

    def _execute(self, table: HudiTable, plan: Instant) -> None:
        me = self.writers.world.running
        assert me is not None
        with executing(table, plan) as heartbeat:
            self.at_work.append((me, plan.time))
            self.is_alone(plan.time)
            with contextlib.suppress(AlreadyExistsError):  # of an earlier attempt
                table.storage.put_if_absent(instant_file(replace(plan, state=State.INFLIGHT)), b"")
            for _ in range(_STEPS_OF_WORK):
                self.writers.world.pause()
            with locked(table, f"completion of {plan.time}") as grip:
                heartbeat.refuse_if_lost()
                grip.refuse_if_lost()
                for state in (State.INFLIGHT, State.REQUESTED):
                    table.storage.delete(instant_file(replace(plan, state=state)))
        self.at_work.remove((me, plan.time))
