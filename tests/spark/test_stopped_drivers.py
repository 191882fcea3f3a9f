"""Writes that are stopped from outside: Ctrl-C, SIGTERM, SIGKILL, a disk that is full."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from sparkrobust import probe
from sparkrobust.core.names import LOCK_FILE
from sparkrobust.errors import OperationCancelled
from sparkrobust.probe import Point
from sparkrobust.spark.interrupts import Interrupts, Terminated
from sparkrobust.storage.local import LocalStorage
from sparkrobust.storage.locks import FileSystemLock
from tests.interop.tables import begin_marks, completed, options, pending
from tests.spark.tables import Subject, everything_in, leftovers

HERE = Path(__file__).parent
PATIENCE = 300
COLUMNS = "id int, ts bigint, region string"


class Driver:
    """The other process, and what it says."""

    def __init__(
        self, table: Path | str, fifo: Path, log: Path, program: str = "tests.spark.failing_driver"
    ) -> None:
        os.mkfifo(fifo)
        self._log = log
        self._fifo = fifo
        self.process = subprocess.Popen(
            [sys.executable, "-m", program, str(table), str(fifo)],
            stdout=subprocess.PIPE, stderr=log.open("w"), text=True, cwd=HERE.parents[1],
            env={**os.environ, "PYTHONPATH": str(HERE.parents[1])}, start_new_session=True,
        )  # fmt: skip
        # A driver that hangs ends the test by its silence.
        self._watchdog = threading.Timer(PATIENCE, self.process.kill)
        self._watchdog.start()

    def hears(self, about: str) -> dict[str, Any]:
        """Its next line, which has to be this one."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if line.startswith("{"):
                said: dict[str, Any] = json.loads(line)
                assert said["about"] == about, said
                return said
        raise AssertionError(f"the driver has ended:\n{self._log.read_text()[-3000:]}")

    def end(self, java: int | None) -> None:
        self._watchdog.cancel()
        self.process.kill()
        self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()
        if java is not None:
            until(lambda: not alive(java), "Java has ended with its driver")
        # Whoever still waits for the fifo goes on, and finds that its write is over.
        with contextlib.suppress(OSError):
            os.close(os.open(self._fifo, os.O_WRONLY | os.O_NONBLOCK))


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return not zombie(pid)


def zombie(pid: int) -> bool:
    """Ended, with nobody there who asks how: in a container without an init."""
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] == "Z"


def until(condition: Callable[[], object], what: str) -> None:
    """Look until it is so."""
    deadline = time.monotonic() + PATIENCE
    while not condition():
        assert time.monotonic() < deadline, f"never: {what}"
        time.sleep(0.05)


def staged_files(table: Path) -> list[Path]:
    return [file for file in table.glob(".hoodie/.robust/*/staging/*") if file.is_file()]


def test_a_write_that_is_stopped_is_rolled_back_and_one_that_was_killed_by_the_next_write(
    spark: SparkSession, table: Path, tmp_path: Path
) -> None:
    driver = Driver(table, tmp_path / "fifo", tmp_path / "log")
    java = None
    try:
        java = driver.hears("started")["java"]
        for number, word in ((signal.SIGINT, "Ctrl-C"), (signal.SIGTERM, "SIGTERM")):
            driver.hears("writing")
            until(lambda: staged_files(table), "a staged file")
            before = len(completed(table, "rollback"))
            os.kill(driver.process.pid, number)
            said = driver.hears("cancelled")
            assert f"stopped by {word} and rolled back" in said["message"] and str(table) in said["message"]
            assert len(completed(table, "rollback")) == before + 1
            assert not pending(table) and not staged_files(table)
            assert driver.hears("written")["rolled_back"] == []
        driver.hears("writing")
        until(lambda: staged_files(table), "a staged file")
        os.kill(driver.process.pid, signal.SIGKILL)
    finally:
        driver.end(java)

    (killed,) = {name.split(".")[0] for name in pending(table)}
    assert pending(table) == {f"{killed}.commit.requested", f"{killed}.inflight"}
    assert [mark for mark in begin_marks(table, killed) if mark.endswith(".marker.CREATE")]
    assert staged_files(table)
    subject = Subject(spark, table, options(), COLUMNS)
    assert {row[0] for row in subject.rows()} == set(range(5)), "what was killed shows nowhere"

    result = subject.write("upsert", [(9, 9, "new")])
    assert result.rolled_back == (killed,)
    assert {row[0] for row in subject.rows()} == {*range(5), 9}
    assert not pending(table) and not leftovers(table)
    rollback = completed(table, "rollback")[-1]
    names = {file.name for file in (table / ".hoodie" / "timeline").iterdir()}
    assert {f"{rollback.requested}.rollback.requested", f"{rollback.requested}.rollback.inflight"} <= names
    assert not [path for path in everything_in(table) if path.endswith(f"_{killed}.parquet")]
    assert not [name for name in names if name.startswith(killed)]


