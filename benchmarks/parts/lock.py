"""Time under the table's lock, with few and very many active instants on the timeline: ours alone."""

from __future__ import annotations

import os
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from benchmarks.conductor import Bench, EngineError, WrongResultError, rotated
from benchmarks.parts.one_row import INSERT, NO_SERVICES, OURS, UPSERT, Writer

TO_COMMIT = "time under the lock, to the commit file"
COMMITTING = "time under the lock, of a commit"
BEGINNING = "time under the lock, of a beginning"
STEPS = (INSERT, UPSERT)
SHARED_LOCK = {
    "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
    "hoodie.write.lock.provider": "FileSystemBasedLockProvider",
    "hoodie.time.generator.max_expected_clock_skew_ms": "0",  # else there is a wait under the lock
}
_APART = timedelta(seconds=10)
_LENGTH_OF_TIME = 17
_WARM_UPS = 2


@dataclass
class Active:
    """The timeline of a table that is kept at so many completed instants."""

    folder: Path
    instants: int

    def fill(self) -> None:
        """Put copies of the table's one commit before it, as many as are missing."""
        (done,) = self.folder.glob("*.commit")
        of_it = [*self.folder.glob(f"{done.name[:_LENGTH_OF_TIME]}*")]
        first = _moment(done.name[:_LENGTH_OF_TIME]) - _APART * self.instants
        contents = {file.name: file.read_bytes() for file in of_it}
        for number in range(self.instants - 1):
            shift = _moment(done.name[:_LENGTH_OF_TIME]) - (first + _APART * number)
            for name, content in contents.items():
                (self.folder / _earlier(name, shift)).write_bytes(content)
        os.sync()

    def archive(self) -> None:
        """Take away the oldest completed instants that there are too many of."""
        done = sorted(path.name[:_LENGTH_OF_TIME] for path in self.folder.glob("*.commit"))
        for time in done[: len(done) - self.instants]:
            for file in self.folder.glob(f"{time}*"):
                file.unlink()


def _moment(time: str) -> datetime:
    return datetime.strptime(f"{time}000", "%Y%m%d%H%M%S%f")


def _earlier(name: str, shift: timedelta) -> str:
    """The name of an instant's file, with its times so much earlier."""
    times, dot, rest = name.partition(".")
    earlier = (_moment(time) - shift for time in times.split("_"))
    return (
        "_".join(f"{moment:%Y%m%d%H%M%S}{moment.microsecond // 1000:03d}" for moment in earlier) + dot + rest
    )


def run(bench: Bench) -> None:
    """Writes of one row on tables of each size, which take turns."""
    tables: dict[str, tuple[Writer, Active]] = {}
    try:
        for count in bench.workload.active_instants:
            tables[f"{count}"] = _made(bench, count)
        for number in range(-_WARM_UPS, bench.workload.one_row_commits):
            for step in STEPS:
                for name in rotated(list(tables), number):
                    _measure(bench, name, *tables[name], step, counts=number >= 0)
        for writer, _ in tables.values():
            writer.check()
    except (EngineError, WrongResultError) as error:
        bench.give_up(f"{OURS}, time under the lock", error)
    finally:
        for writer, _ in tables.values():
            writer.drop()
    bench.say("  times under the lock done")


def _made(bench: Bench, count: int) -> tuple[Writer, Active]:
    table = f"locked_{count}"
    operations = {INSERT: "insert", UPSERT: "upsert"}
    options = {**NO_SERVICES, **SHARED_LOCK}
    writer = Writer(
        bench=bench, name=OURS, engine=OURS, table=table, operations=operations, options=options, watched=True
    )
    writer.drop()
    writer.build(keys=10)
    active = Active(bench.tables / OURS / table / ".hoodie" / "timeline", count)
    active.fill()
    bench.say(f"  a table with {count} active instants stands")
    return writer, active


def _measure(bench: Bench, name: str, writer: Writer, active: Active, step: str, *, counts: bool) -> None:
    locked = writer.commit(step)["locked"]
    active.archive()
    if counts:
        bench.record(f"{TO_COMMIT}, {step}", name, locked["to commit file"])
        bench.record(f"{COMMITTING}, {step}", name, locked["commit"])
        bench.record(f"{BEGINNING}, {step}", name, locked["begin"])
