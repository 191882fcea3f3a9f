"""One run of the simulated world from one integer: everything goes wrong, then an end in peace."""

from __future__ import annotations

import contextlib
import hashlib
import itertools
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from fault_injection.faults import Fault
from fault_injection.histories import Archiver
from fault_injection.simulation.actors import Pipelines, Told
from fault_injection.simulation.audit import AnyStorage, Auditor, Violation
from fault_injection.simulation.others import (
    archiver,
    cleaner,
    foreign_rollback,
    forgets,
    reader,
    recoverer,
    rollbacker,
)
from fault_injection.simulation.row_audit import RowAuditor
from fault_injection.simulation.scenarios import CALM, DIRECT, SCENARIOS, Scenario
from fault_injection.simulation.scheduler import Choices, Rates, Stuck, World
from fault_injection.simulation.services import Services
from fault_injection.simulation.sharing import ManyWriters
from fault_injection.simulation.stores import Bucket, SimulatedBucket, SimulatedCopies, SimulatedDisk
from sparkrobust.coordinator.create import make_table
from sparkrobust.errors import RobustWriteError
from sparkrobust.options import parse
from sparkrobust.storage.memory import MemoryStorage

# Thousands of drivers would each say what they leave to the next.
logging.getLogger("sparkrobust").addHandler(logging.NullHandler())

_OPTIONS = {"hoodie.table.name": "t", "hoodie.datasource.write.recordkey.field": "id"}
_worlds = itertools.count()
_WRITERS = ("writer", "job")
_STEPS_OF_CHAOS = 1500
_STEPS_TO_END = 4000


@dataclass(kw_only=True)
class Report:
    """What became of a run."""

    seed: int
    store: str
    violation: str | None = None
    steps: int = 0
    steps_of_founders: int = 0
    steps_before_peace: int = 0
    told: list[Told] = field(default_factory=list)
    injected: dict[Fault, int] = field(default_factory=dict)
    possible: dict[int, frozenset[Fault]] = field(default_factory=dict)
    """What could have gone wrong at each step, if somebody had wanted to know."""
    steps_taken: list[tuple[int, str, str, str, str]] = field(default_factory=list)

    @property
    def log(self) -> list[str]:
        """Step by step."""
        return [
            f"{step:5d} {who:12s} {call}"
            + (f"  [{fault}]" if fault != Fault.NONE.value else "")
            + (f" -> {told}" if told else "")
            for step, who, call, fault, told in self.steps_taken
        ]

    @property
    def digest(self) -> str:
        """Equal for equal runs."""
        return hashlib.sha256("\n".join(self.log).encode()).hexdigest()[:16]


def run(
    seed: int, scenario: str = "any", planned: Mapping[int, Fault] | None = None, *, watches: bool = False
) -> Report:
    """One world; what is violated stands in the report.

    Parameters
    ----------
    planned
        Faults at the calls of certain steps, besides those that the scenario draws.
    watches
        What could go wrong at each step is to be reported.
    """
    choices = Choices(seed)
    story = {**SCENARIOS, **CALM, **DIRECT}[scenario](choices)
    world = World(choices, Rates())
    world.planned = dict(planned or {})
    world.watches = watches
    world.time_stands = story.time_stands
    storage, read = _store(world, story)
    make_table(storage, parse(_OPTIONS), world.clock, world.ids)
    sharing, services = story.settings.sharing, None
    if sharing is None:
        pipelines = Pipelines(world, lambda: storage, story.settings)
        auditor = Auditor(storage, read, direct=story.settings.direct)
    else:
        pipelines = many = ManyWriters(world, lambda: storage, story.settings, sharing)
        services = Services(many)
        auditor = RowAuditor(storage, read, many, services)
        many.cleaned = auditor.cleaned
    auditor.look()
    world.look = auditor.look
    pipelines.is_closed = auditor.closed.__contains__
    report = Report(seed=seed, store=story.store)
    try:
        for number in range(story.founders):
            world.spawn(f"founder {number}", pipelines.write(f"founder {number}"))
            world.run(steps=_STEPS_TO_END)
        report.steps_of_founders = world.steps
        _begin(world, pipelines, services, auditor, story)
        # Writers, and others who take them for dead, while calls fail and processes die.
        world.rates = story.rates
        with contextlib.suppress(Stuck):
            world.run(steps=_STEPS_OF_CHAOS)
        report.steps_before_peace = world.steps
        world.planned = {}
        _peace(world, pipelines, services)
        if not story.settings.direct and (story.is_read or not story.has_archivers):
            # Archivers that need not wait for anything take away what readers go by.
            _read(world, pipelines, auditor)
        auditor.close(pipelines.told)
        _errors_of(world)
    except (Violation, Stuck) as violation:
        report.violation = f"{type(violation).__name__}: {violation}"
    finally:
        world.end()
    report.possible = world.possible
    report.steps, report.told = world.steps, pipelines.told
    report.injected, report.steps_taken = world.injected, world.log
    return report


