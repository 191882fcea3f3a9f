"""A real Spark cluster on this machine: a master and workers, each a process of its own, on loopback only.

Works on Linux: processes are found through ``/proc`` and stopped by their ids.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from tools.submit import spark_home

HOST = "127.0.0.1"
SMALL_JVM = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
Found = TypeVar("Found")


def wait_for(look: Callable[[], Found | None], what: str, seconds: float = 120) -> Found:
    """Look again and again until there is something to see."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        found = look()
        if found:
            return found
        time.sleep(0.02)
    raise TimeoutError(f"{what} did not come about within {seconds:g} s")


def children(pid: int) -> list[int]:
    """The processes that a process started and that are still its children."""
    found: list[int] = []
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            found += [int(child) for child in task.read_text().split()]
        except OSError:  # the thread has ended
            continue
    return found


def descendants(pid: int) -> Iterator[int]:
    """Children, their children, and so on."""
    for child in children(pid):
        yield child
        yield from descendants(child)


def command_line(pid: int) -> str:
    """What a process was started with, empty where it is gone."""
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    except OSError:
        return ""


def open_files(pid: int) -> list[str]:
    """The files that a process has open, as far as it is still there."""
    found: list[str] = []
    try:
        entries = os.listdir(f"/proc/{pid}/fd")
    except OSError:
        return found
    for entry in entries:
        try:
            found.append(os.readlink(f"/proc/{pid}/fd/{entry}"))
        except OSError:  # closed meanwhile
            continue
    return found


class StandaloneCluster:
    """A master and some workers; a context manager that stops all that it started.

    Parameters
    ----------
    folder
        Where logs and the workers' folders go.
    workers
        How many, with one core each.
    python
        The interpreter of the executors' Python workers.
    environment
        Of all processes; by default that of this process.
    """

    def __init__(
        self,
        folder: Path,
        *,
        workers: int = 2,
        python: str = sys.executable,
        environment: dict[str, str] | None = None,
    ) -> None:
        self._folder = folder
        self._count = workers
        self._environment = {
            **(dict(os.environ) if environment is None else environment),
            "SPARK_HOME": str(spark_home()),
            "SPARK_LOCAL_IP": HOST,
            "SPARK_NO_DAEMONIZE": "1",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": SMALL_JVM,
            "SPARK_LOCAL_DIRS": str(folder / "local"),
            "PYSPARK_PYTHON": python,
        }
        self._master: subprocess.Popen[bytes] | None = None
        self._workers: list[subprocess.Popen[bytes]] = []
        self.url = ""

    @property
    def pids(self) -> list[int]:
        """The master's, then the workers'."""
        return [process.pid for process in self._processes()]

    def executors(self) -> list[int]:
        """The executors' JVMs, which are children of the workers."""
        return [
            child
            for worker in self._workers
            for child in descendants(worker.pid)
            if "CoarseGrainedExecutorBackend" in command_line(child)
        ]

    def __enter__(self) -> StandaloneCluster:
        self._folder.mkdir(parents=True, exist_ok=True)
        try:
            self._master = self._start("master", "master.Master", "--port", "0")
            self.url = self._seen("master", r"Starting Spark master at (spark://\S+)")
            for number in range(self._count):
                name = f"worker-{number}"
                limits = ["--cores", "1", "--memory", "1g", "--work-dir", str(self._folder / name)]
                self._workers.append(self._start(name, "worker.Worker", self.url, *limits))
            for number in range(self._count):
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
        for process in reversed(self._processes()):
            for pid in [*descendants(process.pid)]:
                _kill(pid)
            process.terminate()
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _processes(self) -> list[subprocess.Popen[bytes]]:
        return [process for process in (self._master, *self._workers) if process is not None]

    def _start(self, name: str, role: str, *arguments: str) -> subprocess.Popen[bytes]:
        command = [str(spark_home() / "bin" / "spark-class"), f"org.apache.spark.deploy.{role}", *arguments]
        with (self._folder / f"{name}.log").open("wb") as log:
            return subprocess.Popen(
                [*command, "--host", HOST, "--webui-port", "0"],
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def _seen(self, name: str, pattern: str) -> str:
        """What the pattern found in a process's log; its end is an error that shows the log."""
        log = self._folder / f"{name}.log"

        def look() -> str | None:
            match = re.search(pattern, log.read_text(errors="replace"))
            if match is None and self._processes()[-1].poll() is not None:
                raise RuntimeError(f"{name} ended: {log.read_text(errors='replace')[-2000:]}")
            return match.group(1) if match else None

        return wait_for(look, f"{name}: {pattern!r} in its log")


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except ProcessLookupError:
        return
