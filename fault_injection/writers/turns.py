"""What all writers of a race have in common: what they write, when they try again, and what they write down.

Every write inserts keys that nobody else has, and updates one that all fight for.  What is written down
is on the disk before the next step, as the process may be killed at any moment.
"""

from __future__ import annotations

import itertools
import json
import os
import random
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from sparkrobust.errors import CommitUnknownError, RobustWriteError

TABLE = {
    "hoodie.table.name": "raced",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "part",
    "hoodie.datasource.write.precombine.field": "ts",
    "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
}
COLUMNS = ("id", "ts", "part")
PARTITIONS = 16
OWN_KEYS = 3
_MOST_PAUSE_SECONDS = 0.2


@dataclass(frozen=True, kw_only=True)
class Rows:
    """What one write has."""

    partition: str
    keys: tuple[str, ...]
    ts: int

    def tuples(self) -> list[tuple[str, int, str]]:
        """In the order of :data:`COLUMNS`."""
        return [(key, self.ts, self.partition) for key in self.keys]


def shared_rows() -> Iterator[Rows]:
    """A write for each partition, of the row in it that all fight for."""
    for part in range(PARTITIONS):
        yield Rows(partition=f"p{part}", keys=(f"shared-{part}",), ts=1 + part)


class Log:
    """What a writer was told, a line of JSON each; the next process of the same name goes on with it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def say(self, what: str, **facts: Any) -> None:
        with self.path.open("ab") as file:
            file.write(json.dumps({"what": what, **facts}).encode() + b"\n")
            file.flush()
            os.fsync(file.fileno())

    def lines(self) -> Iterator[dict[str, Any]]:
        """What was said; each line was one call of the system, which a death does not cut in two."""
        if self.path.exists():
            yield from map(json.loads, self.path.read_text().splitlines())

    def count(self, what: str) -> int:
        """How often this was said, by all processes of this name."""
        line = json.dumps({"what": what}).removesuffix("}").encode()
        return self.path.read_bytes().count(line) if self.path.exists() else 0


@dataclass(frozen=True, kw_only=True)
class Task:
    """What one writer has to do."""

    url: str
    name: str
    log: str
    commits: int
    """So many writes are to be acknowledged, those of its earlier processes included."""
    seed: int
    options: Mapping[str, str]

    def to_json(self) -> str:
        return json.dumps({**asdict(self), "options": dict(self.options)})

    @classmethod
    def of_json(cls, text: str) -> Task:
        return cls(**json.loads(text))

    def chance(self) -> random.Random:
        """What goes by chance; each process of a writer draws anew."""
        return random.Random(f"{self.seed} {self.name} {Log(Path(self.log)).count('begun')}")

    def run(self, upsert: Callable[[Rows], str]) -> None:
        """Write until all is done, each write tried until it is committed."""
        log, chance = Log(Path(self.log)), self.chance()
        acknowledged = log.count("committed")
        log.say("ready")
        for number in itertools.count(log.count("begun")):
            if acknowledged == self.commits:
                break
            rows = self._rows(number, chance)
            log.say("begun", keys=rows.keys, ts=rows.ts, partition=rows.partition)
            try:
                instant = _until_committed(upsert, rows, chance)
            except CommitUnknownError as error:
                log.say("unknown", ts=rows.ts, instant=error.instant)
            else:
                log.say("committed", ts=rows.ts, instant=instant)
                acknowledged += 1
        log.say("done")

    def _rows(self, number: int, chance: random.Random) -> Rows:
        """Of the n-th write."""
        # Some partitions are fought for by all, others are where a slow writer has its chance.
        part = min(chance.randrange(PARTITIONS), chance.randrange(PARTITIONS))
        own = [f"{self.name}-{number}-{one}" for one in range(OWN_KEYS)]
        return Rows(partition=f"p{part}", keys=(*own, f"shared-{part}"), ts=time.time_ns())


def _until_committed(upsert: Callable[[Rows], str], rows: Rows, chance: random.Random) -> str:
    while True:
        try:
            return upsert(rows)
        except CommitUnknownError:
            raise
        except RobustWriteError as error:
            if error.outcome not in ("Conflicted", "Retryable"):
                raise
            # Who is refused at the same time shall not come back at the same time.
            time.sleep(chance.uniform(0, _MOST_PAUSE_SECONDS))
