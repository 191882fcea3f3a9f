"""What is shown while a write runs, and that nothing is where it would disturb."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from sparkrobust import probe
from sparkrobust.core.instant import InstantTime
from sparkrobust.core.names import ControlFolder
from sparkrobust.errors import UnavailableError
from sparkrobust.options import Progress
from sparkrobust.probe import Point
from sparkrobust.spark import progress
from sparkrobust.spark.progress import Bar, Lines, Stand, View, Watch, view_for
from sparkrobust.storage.memory import MemoryStorage
from sparkrobust.world import Clock
from tests.interop.tables import options
from tests.spark.tables import Subject

FOLDER = ControlFolder(instant=InstantTime("20240101000000000"), nonce="ab")


class Shown(View):
    """Remembers what it was to show."""

    def __init__(self) -> None:
        self.stands: list[Stand] = []
        self.closed = 0

    def show(self, stand: Stand) -> None:
        self.stands.append(stand)

    def close(self) -> None:
        self.closed += 1


class Hand(Clock):
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def elapsed(self) -> float:
        return self.seconds


@pytest.fixture
def storage(tmp_path: Path) -> MemoryStorage:
    storage = MemoryStorage(str(tmp_path))
    storage.make_folder(FOLDER.completions)
    return storage


def watch(storage: MemoryStorage) -> tuple[Watch, Shown, Hand]:
    view, clock = Shown(), Hand()
    return Watch("upsert into t", storage, view, clock), view, clock


def test_a_write_that_is_over_soon_shows_nothing(storage: MemoryStorage) -> None:
    watched, view, clock = watch(storage)
    clock.seconds = 1.9
    watched.tick()
    assert view.stands == []


def test_the_slots_that_are_done_are_counted_by_their_completion_markers(storage: MemoryStorage) -> None:
    watched, view, clock = watch(storage)
    watched.told(Point.STEP_BEGUN, {"step": "write"})
    watched.told(Point.GATE_OPENED, {"folder": FOLDER, "slots": 4})
    for done in range(4):
        clock.seconds += 3
        watched.tick()
        storage.put_if_absent(FOLDER.completion(done), b"")
    watched.told(Point.STAGE_ENDED, {})
    watched.told(Point.STEP_BEGUN, {"step": "complete"})
    clock.seconds += 3
    watched.tick()
    shown = [str(stand) for stand in view.stands]
    assert shown[0] == "upsert into t: write 0/4 slots, 3 s"
    assert shown[3] == "upsert into t: write 3/4 slots, 12 s"
    assert shown[4] == "upsert into t: complete, 15 s"
    watched.close()
    watched.tick()
    assert view.closed == 1 and len(view.stands) == 5


def test_a_store_that_does_not_answer_only_delays_what_is_shown(storage: MemoryStorage) -> None:
    watched, view, clock = watch(storage)
    watched.told(Point.GATE_OPENED, {"folder": FOLDER, "slots": None})

    def away(folder: str) -> Any:
        raise UnavailableError("no answer")

    storage.names = away  # type: ignore[method-assign]
    clock.seconds = 3
    watched.tick()
    assert [str(stand) for stand in view.stands] == ["upsert into t: begin 0 slots, 3 s"]


def test_writes_of_other_threads_are_not_mixed_in(storage: MemoryStorage) -> None:
    watched, view, clock = watch(storage)
    other = threading.Thread(target=lambda: watched.told(Point.STEP_BEGUN, {"step": "of another"}))
    other.start()
    other.join()
    clock.seconds = 3
    watched.tick()
    assert view.stands[0].step == "begin"


def stand(step: str, seconds: float) -> Stand:
    return Stand(what="upsert into t", step=step, seconds=seconds)


def test_lines_say_each_step_and_long_ones_now_and_then() -> None:
    stream = io.StringIO()
    lines = Lines(stream)
    for seconds in (2, 3, 4, 13, 14, 15):
        lines.show(stand("read" if seconds < 4 else "write", seconds))
    assert stream.getvalue().splitlines() == [
        "sparkrobust: upsert into t: read, 2 s",
        "sparkrobust: upsert into t: write, 4 s",
        "sparkrobust: upsert into t: write, 14 s",
    ]


def test_the_log_gets_lines_where_nobody_looks_on(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "sparkrobust"):
        Lines(None).show(stand("read", 2))
    assert [record.getMessage() for record in caplog.records] == ["upsert into t: read, 2 s"]


def _read_to_the_end(terminal: int) -> str:
    """What was written to a terminal until its other side was closed."""
    pieces = []
    with contextlib.suppress(OSError):  # how Linux says that nobody writes any more
        while piece := os.read(terminal, 1 << 16):
            pieces.append(piece)
    return b"".join(pieces).decode()


def test_a_bar_is_drawn_on_a_terminal_and_gone_at_the_end() -> None:
    reading, writing = os.openpty()
    # Read meanwhile, and to its end: on a slow machine a bar is drawn more often than a terminal can hold.
    with ThreadPoolExecutor(1) as reader:
        everything = reader.submit(_read_to_the_end, reading)
        with os.fdopen(writing, "w") as terminal:
            bar = Bar(terminal)
            bar.show(Stand(what="upsert into t", step="write", seconds=3, done=2, slots=8))
            bar.close()
        drawn = everything.result()
    os.close(reading)
    assert "upsert into t: write" in drawn and "2/8 slots" in drawn
    assert drawn.rindex("\x1b[2K") > drawn.index("upsert"), "the line is wiped"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("chosen", "where", "expected"),
    [
        (Progress.OFF, "terminal", type(None)),
        (Progress.AUTO, "terminal", Bar),
        (Progress.AUTO, "notebook", Lines),
        (Progress.AUTO, "log", Lines),
        (Progress.ON, "log", Lines),
        (Progress.AUTO, "terminal with Spark's bar", Lines),
    ],
)
def test_the_view_is_the_one_that_its_user_would_look_at(
    chosen: Progress, where: str, expected: type, spark: SparkSession, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stderr", Terminal() if where.startswith("terminal") else io.StringIO())
    if where == "notebook":
        monkeypatch.setitem(sys.modules, "ipykernel", sys)
    if "Spark" in where:
        monkeypatch.setattr(progress, "_spark_draws", lambda spark: True)
    view = view_for(spark, chosen)
    assert type(view) is expected
    if isinstance(view, Lines):
        stream = {"notebook": sys.stdout, "log": sys.stderr if chosen is Progress.ON else None}.get(where)
        assert view._stream is stream


class Log:
    """What applications put in place of a stream, to have all of it in their log."""

    def write(self, text: str) -> None:
        raise ValueError("I/O operation on closed file")

    def flush(self) -> None:
        raise ValueError("I/O operation on closed file")


def closed() -> io.StringIO:
    stream = io.StringIO()
    stream.close()
    return stream


@pytest.mark.parametrize("chosen", [Progress.AUTO, Progress.ON])
@pytest.mark.parametrize("stream", [Log(), closed(), None], ids=["no stream", "closed", "none"])
def test_a_write_succeeds_whatever_stands_where_it_would_be_shown(
    stream: Any, chosen: Progress, spark: SparkSession, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "_QUIET_SECONDS", 0.0)
    monkeypatch.setattr(progress, "_TICK_SECONDS", 0.01)
    monkeypatch.setattr(sys, "stderr", stream)
    subject = Subject(spark, table, options())
    rows = [(1, "a", 1, "eu")]
    assert subject.write("insert", rows, {"hoodie.write.robust.progress": chosen.value}).inserted == 1


def test_a_write_tells_its_steps_and_shows_them_where_that_is_wanted(
    spark: SparkSession, table: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(progress, "_QUIET_SECONDS", 0.0)
    monkeypatch.setattr(progress, "_TICK_SECONDS", 0.01)
    subject = Subject(spark, table, options())
    steps: list[str] = []

    def listen(point: Point, facts: dict[str, Any]) -> None:
        if point is Point.STEP_BEGUN:
            steps.append(facts["step"])
        elif point is Point.STAGE_ENDED:
            steps.append("(stage ended)")

    with probe.listening(listen):
        subject.write("upsert", [(1, "a", 5, "eu")], {"hoodie.write.robust.progress": "on"})
    assert steps[0] == "read" and steps[-4:] == ["(stage ended)", "reconcile", "complete", "clean up"]
    shown = capfd.readouterr().err
    assert "sparkrobust: upsert into " in shown and str(table) in shown
    subject.write("upsert", [(2, "a", 5, "eu")], {"hoodie.write.robust.progress": "off"})
    assert "sparkrobust: " not in capfd.readouterr().err
