"""Ctrl-C and SIGTERM during a write: the Spark job is cancelled, the write rolled back, the user told.

And the group of a write's jobs, which knows what became of them.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from types import FrameType
from typing import TYPE_CHECKING, Any

from pyspark.sql import SparkSession

from sparkrobust.core.outcome import tell_committed
from sparkrobust.errors import OperationCancelled
from sparkrobust.spark.frames import is_remote
from sparkrobust.storage.patience import Patience

if TYPE_CHECKING:  # a client of Spark Connect alone has none of these
    from pyspark import SparkJobInfo, StatusTracker

_THAT_WAIT = (signal.SIGINT, signal.SIGTERM)
_TOLD = ("outcome", "path", "instant")
_Handler = Callable[[int, FrameType | None], Any] | int | signal.Handlers | None


class Terminated(KeyboardInterrupt):
    """SIGTERM came.  No ``Exception``, so that nothing on the way up takes it for a failed call."""


def _raise_terminated(number: int, frame: FrameType | None) -> None:
    raise Terminated


def _is_of_pyspark(handler: _Handler) -> bool:
    """Whether a context has set it: it would talk to Java over the very connection that it interrupts."""
    return (getattr(handler, "__module__", None) or "").startswith("pyspark.")


class Interrupts:
    """SIGTERM raises in the block, as Ctrl-C does, but for stretches that must not be cut.

    Only Python's main thread can arrange that, and only where the application has no idea of its
    own about these signals.  What comes in an undisturbed stretch waits until the write gives in to it,
    and no longer than for the end of the block.

    Parameters
    ----------
    path
        The table, to be named to who is interrupted too late.
    """

    def __init__(self, path: str = "") -> None:
        self._path = path
        self._main = threading.current_thread() is threading.main_thread()
        self._before: dict[signal.Signals, _Handler] = {}
        self._outside: dict[signal.Signals, _Handler] = {}
        """What is done at a signal outside of the undisturbed stretch that this is."""
        self._late: list[int] = []
        self._earlier: BaseException | None = None
        self.too_late = False
        """The write is durable: what comes now stops the application, and not the write."""

    def __enter__(self) -> Interrupts:
        # The application may be writing because it was interrupted before.
        self._earlier = sys.exc_info()[1]
        if self._main and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
            self._before[signal.SIGTERM] = signal.signal(signal.SIGTERM, _raise_terminated)
        if self._main and _is_of_pyspark(signal.getsignal(signal.SIGINT)):
            self._before[signal.SIGINT] = signal.signal(signal.SIGINT, signal.default_int_handler)
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, *trace: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        if isinstance(error, KeyboardInterrupt):
            # It came when all was over but for what the block itself ends with.
            self._tell(error, error.__context__)
        elif self._late and not isinstance(error, OperationCancelled):
            # Too late to stop the write, which has ended by itself; the application gets it now.
            try:
                signal.raise_signal(self._late[0])
            except BaseException as interrupt:
                self._tell(interrupt, error)
                raise interrupt from error

    def _tell(self, interrupt: BaseException, error: BaseException | None) -> None:
        """Have it say how the write has ended, as the error did that it takes the place of."""
        if self.too_late:
            tell_committed(interrupt, path=self._path)
        elif error is not None and error is not self._earlier:
            said = vars(error)
            vars(interrupt).update({name: said[name] for name in _TOLD if name in said})

    def behind(self, error: BaseException) -> KeyboardInterrupt | None:
        """What interrupted the block, if that led to the error: Spark may fail while it is interrupted."""
        found: BaseException | None = error
        while found is not None and found is not self._earlier:
            if isinstance(found, KeyboardInterrupt):
                return found
            found = found.__context__
        return None

    @contextlib.contextmanager
    def undisturbed(self) -> Iterator[None]:
        """While a write begins, commits or is rolled back, Ctrl-C and SIGTERM have to wait."""
        if not self._main:
            yield
            return
        outside, self._outside = self._outside, {n: signal.getsignal(n) for n in _THAT_WAIT}
        try:
            for number in _THAT_WAIT:
                signal.signal(number, self._later)
            yield
        finally:
            self._let_through()
            self._outside = outside

    @contextlib.contextmanager
    def disturbed(self) -> Iterator[None]:
        """In an undisturbed stretch: here nothing is under way that must not be cut, as while it waits."""
        try:
            self._let_through()
            self.give_in()
            yield
        finally:
            for number in self._outside:
                signal.signal(number, self._later)

    def give_in(self) -> None:
        """To what came while it had to wait, if anything did."""
        while self._late:
            signal.raise_signal(self._late.pop(0))

    def _later(self, number: int, frame: FrameType | None) -> None:
        self._late.append(number)

    def _let_through(self) -> None:
        for number, handler in self._outside.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)


class JobGroup:
    """The Spark jobs of one write, so that they can be cancelled together."""

    _KEYS = ("spark.jobGroup.id", "spark.job.description", "spark.job.interruptOnCancel")

    def __init__(self, spark: SparkSession, name: str, description: str) -> None:
        self._spark, self._name, self._description = spark, name, description
        # Spark Connect has no context; its jobs are tagged instead.
        self._context = None if is_remote(spark) else spark.sparkContext
        self._before: dict[str, str | None] = {}

    def __enter__(self) -> JobGroup:
        if self._context is None:
            self._spark.addTag(self._name)
            return self
        self._before = {key: self._context.getLocalProperty(key) for key in self._KEYS}
        self._context.setJobGroup(self._name, self._description, interruptOnCancel=True)
        return self

    def __exit__(self, *details: object) -> None:
        with contextlib.suppress(Exception):  # Spark is away; how the write ended stays
            if self._context is None:
                self._spark.removeTag(self._name)
            for key, value in self._before.items():
                # Nothing unsets a property but a null, which the signature does not show.
                self._context.setLocalProperty(key, value)  # type: ignore[union-attr, arg-type]

    def cancel(self) -> None:
        """Stop the jobs; the tasks that run are interrupted."""
        if self._context is None:
            self._spark.interruptTag(self._name)
        else:
            self._context.cancelJobGroup(self._name)

    def jobs(self) -> list[int]:
        """Those that were begun so far; over Spark Connect nobody can tell."""
        return [] if self._context is None else list(self._tracker.getJobIdsForGroup(self._name))

    def have_repeated(self, since: Sequence[int]) -> bool:
        """Whether Spark ran a part of a stage again for the jobs since then, which have ended."""
        for job in set(self.jobs()) - set(since):
            info = self._known_to_have_ended(job)
            stages = [] if info is None else [self._tracker.getStageInfo(stage) for stage in info.stageIds]
            if any(stage is not None and stage.currentAttemptId > 0 for stage in stages):
                return True
        return False

    @property
    def _tracker(self) -> StatusTracker:
        assert self._context is not None
        return self._context.statusTracker()

    def _known_to_have_ended(self, job: int) -> SparkJobInfo | None:
        # The tracker hears of all that happens in its order, and may be a little late.
        for _ in Patience(tries=200, first_pause=0.001, longest_pause=0.05).attempts():
            info = self._tracker.getJobInfo(job)
            if info is None or info.status != "RUNNING":
                return info
        return None
