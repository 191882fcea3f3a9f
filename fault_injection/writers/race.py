"""Many writers of one table, some of which are killed and come back; then what became of the table."""

from __future__ import annotations

import os
import random
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from fault_injection.spark import plain_reader
from fault_injection.spark.processes import kill_with_descendants
from fault_injection.spark.verify import wrong_files
from fault_injection.writers.turns import TABLE, Log, Task, shared_rows
from fault_injection.writers.venue import LOCKS
from fault_injection.writers.writer import Writer
from sparkrobust.coordinator.coordination import coordination_of
from sparkrobust.coordinator.recovery import recover
from sparkrobust.coordinator.rollback import roll_back_failed_writes
from sparkrobust.coordinator.table import HudiTable
from sparkrobust.options import FailedWritesPolicy, parse
from sparkrobust.storage.contract import Storage
from sparkrobust.storage.resolve import storage_for
from sparkrobust.world import Clock, Ids

QUICK = {
    "hoodie.write.lock.wait_time_ms": "120000",
    "hoodie.client.heartbeat.interval_in_ms": "2000",
    "hoodie.client.heartbeat.tolerable.misses": "5",
    # One host: there is one clock.
    "hoodie.time.generator.max_expected_clock_skew_ms": "5",
}
"""Who is killed is soon missed."""
_SCRATCH = ".hoodie/.robust/.scratch"
_LOOK_SECONDS = 0.02
_DEATHS_PER_DRIVERS = 4
"""So many, and one of them is a driver's."""
_OF_ALL = "shared"
"""Who writes first, where the rows that all fight for have to be there."""


