"""The small worlds: a write of one slot and one file, two attempts, and who takes its driver for dead."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fault_injection.exhaustive.explore import SmallRun
from fault_injection.exhaustive.lives import WAIT, Lives, Process, SmallWorld
from fault_injection.exhaustive.tables import S3, Disk, Tables
from fault_injection.simulation.actors import (
    Pipelines,
    Settings,
    StageFailed,
    Told,
    run_attempt,
)
from fault_injection.simulation.audit import AnyStorage, Auditor
from fault_injection.simulation.others import archiver, foreign_rollback, forgets, recoverer, rollbacker
from sparkrobust.coordinator.create import make_table
from sparkrobust.coordinator.table import HudiTable
from sparkrobust.coordinator.transaction import Transaction
from sparkrobust.core.names import PARTITION_METADATA
from sparkrobust.handles.plan import Attempt
from sparkrobust.options import parse

_OPTIONS = {"hoodie.table.name": "t", "hoodie.datasource.write.recordkey.field": "id"}
_PLAIN = Settings(most_slots=1, most_files=1, speculation=0.0, bulk=0.0)


class _Attempted(Pipelines):
    """A driver whose tasks are processes of the small world."""

    world: SmallWorld
    attempts_each = 2

    def _stage(self, told: Told, transaction: Transaction, slots: int) -> None:
        plan = self._plan(told, transaction, slots)
        driver = self.world.mine.process
        for number in range(1, self.attempts_each + 1):
            attempt = Attempt.of(0, stage=0, ids=self.world.ids)
            self.world.begin(
                Process(
                    name=f"{driver.name}.{number}",
                    run=lambda attempt=attempt: run_attempt(self, plan, attempt),  # type: ignore[misc]
                    number=driver.number * 10 + number,
                    hour=driver.hour,
                )
            )
        if self.world.call(WAIT, "for the stage", lambda: "", changes=False) == "failed":
            raise StageFailed("task 0 failed")


class _AtOnce(Pipelines):
    """A driver that does its task itself."""

    world: SmallWorld

    def _stage(self, told: Told, transaction: Transaction, slots: int) -> None:
        plan = self._plan(told, transaction, slots)
        for slot in range(slots):
            run_attempt(self, plan, Attempt.of(slot, stage=0, ids=self.world.ids))


class _Neighbour(_AtOnce):
    """A driver that knows that the others are alive."""

    def _takes_over(self, table: HudiTable) -> None:
        """Nothing."""


@dataclass(frozen=True, kw_only=True)
class Small:
    """A small world, as it is described."""

    store: str
    attempts: int = 1
    others: tuple[str, ...] = ()
    """Who else is there: keys of the functions below."""
    staged: bool = False
    """The tasks have ended when the others begin."""
    from_the_start: bool = False
    """The driver's first steps are interleaved with the others', too."""
    gives_up: bool = False
    """The write stage may fail, whatever its tasks do."""
    new_partition: bool = False

    def make(self) -> SmallRun:
        """Ready to be explored."""
        world = SmallWorld()
        tables = Tables(Disk(world) if self.store == "disk" else S3(world))
        storage = tables.storage
        make_table(storage, parse(_OPTIONS), world.clock, world.ids)
        if not self.new_partition:
            storage.make_folder("p0")
            storage.put(f"p0/{PARTITION_METADATA}", b"")
        tables.auditor.look()
        functions = self._functions(world, tables.auditor, storage)
        processes = [
            # Who begins a write again has the same clock.
            Process(name=name, run=functions[name], number=number, hour=1 if name == "again" else number)
            for number, name in enumerate(("writer", *self.others), 1)
        ]
        neighbours = [name for name in self.others if name == "neighbour"]
        if neighbours:
            # A first commit, so that the timeline does not begin with the neighbour's.
            processes.append(Process(name="before", run=functions["before"], number=80, hour=0))
        tasks = [f"writer.{n}" for n in range(1, self.attempts + 1)]
        again = [f"again.{n}" for n in range(1, self.attempts + 1)] if "again" in self.others else []
        first = [] if self.from_the_start else ["writer", *(tasks if self.staged else [])]
        freezes = {"hudi": ("writer", "recover", "rollback"), "again": ("writer",)}
        return SmallRun(
            tables=tables,
            lives=Lives(world),
            processes=processes,
            begun_later=(*tasks, *again),
            alone_first=(*(["before"] if neighbours else []), *first, *neighbours),
            last=tuple(
                Process(name=f"last {n}", run=functions[f"last {n}"], number=90 + n, hour=90 + n)
                for n in (1, 2)
            ),
            gives_up=self.gives_up,
            freezes={
                one: tuple(name for name in others if name in ("writer", *self.others))
                for one, others in freezes.items()
                if one in self.others
            },
        )

    def _functions(
        self, world: SmallWorld, auditor: Auditor, storage: AnyStorage
    ) -> dict[str, Callable[[], object]]:
        def users(kind: type[Pipelines]) -> Pipelines:
            made = kind(world, lambda: storage, _PLAIN)
            made.is_closed = lambda folder: world.ask(f"about {folder}", lambda: folder in auditor.closed)
            return made

        def announce(time: str) -> None:
            world.ask(f"archives {time}", lambda: auditor.archived.add(time), changes=True)

        def unmarks(time: str) -> None:
            world.ask(f"unmarks {time}", lambda: auditor.unmarked.add(time), changes=True)

        def again() -> Told:
            rollbacker(alone)()
            forgets(alone)()
            return spread.write("again")()

        spread, alone = users(_Attempted), users(_AtOnce)
        assert isinstance(spread, _Attempted)
        spread.attempts_each = self.attempts
        return {
            "writer": spread.write("writer"),
            "neighbour": users(_Neighbour).write("neighbour"),
            "before": alone.write("before"),
            "recover": recoverer(alone),
            "rollback": rollbacker(alone),
            "archiver": archiver(alone, own=True, announce=announce),
            "foreign archiver": archiver(alone, own=False, announce=announce),
            "hudi": foreign_rollback(alone, announce=unmarks),
            "again": again,
            "last 1": alone.write("last 1"),
            "last 2": alone.write("last 2"),
        }


D, E, R = "writer", "recover", "rollback"
_QUICK: dict[str, dict[str, Any]] = {
    "a write": {"attempts": 2, "new_partition": True},
    "a write that is given up": {"attempts": 2, "gives_up": True},
    "its rollback": {"others": (R,)},
    "its recovery": {"others": (E,)},
    "its rollback, given up": {"others": (R,), "gives_up": True, "staged": True},
    "archived by us": {"others": (E, "archiver", "neighbour"), "staged": True},
    "archived by Hudi": {"others": (E, "foreign archiver", "neighbour"), "staged": True},
    "rolled back by Hudi": {"attempts": 2, "others": ("hudi",)},
    "begun again": {"others": ("again",)},
}
_BIG: dict[str, dict[str, Any]] = {
    "its rollback and its recovery, staged": {"others": (E, R), "staged": True},
    "two attempts, rollback": {"attempts": 2, "others": (R,)},
    "two attempts, begun again": {"attempts": 2, "others": ("again",)},
    "two attempts, recovery": {"attempts": 2, "others": (E,)},
    "rollback from the first step on": {"others": (R,), "from_the_start": True},
    "recovery and rollback": {"others": (E, R)},
    "two attempts, recovery and rollback": {"attempts": 2, "others": (E, R)},
    "recovery, rollback, archived by us": {"others": (E, R, "archiver", "neighbour"), "staged": True},
    "recovery, rollback, archived by Hudi": {
        "others": (E, R, "foreign archiver", "neighbour"),
        "staged": True,
    },
}


_LONG_ON_A_BUCKET = ("its recovery", "its rollback, given up", "archived by us", "archived by Hudi")


def _on_stores(described: dict[str, dict[str, Any]]) -> dict[str, Small]:
    return {
        f"{name}, on a {store}": Small(store=store, **how)
        for name, how in described.items()
        for store in ("disk", "bucket")
    }


SMALL = _on_stores({**_QUICK, **_BIG})
QUICK = {
    name: SMALL[name]
    for name in _on_stores(_QUICK)
    if name not in _on_stores({long: {} for long in _LONG_ON_A_BUCKET}) or name.endswith("disk")
}
"""Small enough to be gone through in each run of the tests."""
OF_THE_MODEL = {
    "begun again, on a disk": 1_835,
    "begun again, on a bucket": 3_315,
    "two attempts, begun again, on a disk": 1_835,
    "two attempts, begun again, on a bucket": 3_315,
    "rolled back by Hudi, on a disk": 1_366,
    "rolled back by Hudi, on a bucket": 1_488,
    "two attempts, recovery and rollback, on a disk": 30_299,
    "two attempts, recovery and rollback, on a bucket": 38_639,
    "recovery, rollback, archived by us, on a disk": 38_134,
    "recovery, rollback, archived by us, on a bucket": 50_787,
    "recovery, rollback, archived by Hudi, on a disk": 49_102,
    "recovery, rollback, archived by Hudi, on a bucket": 62_669,
}
"""The states of the design's own model, with a step for each request: fewer would have left something out."""
