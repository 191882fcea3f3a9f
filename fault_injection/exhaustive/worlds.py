"""The small worlds: a write of one slot and one file, two attempts, and who takes its driver for dead."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from fault_injection.exhaustive.explore import SmallRun
from fault_injection.exhaustive.lives import WAIT, Lives, Process, SmallWorld
from fault_injection.exhaustive.tables import S3, Disk, Tables
from fault_injection.simulation.actors import (
    Pipelines,
    Settings,
    StageFailed,
    Told,
    archiver,
    foreign_rollback,
    recoverer,
    rollbacker,
    run_attempt,
)
from sparkrobust.coordinator.create import make_table
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


@dataclass(frozen=True, kw_only=True)
class Small:
    """A small world, as it is described."""

    store: str
    attempts: int = 2
    others: tuple[str, ...] = ()
    """``recover``, ``rollback``, ``archiver``, ``foreign archiver``, ``hudi``."""
    from_the_start: bool = False
    """The driver's first steps are interleaved with the others', too."""
    gives_up: bool = False
    new_partition: bool = False

    def make(self) -> SmallRun:
        """Ready to be explored."""
        world = SmallWorld()
        tables = Tables(Disk(world) if self.store == "disk" else S3(world))
        auditor, storage = tables.auditor, tables.storage
        make_table(storage, parse(_OPTIONS), world.clock, world.ids)
        if not self.new_partition:
            storage.make_folder("p0")
            storage.put(f"p0/{PARTITION_METADATA}", b"")
        auditor.look()
        pipelines, alone = (kind(world, lambda: storage, _PLAIN) for kind in (_Attempted, _AtOnce))
        assert isinstance(pipelines, _Attempted)
        pipelines.attempts_each = self.attempts
        for one in (pipelines, alone):
            one.is_closed = lambda folder: world.ask(f"about {folder}", lambda: folder in auditor.closed)

        def announce(time: str) -> None:
            world.ask(f"archives {time}", lambda: auditor.archived.add(time), changes=True)

        functions: dict[str, Callable[[], object]] = {
            "writer": pipelines.write("writer"),
            "recover": recoverer(alone),
            "rollback": rollbacker(alone),
            "archiver": archiver(alone, own=True, announce=announce),
            "foreign archiver": archiver(alone, own=False, announce=announce),
            "hudi": foreign_rollback(alone),
        }
        processes = [
            Process(name=name, run=functions[name], number=number, hour=number)
            for number, name in enumerate(("writer", *self.others), 1)
        ]
        last = tuple(
            Process(name=f"last {n}", run=alone.write(f"last {n}"), number=90 + n, hour=90 + n) for n in (1, 2)
        )
        return SmallRun(
            tables=tables,
            lives=Lives(world),
            processes=processes,
            begun_later=tuple(f"writer.{n}" for n in range(1, self.attempts + 1)),
            alone_first=() if self.from_the_start else ("writer",),
            last=last,
            gives_up=self.gives_up,
            freezes={"hudi": ("writer", "recover", "rollback")} if "hudi" in self.others else {},
        )


SMALL: dict[str, Small] = {
    f"{name} on a {store}": Small(store=store, **how)  # type: ignore[arg-type]
    for store in ("disk", "bucket")
    for name, how in {
        "D+R, one attempt": {"attempts": 1, "others": ("rollback",)},
        "D+R": {"others": ("rollback",)},
        "D+E": {"others": ("recover",)},
        "D+E, one attempt": {"attempts": 1, "others": ("recover",)},
        "D+E+R, one attempt": {"attempts": 1, "others": ("recover", "rollback")},
        "D+E+R": {"others": ("recover", "rollback")},
    }.items()
}