@dataclass(kw_only=True)
class Race:
    """Writers that have each to be told of so many commits, and how many of their processes are killed."""

    url: str
    folder: Path
    writers: int
    commits: int
    kills: int
    spark_drivers: int = 0
    hudi_drivers: int = 0
    """Of the real Hudi, in the Python that ``SPARKROBUST_ORACLE_PYTHON`` names."""
    driver_commits: int | None = None
    """So many of each driver, which takes longer than others; without, as many as theirs."""
    seed: int = 0
    options: Mapping[str, str] = field(default_factory=lambda: LOCKS["storage"])
    """The lock's, and how the store is reached."""
    patience_seconds: float = 900.0
    killed: list[str] = field(default_factory=list)
    """Whose processes were."""
    seconds: float = 0.0

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self.options = {**QUICK, **self.options}
        self._plain = [f"w{number}" for number in range(self.writers)]
        self._drivers = [f"s{number}" for number in range(self.spark_drivers)]
        self._drivers += [f"h{number}" for number in range(self.hudi_drivers)]
        of_drivers = self.commits if self.driver_commits is None else self.driver_commits
        self.wanted = dict.fromkeys(self._plain, self.commits) | dict.fromkeys(self._drivers, of_drivers)
        """How many acknowledged writes of each."""

    def run(self) -> None:
        """Until every writer has done its work."""
        self.folder.mkdir(parents=True, exist_ok=True)
        if self.spark_drivers:
            # Who has no Spark can race without.
            from fault_injection.spark.class_archive import small_jvm  # noqa: PLC0415

            small_jvm()  # so that the drivers do not each make its archive
        # Deaths are spread over the writes, so that each meets writers in the middle of their work.
        writes = range(1, sum(self.wanted.values()))
        self._moments = sorted(self._random.sample(writes, self.kills), reverse=True)
        self._began = time.monotonic()
        if self.hudi_drivers:
            self._put_shared_rows()
        try:
            # Drivers take longest to come, and all are to write at the same time.
            for name in self._drivers:
                self._start(name)
            self._watch(lambda: all(self.log(name).count("ready") for name in self._drivers))
            for name in self._plain:
                self._start(name)
            self._watch(lambda: not self._running)
        finally:
            for process in self._running.values():
                _kill(process)
        self.seconds = time.monotonic() - self._began

    def _watch(self, is_over: Callable[[], bool]) -> None:
        while not is_over():
            time.sleep(_LOOK_SECONDS)
            for name, process in list(self._running.items()):
                if process.poll() is not None:
                    self._ended(name, process)
            if self._moments and self._count("begun") >= self._moments[-1]:
                self._moments.pop()
                self._kill()
            if time.monotonic() - self._began > self.patience_seconds:
                raise TimeoutError(f"writers did not end in {self.patience_seconds:g} s: {self.told()}")

    def log(self, name: str) -> Log:
        return Log(self.folder / f"{name}.log")

    def _task(self, name: str) -> Task:
        return Task(
            url=self.url, name=name, log=str(self.log(name).path), commits=self.wanted.get(name, 0),
            seed=self.seed, options=self.options,
        )  # fmt: skip

    def _put_shared_rows(self) -> None:
        """Hudi's writers do not look whether somebody else inserts the same key at the same time."""
        task = self._task(_OF_ALL)
        log, writer = self.log(task.name), Writer(task)
        for rows in shared_rows():
            log.say("begun", keys=rows.keys, ts=rows.ts, partition=rows.partition)
            log.say("committed", ts=rows.ts, instant=writer.upsert(rows))

    def _start(self, name: str) -> None:
        module = {"w": "writer", "s": "spark_writer", "h": "hudi_writer"}[name[0]]
        python = os.environ["SPARKROBUST_ORACLE_PYTHON"] if module == "hudi_writer" else sys.executable
        command = [python, "-m", f"fault_injection.writers.{module}", self._task(name).to_json()]
        with (self.folder / f"{name}.err").open("ab") as errors:
            self._running[name] = subprocess.Popen(command, stderr=errors)

    def _ended(self, name: str, process: subprocess.Popen[bytes]) -> None:
        del self._running[name]
        if process.returncode:
            words = (self.folder / f"{name}.err").read_text(errors="replace")[-3000:]
            raise RuntimeError(f"the writer {name} has failed:\n{words}")

    def _count(self, what: str) -> int:
        return sum(self.log(name).count(what) for name in self.wanted)

    def _kill(self) -> None:
        """SIGKILL to one of them, wherever it is; it comes back at once."""
        if not self._running:
            return
        # Both kinds are to be among the dead, whoever is drawn.
        kind = self._drivers if len(self.killed) % _DEATHS_PER_DRIVERS == 1 else self._plain
        running = sorted(self._running)
        name = self._random.choice([name for name in running if name in kind] or running)
        _kill(self._running[name])
        self.killed.append(name)
        self._start(name)

    def lines(self) -> Iterator[dict[str, Any]]:
        """What all writers were told."""
        for name in (_OF_ALL, *self.wanted):
            yield from self.log(name).lines()

    def told(self) -> Counter[str]:
        """How many writes were begun, committed, and so on."""
        return Counter(line["what"] for line in self.lines())

    # -- afterwards --------------------------------------------------------------------------------------

    def storage(self) -> Storage:
        return storage_for(self.url, parse({**TABLE, **self.options}).storage)

    def tidy(self) -> None:
        """What the next writer would do, now that nobody else is alive."""
        options, storage, clock, ids = parse({**TABLE, **self.options}), self.storage(), Clock(), Ids()
        lazy = coordination_of(options, storage, clock, ids)
        coordination = replace(lazy, failed_writes=FailedWritesPolicy.EAGER)
        table = HudiTable.open(storage, clock, ids, coordination=coordination)
        recover(table, even_alive=True)
        table.reload()
        roll_back_failed_writes(table)

    def problems(self, table: Path) -> list[str]:
        """What is wrong with the table, of which ``table`` is a copy that a plain reader can read."""
        # What a process was about to put when it died goes once it is surely nobody's, which takes a day.
        files = [problem for problem in wrong_files(table) if f"{_SCRATCH}/put-" not in problem]
        return [*files, *self._not_completed(table), *self.wrong_rows(plain_reader.snapshot(table))]

    def _not_completed(self, table: Path) -> Iterator[str]:
        """Writes that were acknowledged, and are not on the timeline."""
        completed = {
            file.name.partition("_")[0] for file in (table / ".hoodie" / "timeline").glob("*.commit")
        }
        for line in self.lines():
            # Hudi's writers are not told which instant theirs is.
            if line["what"] == "committed" and line["instant"] and line["instant"] not in completed:
                yield f"the acknowledged write {line['instant']} is not completed"

    def wrong_rows(self, rows: list[dict[str, Any]]) -> Iterator[str]:
        """Rows that are lost, doubled, of half a write, or not the last that was written of a shared key."""
        found: dict[str, list[int]] = {}
        for row in rows:
            found.setdefault(row["id"], []).append(row["ts"])
        for key, versions in found.items():
            if len(versions) > 1:
                yield f"{key} stands {len(versions)} times"
        lines = list(self.lines())
        certain = {line["ts"] for line in lines if line["what"] == "committed"}
        begun = {line["ts"]: line for line in lines if line["what"] == "begun"}
        newest: dict[str, int] = {}
        for ts, line in begun.items():
            *own, shared = line["keys"]
            there = sum(found.get(key) == [ts] for key in own)
            if ts in certain and there < len(own):
                yield f"{len(own) - there} rows of the acknowledged write {ts} are lost"
            if there not in (0, len(own)):
                yield f"{there} of {len(own)} rows of the write {ts} are there"
            if there:
                newest[shared] = max(newest.get(shared, 0), ts)
        for key, ts in newest.items():
            if found.get(key) != [ts]:
                yield f"{key} is of {found.get(key)}, and the last write of it was {ts}"
        known = {key for line in begun.values() for key in line["keys"]}
        for key in found.keys() - known:
            yield f"nobody wrote {key}"


def _kill(process: subprocess.Popen[bytes]) -> None:
    """With its JVM and its Python workers, where it is a driver."""
    if process.poll() is None:
        kill_with_descendants(process.pid)
    process.wait()