def in_a_mount_namespace(folder: Path) -> list[str]:
    """The beginning of a command that may mount a disk over a folder, for itself alone."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("mounting a disk for the test needs root and `unshare`")
    command = ["unshare", "--mount", "--propagation", "private"]
    if subprocess.run(
        [*command, "mount", "-t", "tmpfs", "none", str(folder)], capture_output=True
    ).returncode:
        pytest.skip("this machine lets nobody mount a tmpfs in a namespace")
    return command


def test_a_disk_that_is_full_or_read_only_fails_the_write_clean(tmp_path: Path) -> None:
    disk = tmp_path / "disk"
    disk.mkdir()
    command = in_a_mount_namespace(disk)
    done = subprocess.run(
        [*command, sys.executable, "-m", "tests.spark.on_a_small_disk", str(disk)],
        capture_output=True, text=True, timeout=PATIENCE, cwd=HERE.parents[1],
        env={**os.environ, "PYTHONPATH": str(HERE.parents[1])},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines()[-1:] == ["passed"]


def spark_fails_over(interrupt: type[BaseException]) -> BaseException:
    """What comes out of a call to Spark that fails while something interrupts it."""
    try:
        try:
            raise interrupt
        finally:
            raise ConnectionError("the answer is empty")
    except ConnectionError as error:
        return error


def test_an_interrupt_over_which_spark_fails_is_still_one() -> None:
    with Interrupts() as interrupts:
        assert isinstance(interrupts.behind(spark_fails_over(Terminated)), Terminated)
        assert interrupts.behind(spark_fails_over(ValueError)) is None


def test_an_interrupt_after_which_the_application_writes_has_not_stopped_that_write() -> None:
    try:
        raise KeyboardInterrupt
    except KeyboardInterrupt:
        with Interrupts() as interrupts:
            assert interrupts.behind(spark_fails_over(ValueError)) is None
            assert interrupts.behind(spark_fails_over(KeyboardInterrupt)) is not None


SHARED = {"hoodie.write.lock.provider": "FileSystemBasedLockProvider"}
ROW = [(1, "a", 5, "eu")]
each_signal = pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])


@each_signal
def test_a_signal_while_a_write_begins_waits_until_it_has_begun_and_then_the_write_is_rolled_back(
    number: signal.Signals, spark: SparkSession, table: Path
) -> None:
    subject = Subject(spark, table, options(**SHARED))
    subject.write("insert", ROW)
    reached: list[Point] = []

    def look(point: Point, facts: object) -> None:
        reached.append(point)
        if point is Point.GATE_OPENED:
            signal.raise_signal(number)

    before = signal.getsignal(number)
    with probe.listening(look), pytest.raises(OperationCancelled):
        subject.write("insert", [(2, "b", 5, "eu")])
    assert Point.INFLIGHT in reached and Point.STAGE_ENDED not in reached
    assert signal.getsignal(number) is before
    assert not pending(table) and not leftovers(table) and not (table / ".hoodie/lock").exists()
    assert subject.names() == {1: "a"}


@each_signal
def test_a_signal_while_a_write_waits_for_the_lock_stops_it_at_once(
    number: signal.Signals, spark: SparkSession, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    subject = Subject(spark, table, options(**SHARED))
    subject.write("insert", ROW)
    grip = FileSystemLock(LocalStorage(str(table)), LOCK_FILE).acquire("somebody", seconds=0)
    monkeypatch.setattr(FileSystemLock, "wait", lambda lock, seconds: signal.raise_signal(number))
    with pytest.raises(OperationCancelled):
        subject.write("insert", [(2, "b", 5, "eu")])
    assert grip.is_held()
    grip.release()
    assert not pending(table) and not leftovers(table) and subject.names() == {1: "a"}
