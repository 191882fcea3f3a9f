"""Runs jobs on a real cluster, and has faults happen to them.

>>> with Cluster(folder) as cluster, Chaos(cluster) as chaos:
...     report = chaos.run("my.jobs:load", str(table), faults=[Fault("dies", at("parsed"), KillExecutor())])
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any

from fault_injection.spark import faults as f
from fault_injection.spark.cluster import Cluster
from fault_injection.spark.exchange import Run
from fault_injection.spark.report import Report
from fault_injection.spark.running import FaultNeverHappenedError, Running
from fault_injection.spark.session import Session
from fault_injection.spark.store import Store

__all__ = ["Chaos", "FaultNeverHappenedError", "Running", "Session"]


@dataclass
class Chaos:
    """A cluster to run jobs on, with faults; a context manager that ends its drivers."""

    cluster: Cluster
    settings: dict[str, str] = field(default_factory=dict)
    """Spark's settings, of every session."""
    told: Callable[[Report], object] = lambda report: None
    """Is given the report of every run."""
    store: Store | None = None
    """What every session reaches through a proxy of its own."""
    _sessions: list[Session] = field(default_factory=list)
    _shared: Session | None = None

    def __enter__(self) -> Chaos:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for session in self._sessions:
            session.close()

    def session(
        self, settings: Mapping[str, str] | None = None, *, environment: Mapping[str, str] | None = None
    ) -> Session:
        """A driver that nobody else uses, with settings of Spark's, and variables for it and its tasks."""
        chosen = {**self.settings, **(settings or {})}
        folder = self.cluster.folder / f"session-{next(self.cluster.numbers)}"
        session = Session(self.cluster, folder, chosen, environment or {}, self.store)
        self._sessions.append(session)
        return session

    def start(
        self,
        job: str,
        *arguments: Any,
        faults: Sequence[f.Fault] = (),
        session: Session | None = None,
        **named: Any,
    ) -> Running:
        """Start a job, ``package.module:function`` or a script, in a session or in the common one."""
        for fault in faults:
            self._require_small_disk(fault)
        chosen = session or self._common()
        chosen.wait_until_whole()
        rules = [rule for fault in faults for rule in fault.rules()]
        run = Run.make(chosen.folder / "runs" / str(next(self.cluster.numbers)), rules)
        chosen.room.begin(run)
        running = Running(chosen, run, faults, self.told)
        running.start({"what": "run", "job": job, "args": arguments, "named": named})
        return running

    def _require_small_disk(self, fault: f.Fault) -> None:
        if isinstance(fault.deed, f.FillDisk) and not self.cluster.places.is_small(Path(fault.deed.folder)):
            raise ValueError(
                f"{fault.name}: a real disk is not filled; mount a small one over {fault.deed.folder} first, "
                "by cluster.places.small_disk"
            )

    def run(
        self,
        job: str,
        *arguments: Any,
        faults: Sequence[f.Fault] = (),
        session: Session | None = None,
        **named: Any,
    ) -> Report:
        """Run a job to its end; see :meth:`Running.result`."""
        return self.start(job, *arguments, faults=faults, session=session, **named).result()

    def _common(self) -> Session:
        """The session that is used again and again, as long as nobody kills it."""
        if self._shared is None or not self._shared.alive:
            self._shared = self.session()
        return self._shared
