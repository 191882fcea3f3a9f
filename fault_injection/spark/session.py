"""A driver in a process of its own, and what it runs with."""

from __future__ import annotations

import contextlib
import json
import queue
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from fault_injection.spark.class_archive import small_jvm
from fault_injection.spark.cluster import Cluster, Executor, python_path
from fault_injection.spark.exchange import ROOM, Room
from fault_injection.spark.processes import Known, kill, kill_with_descendants, send, wait_for
from fault_injection.spark.store import Store

JOB_SECONDS = 240.0
_LOOK_SECONDS = 0.005

SETTINGS = {
    "spark.executor.cores": "1",
    "spark.executor.memory": "700m",
    "spark.driver.memory": "700m",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.shuffle.partitions": "4",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.python.daemon.module": "fault_injection.spark.daemon",
    "spark.eventLog.enabled": "true",
    "spark.eventLog.compress": "false",
    "spark.eventLog.rolling.enabled": "false",
    # Whoever is gone is soon missed.
    "spark.executor.heartbeatInterval": "2s",
    "spark.network.timeout": "10s",
    "spark.network.timeoutInterval": "2s",
    "spark.storage.blockManagerHeartbeatTimeoutMs": "10000",
    "spark.rpc.askTimeout": "15s",
    "spark.shuffle.io.maxRetries": "1",
    "spark.shuffle.io.retryWait": "1s",
}
"""What sessions are made with, unless they are told otherwise."""

_QUIET = """\
rootLogger.level = warn
rootLogger.appenderRef.stderr.ref = stderr
appender.stderr.type = Console
appender.stderr.name = stderr
appender.stderr.target = SYSTEM_ERR
appender.stderr.layout.type = PatternLayout
appender.stderr.layout.pattern = %d{HH:mm:ss.SSS} %p %c{1}: %m%n
"""


class Session:
    """A driver, in a process of its own, with an executor on each worker, or ``spark.cores.max`` of them.

    Its settings say how a store is reached: through a proxy, where the rules of its runs are in force.
    """

    def __init__(
        self,
        cluster: Cluster,
        folder: Path,
        settings: Mapping[str, str],
        environment: Mapping[str, str],
        store: Store | None = None,
    ) -> None:
        self.cluster, self.folder = cluster, folder
        # Each has one core.
        self._executors = int(settings.get("spark.cores.max", cluster.workers))
        self.room = Room(folder)
        (folder / "events").mkdir(parents=True)
        environment = {**environment, ROOM: str(folder), "PYTHONPATH": python_path()}
        in_tasks = {f"spark.executorEnv.{name}": value for name, value in environment.items()}
        self._proxy = store.proxy(folder) if store else None
        self._settings = folder / "settings.conf"
        self._write_settings({**in_tasks, **settings})
        self.alive = True
        self._answers: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._log = folder / "driver.log"
        submit = f"--properties-file {shlex.quote(str(self._settings))} pyspark-shell"
        with self._log.open("wb") as log:
            self._process, python = cluster.start(
                cluster.places.driver,
                [sys.executable, "-m", "fault_injection.spark.driver"],
                {**environment, "PYSPARK_SUBMIT_ARGS": submit},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
            )
        self._python = Known.now(python)
        threading.Thread(target=self._listen, daemon=True).start()
        said = self._next(JOB_SECONDS)
        if said is None:
            raise RuntimeError(f"a driver has ended before it began: {self.last_words()}")
        self.app: str = said["app"]
        self._java = Known.now(cluster.places.pid(said["java"]))

    def _write_settings(self, given: Mapping[str, str]) -> None:
        cluster, driver = self.cluster, self.cluster.places.driver
        java = f"{small_jvm()} -Duser.timezone=UTC"
        settings = {
            **SETTINGS,
            "spark.driver.extraJavaOptions": java,
            "spark.executor.extraJavaOptions": java,
            "spark.master": cluster.url,
            "spark.driver.host": driver.name,
            "spark.driver.bindAddress": driver.name,
            "spark.cores.max": str(self._executors),
            "spark.eventLog.dir": (self.folder / "events").as_uri(),
            **(self._proxy.settings() if self._proxy else {}),
            **given,
        }
        quiet = self.folder / "log4j2.properties"
        quiet.write_text(_QUIET)
        settings["spark.driver.extraJavaOptions"] += f" -Dlog4j2.configurationFile={quiet.as_uri()}"
        lines = (f"{name} {value}" for name, value in settings.items())
        self._settings.write_text("\n".join(lines) + "\n")

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._answers.put(line)
        self._answers.put(b"")

    def _next(self, seconds: float) -> dict[str, Any] | None:
        """The driver's next answer; nothing if it has ended."""
        line = self._answers.get(timeout=seconds)
        if not line:
            self.alive = False
            return None
        said: dict[str, Any] = json.loads(line)
        return said

    def ask(self, **request: Any) -> None:
        """Send a request."""
        assert self._process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._process.stdin.write(json.dumps(request).encode() + b"\n")
            self._process.stdin.flush()

    def answer(self) -> dict[str, Any] | None:
        """The answer, if there is one by now; an empty one if the driver has ended."""
        try:
            return self._next(_LOOK_SECONDS) or {}
        except queue.Empty:
            return None

    def last_words(self) -> str:
        return f"its log ends with\n{self._log.read_text(errors='replace')[-3000:]}"

    @property
    def pids(self) -> list[int]:
        """The driver's Python, and its JVM, as far as they have not ended."""
        return [one.pid for one in (self._python, self._java) if not one.is_gone]

    def executors(self) -> list[Executor]:
        return self.cluster.executors(self.app)

    def wait_until_whole(self) -> None:
        """Until the driver has all its executors, and they run."""

        known: set[str] = set()
        running: set[str] = set()

        def look() -> bool:
            nonlocal known, running
            self.ask(what="executors")
            said = self._next(JOB_SECONDS)
            if said is None:
                raise RuntimeError(f"a driver has ended; {self.last_words()}")
            known, running = set(said["value"]), {executor.id for executor in self.executors()}
            return len(running) == self._executors and known == running

        try:
            wait_for(look, f"{self._executors} executors")
        except TimeoutError as error:
            seen = f"the driver knows {sorted(known)}, and {sorted(running)} run"
            raise TimeoutError(f"{error}: {seen}; {self.last_words()}") from None

    def events(self) -> bytes:
        """All that Spark has written down so far."""
        return b"".join(file.read_bytes() for file in sorted((self.folder / "events").iterdir()))

    def kill(self) -> None:
        """SIGKILL to the driver, its JVM first."""
        kill(*reversed(self.pids))
        self.alive = False

    def freeze(self) -> None:
        """SIGSTOP to the driver."""
        send(signal.SIGSTOP, self.pids)

    def wake(self) -> None:
        """Undo :meth:`freeze`."""
        # A command that has brought the driver into its namespaces stops with it, and has to be told as well.
        send(signal.SIGCONT, [*self.pids, self._process.pid])

    def close(self) -> None:
        """End the driver, and see that its executors have ended."""
        if self._process.poll() is None:
            self.wake()
            self._python.kill()
            self._process.wait()
        self.alive = False
        for executor in self.executors():
            kill_with_descendants(executor.pid)
        if self._proxy is not None:
            self._proxy.close()
