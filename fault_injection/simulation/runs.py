"""One run of the simulated world from one integer: everything goes wrong, then an end in peace."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import random
from dataclasses import dataclass, field

from fault_injection.simulation.actors import (
    Pipelines,
    Settings,
    Told,
    archiver,
    foreign_rollback,
    recoverer,
    rollbacker,
)
from fault_injection.simulation.audit import AnyStorage, Auditor, Violation
from fault_injection.simulation.scheduler import Choices, Fault, Rates, Stuck, World
from fault_injection.simulation.stores import Bucket, SimulatedBucket, SimulatedDisk
from sparkrobust.coordinator.create import make_table
from sparkrobust.errors import RobustWriteError
from sparkrobust.options import parse
from sparkrobust.storage.memory import MemoryStorage

_OPTIONS = {"hoodie.table.name": "t", "hoodie.datasource.write.recordkey.field": "id"}
_worlds = itertools.count()
_SLEEPY = (
    *(".commit", "/decision", "/finalize", "/cm/", "/gate", "inflight", "publish", "complete", "seal"),
    *("delete_tree .hoodie/.temp", "walk .hoodie/.temp", "put_if_absent .hoodie/.temp", "stage", "upload"),
)
_STEPS_OF_CHAOS = 1500
_STEPS_TO_END = 4000


@dataclass(kw_only=True)
class Report:
    """What became of a run."""

    seed: int
    store: str
    violation: str | None = None
    steps: int = 0
    told: list[Told] = field(default_factory=list)
    injected: dict[Fault, int] = field(default_factory=dict)
    log: list[str] = field(default_factory=list)

    @property
    def digest(self) -> str:
        """Equal for equal runs."""
        return hashlib.sha256("\n".join(self.log).encode()).hexdigest()[:16]


def rates_of(choices: random.Random) -> Rates:
    """How bad this world is: mostly a few faults, sometimes none of a kind, sometimes many."""
    if choices.random() < 0.15:
        # Nothing but one thing that happens at the worst moment, and then long nothing.
        if choices.random() < 0.3:
            return Rates(deadly=choices.choice(_SLEEPY))
        return Rates(sleepy=choices.choice(_SLEEPY), longest_freeze=900)

    def rate(most: float) -> float:
        return choices.choice([0.0, most / 8, most / 2, most])

    return Rates(
        faults={
            Fault.KILLED_BEFORE: rate(0.02),
            Fault.KILLED_AFTER: rate(0.02),
            Fault.DROPPED: rate(0.05),
            Fault.ANSWER_LOST: rate(0.05),
            Fault.LATE: rate(0.03),
            Fault.TWICE: rate(0.05),
        },
        freeze=rate(0.04),
        longest_freeze=choices.choice([5, 50, 300, 600]),
        sleepy=choices.choice(["", "", *_SLEEPY]),
    )


def run(seed: int) -> Report:
    """One world; what is violated stands in the report."""
    choices = Choices(seed)
    rates = rates_of(choices.random)
    world = World(choices, Rates())
    kind = choices.among(["disk", "bucket"])
    # No two worlds share a table, for those who remember what they have read of one.
    name = f"world-{next(_worlds)}"
    storage: AnyStorage
    if kind == "disk":
        memory = MemoryStorage(name, clock=world.clock)
        storage = SimulatedDisk(world, memory)
        read = memory.read
    else:
        bucket = Bucket(world.clock)
        storage = SimulatedBucket(world, bucket, f"s3a://{name}/table")

        def read(path: str) -> bytes:
            return bucket.objects[path][0]

    make_table(storage, parse(_OPTIONS), world.clock, world.ids)
    auditor = Auditor(storage, read)
    auditor.look()
    world.look = auditor.look
    settings = Settings(
        most_slots=choices.among([1, 2, 3]),
        most_files=choices.among([1, 2]),
        speculation=choices.among([0.0, 0.3, 1.0]),
        reuse=choices.happens(0.7),
    )
    pipelines = Pipelines(world, lambda: storage, settings)
    pipelines.is_finalized = auditor.finalized.__contains__
    report = Report(seed=seed, store=kind)
    try:
        _chaos(world, pipelines, auditor, rates)
        _peace(world, pipelines)
        auditor.close(pipelines.told)
        _errors_of(world)
    except (Violation, Stuck) as violation:
        report.violation = f"{type(violation).__name__}: {violation}"
    finally:
        world.end()
    report.steps, report.told = world.steps, pipelines.told
    report.injected, report.log = world.injected, world.log
    return report


def _chaos(world: World, pipelines: Pipelines, auditor: Auditor, rates: Rates) -> None:
    """Writers, and others who take them for dead, while calls fail and processes die."""
    choices = world.choices
    world.spawn("writer 1", pipelines.write("writer 1"))
    for number in range(choices.among([0, 1, 2, 3, 5])):
        what = choices.among(["writer", "writer", "rollback", "recover"])
        begins = choices.random.randint(0, choices.among([120, 400]))
        name = f"{what} {number + 2}"
        function = {
            "writer": pipelines.write(name),
            "rollback": rollbacker(pipelines),
            "recover": recoverer(pipelines),
        }[what]
        world.spawn(name, function).asleep = begins
    for number in range(choices.among([0, 0, 1, 3])):
        archive = archiver(pipelines, own=choices.happens(0.5), announce=auditor.archived.add)
        world.spawn(f"archiver {number}", archive).asleep = choices.random.randint(50, 600)
    if choices.happens(0.2):
        drivers = [actor for actor in world.actors if not actor.name.startswith("archiver")]
        hudi = world.spawn("hudi", foreign_rollback(pipelines))
        # It shares no lock with us, and so must not meet a driver that is alive.
        hudi.ready = lambda: not any(actor.alive for actor in drivers)
    world.rates = rates
    with contextlib.suppress(Stuck):
        world.run(steps=_STEPS_OF_CHAOS)


def _peace(world: World, pipelines: Pipelines) -> None:
    """No more faults: all come to their ends, then a write comes after them."""
    world.rates = Rates()
    for actor in world.actors:
        actor.asleep = 0
    world.run(steps=_STEPS_TO_END)
    for number in range(2):
        last = world.spawn(f"last {number}", pipelines.write(f"last {number}"))
        world.run(steps=_STEPS_TO_END)
        if not last.ended or pipelines.told[-1].outcome != "committed":
            raise Violation(f"a write in peace did not succeed: {pipelines.told[-1].error or last.error!r}")


def _errors_of(world: World) -> None:
    """Whatever went wrong, nobody saw an error that is no answer."""
    for actor in world.actors:
        if actor.error is not None and not isinstance(actor.error, RobustWriteError):
            raise Violation(f"{actor.name} ended with {actor.error!r}") from actor.error
