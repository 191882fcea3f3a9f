"""A real standalone Spark cluster on this machine: a master and workers, each a process of its own.

Works on Linux: processes are found through ``/proc`` and stopped by their ids.
"""

from __future__ import annotations

import itertools
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from fault_injection.spark.class_archive import SPARK_HOME, settings_folder, small_jvm
from fault_injection.spark.places import Host, Namespaces, Places, ThisMachine, why_no_namespaces
from fault_injection.spark.processes import Known, arguments, descendants, wait_for

ENOUGH_CORES = 8
"""Of each worker: while one host is cut off, all executors of several drivers have their place on another."""
_DAEMON_SETTINGS = (
    # However often executors are killed, there are new ones; and a worker that is gone is soon missed.
    "-Dspark.deploy.maxExecutorRetries=-1",
    "-Dspark.worker.timeout=10",
    # One that was away for minutes is taken back: its master does not forget it after sixteen times that.
    "-Dspark.dead.worker.persistence=1000",
)


@dataclass(frozen=True, kw_only=True)
class Executor:
    """A running executor."""

    id: str
    app: str
    pid: int
    """Its JVM's."""
    worker: int


def executor_of(pid: int, worker: int) -> Executor | None:
    """The executor that a process is, if it is one."""
    given = arguments(pid)
    if not any("CoarseGrainedExecutorBackend" in argument for argument in given):
        return None
    named = dict(itertools.pairwise(given))
    if "--executor-id" not in named or "--app-id" not in named:
        return None
    return Executor(id=named["--executor-id"], app=named["--app-id"], pid=pid, worker=worker)


def python_path() -> str:
    """What is to be imported is found by the same names as here; the environment's own packages anyway."""
    own = (os.path.abspath(path) for path in sys.path if os.path.isdir(path))
    environment = (f"{sys.base_prefix}/", f"{sys.prefix}/")
    return os.pathsep.join(path for path in own if not f"{path}/".startswith(environment))


class Cluster:
    """A master and some workers; a context manager that stops all that it started.

    Parameters
    ----------
    folder
        Where logs and the workers' folders go.
    workers, cores
        How many, and with how many cores each.
    isolated
        Whether every worker is to be a host of its own; by default where the machine allows it.
    python
        The interpreter of the executors' Python workers.
    environment
        Of all processes; by default that of this process.
    java
        Options of the master's and the workers' JVMs; by default those with which they start fastest, for
        which there is something to be made first, once.
    """

    def __init__(
        self,
        folder: Path,
        *,
        workers: int = 2,
        cores: int = 1,
        isolated: bool | None = None,
        python: str = sys.executable,
        environment: Mapping[str, str] | None = None,
        java: str | None = None,
    ) -> None:
        self.folder, self.workers, self._cores = folder, workers, cores
        self._isolated = not why_no_namespaces() if isolated is None else isolated
        self.environment = {
            **(os.environ if environment is None else environment),
            "SPARK_HOME": str(SPARK_HOME),
            "SPARK_CONF_DIR": str(settings_folder()),
            "SPARK_NO_DAEMONIZE": "1",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": " ".join((small_jvm() if java is None else java, *_DAEMON_SETTINGS)),
            "SPARK_LOCAL_DIRS": str(folder / "local"),
            "PYSPARK_PYTHON": python,
        }
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._servers: list[Known] = []
        self.pids: list[int] = []
        """The master's, then the workers'."""
        self.url = ""
        self.numbers: Iterator[int] = itertools.count()
        """For names of folders that nobody else has."""

    # -- the whole ---------------------------------------------------------------------------------------

    def __enter__(self) -> Cluster:
        self.folder.mkdir(parents=True, exist_ok=True)
        self.places: Places = Namespaces(self.folder, self.workers) if self._isolated else ThisMachine()
        try:
            self._start("master", self.places.driver, "master.Master", "--port", "0")
            self.url = self._seen("master", r"Starting Spark master at (spark://\S+)")
            for number in range(self.workers):
                host = self.places.host(number)
                limits = ["--cores", str(self._cores), "--memory", f"{self._cores}g"]
                scratch = ["--work-dir", str(self.folder / f"worker-{number}")]
                self._start(f"worker-{number}", host, "worker.Worker", self.url, *limits, *scratch)
            for number in range(self.workers):
                self._seen(f"worker-{number}", r"(Successfully registered) with master")
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """End the executors, workers and master, by their ids, and wait until they are gone."""
        for server in reversed(self._servers):
            server.kill()
        self.places.close()
        for process in self._processes.values():
            process.wait()
        self._processes, self._servers, self.pids = {}, [], []

    def start(
        self, host: Host, command: list[str], environment: Mapping[str, str], **pipes: object
    ) -> tuple[subprocess.Popen[bytes], int]:
        """Run a command on a host; the process to talk to, and the id of the one that it has become."""
        process: subprocess.Popen[bytes] = subprocess.Popen(  # type: ignore[call-overload]
            [*host.prefix, *command],
            env={**self.environment, **environment, "SPARK_LOCAL_IP": host.name},
            start_new_session=True,
            **{"stdin": subprocess.DEVNULL, **pipes},
        )
        return process, self.places.started(process)

    def serve(self, name: str, host: Host, command: list[str], environment: Mapping[str, str]) -> int:
        """Run a server on a host, with a log of this name, until the cluster ends; its id."""
        with (self.folder / f"{name}.log").open("wb") as log:
            process, pid = self.start(host, command, environment, stdout=log, stderr=subprocess.STDOUT)
        self._processes[name] = process
        self._servers.append(Known.now(pid))
        return pid

    def _start(self, name: str, host: Host, role: str, *given: str) -> None:
        command = [str(SPARK_HOME / "bin" / "spark-class"), f"org.apache.spark.deploy.{role}", *given]
        command += ["--host", host.name, "--webui-port", "0"]
        self.pids.append(self.serve(name, host, command, {}))

    def _seen(self, name: str, pattern: str) -> str:
        """What the pattern found in a process's log; its end is an error that shows the log."""
        log = self.folder / f"{name}.log"

        def look() -> str | None:
            match = re.search(pattern, log.read_text(errors="replace"))
            if match is None and self._processes[name].poll() is not None:
                raise RuntimeError(f"{name} ended: {log.read_text(errors='replace')[-2000:]}")
            return match.group(1) if match else None

        return wait_for(look, f"{name}: {pattern!r} in its log")

    # -- its executors -----------------------------------------------------------------------------------

    def executors(self, app: str = "") -> list[Executor]:
        """All that run, or an application's."""
        found = (
            executor_of(pid, number)
            for number, worker in enumerate(self.pids[1:])
            for pid in descendants(worker)
        )
        return [executor for executor in found if executor and app in ("", executor.app)]

    def lose_shuffles(self) -> int:
        """Delete all shuffle files from the executors' disks; how many there were."""
        files = [file for file in (self.folder / "local").rglob("shuffle_*") if file.is_file()]
        for file in files:
            file.unlink(missing_ok=True)
        return len(files)
