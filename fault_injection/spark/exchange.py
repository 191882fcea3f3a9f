"""How the tester and the processes of a job talk: small files in a folder, since all are on one machine.

A session has a folder, whose ``current`` names the run that is going on; a run has its rules, a file for
each that was hit, and one more when whoever was hit may go on.
"""

from __future__ import annotations

import fcntl
import fnmatch
import json
import os
import threading
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

ROOM = "SPARKROBUST_CHAOS"
"""The environment variable that names the session's folder."""

_LOOK_SECONDS = 0.002


@dataclass(frozen=True, kw_only=True)
class Rule:
    """Who is to stop where, and what happens to him there."""

    name: str
    point: str
    facts: Mapping[str, str] = field(default_factory=dict)
    """Patterns, as of file names, for what is known at the point."""
    who: str = ""
    """``driver``, ``task`` or ``store``; whoever it is by default."""
    nth: int = 1
    """The how manieth time that somebody gets there, counted over all processes."""
    times: int = 1
    """So many in a row are hit."""
    then: str = "wait"
    """``wait`` until he is told to go on; or one of :mod:`fault_injection.spark.inside`'s deeds."""
    text: str = ""

    def fits(self, point: str, who: str, facts: Mapping[str, Any]) -> bool:
        return (
            point == self.point
            and self.who in ("", who)
            and all(fnmatch.fnmatch(str(facts.get(name)), wanted) for name, wanted in self.facts.items())
        )


@dataclass(frozen=True, kw_only=True)
class Hit:
    """Who was stopped, and where."""

    rule: str
    number: int
    seconds: float
    """By the machine's monotonic clock, which all processes share."""
    who: str
    pid: int
    """As the process itself calls it."""
    facts: dict[str, Any]


class Run:
    """One run's folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @classmethod
    def make(cls, folder: Path, rules: Iterable[Rule]) -> Run:
        """A new one, with its rules."""
        folder.mkdir(parents=True)
        (folder / "rules").write_text(json.dumps([asdict(rule) for rule in rules]))
        return cls(folder)

    def rules(self) -> list[Rule]:
        return [Rule(**found) for found in json.loads((self.folder / "rules").read_text())]

    # -- for who is hit ----------------------------------------------------------------------------------

    def take(self, rule: Rule, who: str, facts: Mapping[str, Any]) -> Hit | None:
        """Count one more who fits the rule; a hit if it is his turn."""
        with open(self.folder / f"{rule.name}.count", "a+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            count = int(file.read() or "0") + 1
            file.seek(0)
            file.truncate()
            file.write(str(count))
        if not rule.nth <= count < rule.nth + rule.times:
            return None
        known = {
            name: value if isinstance(value, (int, float)) else str(value) for name, value in facts.items()
        }
        hit = Hit(
            rule=rule.name, number=count, seconds=time.monotonic(), who=who, pid=os.getpid(), facts=known
        )
        self._put(f"{rule.name}.hit-{count}", json.dumps(asdict(hit)))
        return hit

    def note(self, name: str, text: str) -> None:
        """Something to be told about a rule, in the report."""
        self._put(f"{name}.note", text)

    def wait(self, name: str) -> None:
        """Until :meth:`let_go`, or until the run's folder is gone and nobody is there who could say it."""
        while not (self.folder / f"{name}.go").exists() and self.folder.exists():
            time.sleep(_LOOK_SECONDS)

    # -- for who hits ------------------------------------------------------------------------------------

    def hits(self) -> list[Hit]:
        """All so far, in their order."""
        found = [Hit(**json.loads(file.read_text())) for file in self._whole("*.hit-*")]
        return sorted(found, key=lambda hit: hit.seconds)

    def notes(self) -> dict[str, str]:
        return {file.name.removesuffix(".note"): file.read_text() for file in self._whole("*.note")}

    def _whole(self, pattern: str) -> Iterator[Path]:
        """The files of these names that are not just being written."""
        # Unlike a shell's, this pattern fits names that begin with a dot too.
        return (file for file in self.folder.glob(pattern) if not file.name.startswith("."))

    def let_go(self, name: str) -> None:
        """Whoever waits for this goes on, and nobody waits for it again."""
        self._put(f"{name}.go", "")

    def _put(self, name: str, text: str) -> None:
        # Under a name that no pattern finds, so that nobody reads half of it.
        half = self.folder / f".half-{os.getpid()}-{threading.get_ident()}"
        half.write_text(text)
        half.rename(self.folder / name)


class Room:
    """A session's folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._seen: tuple[int, int] | None = None
        self._run: Run | None = None
        self._rules: list[Rule] = []

    def begin(self, run: Run) -> None:
        """From now on everybody goes by this run's rules."""
        fresh = self.folder / ".current"
        fresh.write_text(str(run.folder))
        fresh.rename(self.folder / "current")

    def current(self) -> tuple[Run | None, list[Rule]]:
        """The run that is going on, and its rules."""
        try:
            found = os.stat(self.folder / "current")
        except FileNotFoundError:
            return None, []
        seen = (found.st_ino, found.st_mtime_ns)
        if seen != self._seen:
            run = Run(Path((self.folder / "current").read_text()))
            try:
                self._run, self._rules, self._seen = run, run.rules(), seen
            except FileNotFoundError:  # it is over, and was taken away
                return None, []
        return self._run, self._rules
