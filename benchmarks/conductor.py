"""The conductor: starts the workers, asks one at a time in alternating order, keeps every measured time."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from benchmarks.places import ROOT
from benchmarks.processes import processor_seconds
from benchmarks.workload import Workload


class EngineError(RuntimeError):
    """An engine answered with an error, or stopped to answer."""


class WrongResultError(RuntimeError):
    """A table doesn't hold what it must; its times don't count."""


class Worker:
    """One engine in a process of its own, alive until it is closed."""

    def __init__(self, engine: str, *, tables: Path, logs: Path, memory: str) -> None:
        self.engine = engine
        self._log_path = logs / f"{engine}.log"
        self._log = self._log_path.open("a")
        paths = [str(ROOT), os.environ.get("PYTHONPATH", "")]
        environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))}
        environment |= {"PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", "TZ": "UTC"}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.worker", engine, str(tables), memory],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            env=environment,
            text=True,
        )
        self._answer()

    @property
    def pid(self) -> int:
        """The process id of the driver's Python."""
        return self._process.pid

    @property
    def lives(self) -> bool:
        """Whether the process still runs."""
        return self._process.poll() is None

    def ask(self, do: str, **request: Any) -> dict[str, Any]:
        """Send one request and wait for its answer; ``processor`` is the processor time that it took."""
        before = processor_seconds(self.pid)
        answer = self._exchange({"do": do, **request})
        return {**answer, "processor": processor_seconds(self.pid) - before}

    def _exchange(self, request: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        # A process that is gone breaks the pipe; its end is told where its answer is missing.
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(request) + "\n")
            self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            end = self._log_path.read_text()[-2000:]
            raise EngineError(f"{self.engine} has ended; the end of {self._log_path.name}:\n{end}")
        answer: dict[str, Any] = json.loads(line)
        if not answer["ok"]:
            raise EngineError(f"{self.engine}: {answer['error']}")
        return answer

    def kill(self) -> None:
        """End the process in the middle of what it does; its JVM ends with it."""
        self._process.kill()

    def close(self) -> None:
        """Let the process end by itself; kill it if it doesn't."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()


@dataclass(kw_only=True)
class Bench:
    """What all parts of a run share, and everything that they measured."""

    workload: Workload
    rounds: int
    warm_ups: int
    memory: str
    tables: Path
    out: Path
    engines: Sequence[str]
    times: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    processor: dict[str, dict[str, list[float]]] = field(default_factory=dict)
    steps: dict[str, list[dict[str, float]]] = field(default_factory=dict)
    megabytes: dict[str, float] = field(default_factory=dict)
    requests: dict[str, dict[str, float]] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    unavailable: dict[str, str] = field(default_factory=dict)
    _workers: dict[str, Worker] = field(default_factory=dict)

    def __enter__(self) -> Bench:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for worker in self._workers.values():
            if kind is not None:
                worker.kill()
            worker.close()

    def worker(self, engine: str) -> Worker:
        """The living worker of an engine, started when it is first needed, and again when it has ended."""
        if engine in self._workers and not self._workers[engine].lives:
            self._workers.pop(engine).close()
        if engine not in self._workers:
            self._workers[engine] = self.fresh_worker(engine)
        return self._workers[engine]

    def fresh_worker(self, engine: str) -> Worker:
        """A new worker that nobody has asked anything yet; the caller closes it."""
        return Worker(engine, tables=self.tables, logs=self.out, memory=self.memory)

    def record(self, step: str, contestant: str, seconds: float, processor: float | None = None) -> None:
        """Keep one measured time, and the processor time beside it where it's known."""
        self.times.setdefault(step, {}).setdefault(contestant, []).append(seconds)
        if processor is not None:
            self.processor.setdefault(step, {}).setdefault(contestant, []).append(processor)

    def note(self, text: str) -> None:
        """Say something that belongs to the result, now and in the report."""
        self.notes.append(text)
        self.say(f"note: {text}")

    def give_up(self, contestant: str, error: Exception) -> None:
        """Go on without a contestant that failed; the report says so."""
        self.unavailable[f"{contestant} (after {len(self.times)} steps)"] = str(error)
        self.say(f"{contestant} is out of this part: {error}")

    def say(self, text: str) -> None:
        """Progress, for whoever waits."""
        print(text, file=sys.stderr, flush=True)


def rotated(items: Sequence[str], by: int) -> list[str]:
    """The items in another order each round, so that none always has the same neighbour before it."""
    shift = by % len(items) if items else 0
    return [*items[shift:], *items[:shift]]
