"""How far a write is, for who waits for it: a bar in a terminal, lines in a notebook, else the log.

Steps come from the probe.  How many slots are done is counted where tasks say so, among the completion
markers: that is true for every Spark, over Spark Connect too.  A write that is over soon shows nothing.
"""

from __future__ import annotations

import logging
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from importlib import import_module
from typing import Any, TextIO

from pyspark.sql import SparkSession

from sparkrobust import probe
from sparkrobust.core.names import ControlFolder
from sparkrobust.errors import RobustWriteError
from sparkrobust.options import Progress
from sparkrobust.probe import Point
from sparkrobust.storage.contract import Storage
from sparkrobust.world import Clock, Hands

_log = logging.getLogger("sparkrobust")

_TICK_SECONDS = 0.5
_QUIET_SECONDS = 2.0
"""Nothing is shown before a write takes so long."""
_COUNT_SECONDS = 2.0
"""Between two looks at the completion markers."""
_LINE_SECONDS = 10.0
"""Between two lines that say the same step."""


@dataclass(frozen=True, kw_only=True)
class Stand:
    """How far a write is."""

    what: str
    step: str
    seconds: float
    done: int | None = None
    """Slots; ``None`` in steps that have none."""
    slots: int | None = None
    """How many there are, where that is known."""

    def __str__(self) -> str:
        of = "" if self.slots is None else f"/{self.slots}"
        count = "" if self.done is None else f" {self.done}{of} slots"
        return f"{self.what}: {self.step}{count}, {self.seconds:.0f} s"


class View(ABC):
    """Where it is shown."""

    @abstractmethod
    def show(self, stand: Stand) -> None: ...

    @abstractmethod
    def close(self) -> None:
        """The write has ended."""


class Lines(View):
    """A line for each step, and one now and then within a long one."""

    def __init__(self, stream: TextIO | None) -> None:
        self._stream = stream
        """``None``: the log."""
        self._step, self._last = "", 0.0

    def show(self, stand: Stand) -> None:
        if stand.step == self._step and stand.seconds - self._last < _LINE_SECONDS:
            return
        self._step, self._last = stand.step, stand.seconds
        if self._stream is None:
            _log.info("%s", stand)
        else:
            self._stream.write(f"sparkrobust: {stand}\n")
            self._stream.flush()

    def close(self) -> None:
        """Nothing: what was said stays."""


class Bar(View):
    """A line of a terminal that changes, and is gone at the end; drawn by rich."""

    def __init__(self, stream: TextIO) -> None:
        rich, console = import_module("rich.progress"), import_module("rich.console").Console(file=stream)
        columns = (
            rich.TextColumn("{task.description}"),
            rich.BarColumn(),
            rich.TextColumn("{task.fields[count]}"),
            rich.TimeElapsedColumn(),
        )
        self._bar = rich.Progress(*columns, console=console, transient=True)
        self._task = self._bar.add_task("", total=None, count="")
        self._begun = False

    def show(self, stand: Stand) -> None:
        if not self._begun:
            self._begun = True
            self._bar.start()
        count = "" if stand.done is None else f"{stand.done}/{stand.slots or '?'} slots"
        self._bar.update(
            self._task,
            description=f"{stand.what}: {stand.step}",
            completed=stand.done or 0,
            total=stand.slots,
            count=count,
        )

    def close(self) -> None:
        if self._begun:
            self._bar.stop()


class Watch:
    """Follows the write of one thread, and shows it."""

    def __init__(self, what: str, storage: Storage, view: View, clock: Clock) -> None:
        self._what, self._storage, self._view, self._clock = what, storage, view, clock
        self._thread = threading.get_ident()
        self._started = clock.elapsed()
        self._guard = threading.Lock()
        self._step = "begin"
        self._folder: ControlFolder | None = None
        self._slots: int | None = None
        self._done, self._counted = 0, 0.0
        self._over = False

    def told(self, point: Point, facts: dict[str, Any]) -> None:
        """What the probe says; of other writes in this process too."""
        if threading.get_ident() != self._thread:
            return
        if point is Point.STEP_BEGUN:
            self._step = facts["step"]
        elif point in (Point.GATE_OPENED, Point.OVERTAKEN):
            self._folder, self._slots = facts["folder"], facts["slots"]
        elif point in (Point.STAGE_ENDED, Point.ABORT_DECIDED):
            self._folder = None

    def tick(self) -> None:
        """Show how far it is by now."""
        seconds = self._clock.elapsed() - self._started
        if seconds < _QUIET_SECONDS:
            return
        done = self._count(seconds)
        stand = Stand(what=self._what, step=self._step, seconds=seconds, done=done, slots=self._slots)
        # Where it is shown may be closed by now, or be no whole stream: that is no matter of the write.
        with self._guard, suppress(Exception):
            if not self._over:
                self._view.show(stand)

    def _count(self, seconds: float) -> int | None:
        folder = self._folder
        if folder is None:
            return None
        if seconds - self._counted >= _COUNT_SECONDS:
            self._counted = seconds
            with suppress(RobustWriteError):  # shown again at the next look
                self._done = sum(1 for _ in self._storage.names(folder.completions))
        return self._done

    def close(self) -> None:
        with self._guard:
            self._over = True
            self._view.close()


@contextmanager
def watching(
    spark: SparkSession, chosen: Progress, what: str, storage: Storage, clock: Clock, hands: Hands
) -> Iterator[None]:
    """Show how far the write is that this thread does in the block."""
    view = view_for(spark, chosen)
    if view is None:
        yield
        return
    watch = Watch(what, storage, view, clock)
    with probe.listening(watch.told):
        stop = hands.every(_TICK_SECONDS, watch.tick)
        try:
            yield
        finally:
            stop()
            with suppress(Exception):  # nobody looks any more; how the write ended stays
                watch.close()


def view_for(spark: SparkSession, chosen: Progress) -> View | None:
    """Where this application's user would look, without disturbing what else is shown there."""
    if chosen is Progress.OFF:
        return None
    if "ipykernel" in sys.modules:
        return Lines(sys.stdout)
    if _is_terminal(sys.stderr) and not _spark_draws(spark):
        with suppress(ImportError):
            return Bar(sys.stderr)
        return Lines(sys.stderr)
    return Lines(sys.stderr) if chosen is Progress.ON else Lines(None)


def _is_terminal(stream: object) -> bool:
    """Whether it is one; what an application has put in place of a stream may know no such question."""
    try:
        return bool(stream.isatty())  # type: ignore[attr-defined]
    except Exception:
        return False


def _spark_draws(spark: SparkSession) -> bool:
    """Whether Spark has its own bar on the terminal's last line."""
    return spark.conf.get("spark.ui.showConsoleProgress", "false") == "true"