def _store(world: World, story: Scenario) -> tuple[AnyStorage, Callable[[str], bytes]]:
    """An empty store, and a way to read from it that is no turn of anybody."""
    # No two worlds share a table, for those who remember what they have read of one.
    name = f"world-{next(_worlds)}"
    if story.store == "disk":
        memory = MemoryStorage(name, clock=world.clock)
        return SimulatedDisk(world, memory), memory.read
    bucket = Bucket(world.clock)
    kind = {"bucket": SimulatedBucket, "copy": SimulatedCopies}[story.store]
    return kind(world, bucket, f"s3a://{name}/table"), lambda path: bucket.objects[path][0]


def _begin(
    world: World, pipelines: Pipelines, services: Services | None, auditor: Auditor, story: Scenario
) -> None:
    history = Archiver(pipelines.storage()) if story.is_read else None
    archived = auditor.archived.add
    for number, (what, begins) in enumerate(story.actors, 1):
        name = f"{what} {number}"
        others = [actor for actor in world.actors if "archiver" not in actor.name]
        function: Callable[[], object] = {
            "writer": pipelines.write(name),
            "job": pipelines.write(name, write_id="job"),
            "rollback": rollbacker(pipelines),
            "recover": recoverer(pipelines),
            "reader": reader(pipelines, auditor),
            "cleaner": cleaner(pipelines, announce=auditor.cleaned.add),
            "archiver": archiver(pipelines, own=True, announce=archived, history=history),
            "foreign archiver": archiver(pipelines, own=False, announce=archived, history=history),
            "hudi": foreign_rollback(pipelines, announce=auditor.unmarked.add),
            "forget": forgets(pipelines),
            **(services.by_name if services else {}),
        }[what]
        actor = world.spawn(name, function)
        actor.asleep = begins
        alone = what == "job" and services is None
        if alone or (what in _WRITERS and story.settings.overwrite):
            # Two runs of a job, or two that overwrite, need a lock; others may take this one for dead.
            before = [one for one in others if one.name.startswith(_WRITERS)]
            actor.ready = lambda before=before: not any(one.alive for one in before)
        if story.time_stands:
            # One after the other, and what is left of one meets the next.
            actor.ready = lambda others=others: not any(one.alive for one in others)
        if what == "hudi":
            # It shares no lock with us, and so must not meet a driver that is alive, or what one has sent.
            actor.ready = lambda others=others: not (world.late or any(one.alive for one in others))


def _peace(world: World, pipelines: Pipelines, services: Services | None) -> None:
    """No more faults: all come to their ends, then a write comes after them."""
    world.rates = Rates()
    for actor in world.actors:
        actor.asleep = 0
    world.run(steps=_STEPS_TO_END)
    # Who is dead is taken for it by now.
    world.ms += pipelines.patience_ms
    if services is not None:
        world.spawn("last executor", services.executor())
        world.run(steps=_STEPS_TO_END)
    for number in range(2):
        last = world.spawn(f"last {number}", pipelines.write(f"last {number}"))
        world.run(steps=_STEPS_TO_END)
        if not last.ended or pipelines.told[-1].outcome != "committed":
            raise Violation(f"a write in peace did not succeed: {pipelines.told[-1].error or last.error!r}")


def _read(world: World, pipelines: Pipelines, auditor: Auditor) -> None:
    """The table can be read, and is what it has to be."""
    last = world.spawn("last reader", reader(pipelines, auditor))
    world.run(steps=_STEPS_TO_END)
    if last.error is not None:
        raise Violation(f"a reader in peace did not succeed: {last.error!r}")


def _errors_of(world: World) -> None:
    """Whatever went wrong, nobody saw an error that is no answer."""
    for actor in world.actors:
        if actor.error is not None and not isinstance(actor.error, RobustWriteError):
            raise Violation(f"{actor.name} ended with {actor.error!r}") from actor.error
