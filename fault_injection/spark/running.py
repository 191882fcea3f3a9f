"""A job that runs, and what happens to it: watches for the moments of faults, does them, and undoes them."""

from __future__ import annotations

import contextlib
import math
import queue
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, TypeAlias

from fault_injection.spark import faults as f
from fault_injection.spark.cluster import Executor
from fault_injection.spark.exchange import Hit, Run
from fault_injection.spark.inside import TASK
from fault_injection.spark.processes import (
    Known,
    descendants,
    kill,
    open_files,
    parent,
    send,
    wait_for,
)
from fault_injection.spark.report import Injected, Outcome, Report, reaction
from fault_injection.spark.session import JOB_SECONDS, Session

_STRAY_SECONDS = 30.0


class FaultNeverHappenedError(AssertionError):
    """A run in which a fault was planned whose moment never came says nothing about it."""

    def __init__(self, names: Sequence[str], vain: Mapping[str, str], report: Report) -> None:
        told = [*names, *(f"{name} ({why})" for name, why in vain.items())]
        super().__init__(f"never happened: {', '.join(told)}\n" + "\n".join(report.lines()))
        self.vain, self.report = vain, report


class _InVain(Exception):
    """The moment has come, and there was nothing or nobody left to do it to."""


@dataclass
class _Lasting:
    """A fault that has begun and is not over."""

    undo: Callable[[], object]
    ends_with: tuple[Known, ...] = ()
    """Processes that have nothing to do any more once the fault is over, and end; first who was hit."""
    deadline: float = math.inf


_Done: TypeAlias = "tuple[str, _Lasting | None]"
"""What there is to say about a deed, and how it is undone where it lasts."""


class Running:
    """A job that runs, and what happens to it."""

    def __init__(
        self, session: Session, run: Run, faults: Sequence[f.Fault], told: Callable[[Report], object]
    ) -> None:
        self.session, self._run, self._report = session, run, told
        self._faults = {fault.name: fault for fault in faults}
        self._began = time.monotonic()
        self._events = len(session.events())
        self._injected: list[Injected] = []
        self._lasting: dict[str, _Lasting] = {}
        self._seen: set[tuple[str, int]] = set()
        self._over: set[str] = set()
        self._vain: dict[str, str] = {}
        """Why faults whose moment has come did nothing."""
        self._told: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._strays: list[Known] = []
        self._old = {when: set(self._found(when)) for when in self._awaited() if when.new}
        self._answer: dict[str, Any] | None = None
        self._problem: BaseException | None = None
        self._thread = threading.Thread(target=self._watch, daemon=True)

    def start(self, request: dict[str, Any]) -> None:
        """Send the job, and begin to watch."""
        self.session.ask(**request)
        self._thread.start()

    # -- for tests ---------------------------------------------------------------------------------------

    def wait_for(self, name: str) -> None:
        """Until a fault has happened."""

        def look() -> bool:
            if self._problem is not None:
                raise self._problem
            return any(one.fault == name for one in self._injected)

        wait_for(look, f"the fault {name!r}")

    def end(self, name: str) -> None:
        """A fault whose end is ``Told()`` is over."""
        self._told.put(name)

    def result(self) -> Report:
        """When the job has ended, and every fault with it.

        Raises
        ------
        FaultNeverHappenedError
            One was planned, and its moment never came.
        """
        self._thread.join()
        if self._problem is not None:
            raise self._problem
        assert self._answer is not None
        text = self.session.events()[self._events :]
        report = Report(
            outcome=Outcome.of(self._answer, self.session.folder),
            injected=tuple(self._injected),
            notes=self._run.notes(),
            reaction=reaction(text),
            seconds=self._seconds,
        )
        self._report(report)
        happened = {one.fault for one in self._injected}
        never = [name for name in self._faults if name not in happened | self._vain.keys()]
        never += [
            f.ending(name)
            for name, fault in self._faults.items()
            if name in happened and not isinstance(fault.until, f.JobEnds) and name not in self._over
        ]
        if never or self._vain:
            raise FaultNeverHappenedError(never, self._vain, report)
        return report

    # -- watching ----------------------------------------------------------------------------------------

    def _watch(self) -> None:
        try:
            deadline = time.monotonic() + JOB_SECONDS
            while self._answer is None:
                self._look()
                self._answer = self.session.answer()
                if time.monotonic() > deadline:
                    self.session.kill()
                    raise TimeoutError(f"a job took more than {JOB_SECONDS:g} s; {self.session.last_words()}")
            self._look()
            if self._answer == {} and not self._was_killed():
                raise RuntimeError(f"the driver has ended by itself; {self.session.last_words()}")
        except BaseException as error:
            self._problem = error
        finally:
            self._seconds = time.monotonic() - self._began
            self._end_all()

    def _was_killed(self) -> bool:
        return any(one.deed == f.KillDriver.__name__ for one in self._injected)

    def _look(self) -> None:
        for hit in self._run.hits():
            if (hit.rule, hit.number) not in self._seen:
                self._seen.add((hit.rule, hit.number))
                self._happen(hit)
        for fault in self._faults.values():
            if fault.name not in self._vain and not any(one.fault == fault.name for one in self._injected):
                self._poll(fault.when, partial(self._begin, fault))
            elif fault.name in self._lasting:
                if time.monotonic() > self._lasting[fault.name].deadline:
                    self._finish(fault.name)
                self._poll(fault.until, partial(self._finish, fault.name))
        with contextlib.suppress(queue.Empty):
            self._finish(self._told.get_nowait())

    def _awaited(self) -> Iterator[f.Appears]:
        """The files whose appearance is the moment of something."""
        for fault in self._faults.values():
            for when in (fault.when, fault.until):
                if isinstance(when, f.Appears):
                    yield when

    def _found(self, when: f.Appears) -> Iterator[Path]:
        place = self.session.cluster.places.seen_from_here(Path(when.folder))
        return (found.relative_to(place) for found in place.glob(when.pattern))

    def _poll(self, when: f.When, then: Callable[..., None]) -> None:
        if isinstance(when, f.Appears):
            old = self._old.get(when, ())
            found = next((found for found in self._found(when) if found not in old), None)
            if found:
                then(what=f"{found} has appeared")
        elif isinstance(when, f.Opens):
            for executor in self.session.executors():
                for pid in (executor.pid, *descendants(executor.pid)):
                    opened = open_files(pid, writing=when.writing)
                    mine = [name for name in opened if fnmatch(name, when.pattern)]
                    if mine:
                        then(what=f"executor {executor.id} has {mine[0]} open", executor=executor)
                        return

    def _happen(self, hit: Hit) -> None:
        """Somebody was stopped."""
        name = hit.rule
        if name in self._faults:
            fault = self._faults[name]
            pid = self.session.cluster.places.pid(hit.pid)
            self._begin(fault, what=_described(hit), hit=hit, executor=self._executor(pid), pid=pid)
        else:
            begun = name.removesuffix(f.ending(""))
            self._finish(begun)
            self._run.let_go(name)

    def _executor(self, pid: int) -> Executor | None:
        """The executor that a Python worker belongs to."""
        above = {pid, parent(pid), parent(parent(pid))}
        return next((one for one in self.session.executors() if one.pid in above), None)

    # -- deeds -------------------------------------------------------------------------------------------

    def _begin(
        self,
        fault: f.Fault,
        *,
        what: str,
        hit: Hit | None = None,
        executor: Executor | None = None,
        pid: int = 0,
    ) -> None:
        how = self._DEEDS.get(type(fault.deed), Running._done_by_who_was_hit)
        try:
            if executor is None and isinstance(fault.deed, (f.KillExecutor, f.Outlive, f.Partition)):
                if hit is not None and hit.who == TASK:
                    raise _InVain("another fault had ended the task that came there")
                if not isinstance(fault.deed, f.KillExecutor):
                    raise ValueError(f"{fault.name}: it was no task that came there")
            more, lasting = how(self, fault, executor, pid)
        except _InVain as reason:
            self._vain[fault.name] = str(reason)
            self._run.let_go(fault.name)
            return
        at = (hit.seconds if hit else time.monotonic()) - self._began
        kind = type(fault.deed).__name__
        self._injected.append(Injected(fault=fault.name, seconds=at, what=what + more, deed=kind))
        if lasting is None:
            self._run.let_go(fault.name)
        else:
            lasting.deadline = time.monotonic() + fault.longest
            self._lasting[fault.name] = lasting

    def _done_by_who_was_hit(self, fault: f.Fault, executor: Executor | None, pid: int) -> _Done:
        return "", None

    def _kill_executor(self, fault: f.Fault, executor: Executor | None, pid: int) -> _Done:
        hurt = [executor] if executor else self.session.executors()
        # With its Python workers: one that was held here would else go on, until PySpark's daemon ends it.
        kill(*(pid for one in hurt for pid in (one.pid, *descendants(one.pid))))
        return f"; SIGKILL to executor {', '.join(one.id for one in hurt)}", None

    def _outlive(self, fault: f.Fault, executor: Executor | None, pid: int) -> _Done:
        assert executor is not None
        kill(executor.pid)
        then = _Lasting(lambda: self._run.let_go(fault.name), (Known.now(pid),))
        return f"; SIGKILL to executor {executor.id}, and not to its Python worker", then

    def _partition(self, fault: f.Fault, executor: Executor | None, pid: int) -> _Done:
        assert executor is not None
        places = self.session.cluster.places
        host = places.host(executor.worker)
        places.cut(host)
        deed = fault.deed
        assert isinstance(deed, f.Partition)
        frozen = [executor.pid, *descendants(executor.pid)] if deed.frozen else []
        send(signal.SIGSTOP, frozen)

        def heal() -> None:
            send(signal.SIGCONT, frozen)
            self._run.let_go(fault.name)
            # Where it can be reached again it is soon told to end.
            time.sleep(deed.alone)
            places.heal(host)

        hit = Known.now(pid or executor.pid), Known.now(executor.pid)
        return f"; {host.name} is cut off", _Lasting(heal, hit)

    def _hold(self, fault: f.Fault, executor: Executor | None, pid: int) -> _Done:
        return "", _Lasting(lambda: self._run.let_go(fault.name))

    def _lose_shuffle(self, fault: f.Fault, executor: Executor | None, pid: int) -> _Done:
        lost = self.session.cluster.lose_shuffles()
        if not lost:
            raise _InVain("there was no shuffle file")
        return f"; {lost} shuffle files deleted", None

    def _kill_driver(self, fault: f.Fault, executor: Executor | None, pid: int) -> _Done:
        self.session.kill()
        return "; SIGKILL to the driver", None

    def _freeze_driver(self, fault: f.Fault, executor: Executor | None, pid: int) -> _Done:
        session = self.session
        session.freeze()
        self._run.let_go(fault.name)
        return "; SIGSTOP to the driver", _Lasting(session.wake)

    def _fill_disk(self, fault: f.Fault, executor: Executor | None, pid: int) -> _Done:
        assert isinstance(fault.deed, f.FillDisk)
        balloon = self.session.cluster.places.seen_from_here(Path(fault.deed.folder)) / ".full"
        size = _fill(balloon)
        self._run.let_go(fault.name)
        return f"; {size:,} bytes more, and the disk is full", _Lasting(balloon.unlink)

    def _seal(self, fault: f.Fault, executor: Executor | None, pid: int) -> _Done:
        assert isinstance(fault.deed, f.Seal)
        places, folder = self.session.cluster.places, Path(fault.deed.folder)
        places.seal(folder)
        self._run.let_go(fault.name)
        return f"; {folder} is read-only", _Lasting(lambda: places.unseal(folder))

    _DEEDS: ClassVar[Mapping[type, Callable[[Running, f.Fault, Executor | None, int], _Done]]] = {
        f.KillExecutor: _kill_executor,
        f.Outlive: _outlive,
        f.Partition: _partition,
        f.Hold: _hold,
        f.LoseShuffle: _lose_shuffle,
        f.KillDriver: _kill_driver,
        f.FreezeDriver: _freeze_driver,
        f.FillDisk: _fill_disk,
        f.Seal: _seal,
    }

    def _finish(self, name: str, **_: object) -> None:
        """A fault is over."""
        lasting = self._lasting.pop(name, None)
        if lasting is not None:
            if lasting.ends_with and lasting.ends_with[0].is_gone:
                self._vain[f.ending(name)] = "who was to go on had ended before"
            lasting.undo()
            self._over.add(name)
            self._strays += lasting.ends_with
            at = time.monotonic() - self._began
            self._injected.append(Injected(fault=f.ending(name), seconds=at, what="is over"))

    def _end_all(self) -> None:
        """Everything that is not over yet is now, and nobody acts any more who has outlived the job."""
        for name in list(self._lasting):
            self._finish(name)
        for name in self._faults:
            self._run.let_go(name)
            self._run.let_go(f.ending(name))
        try:
            wait_for(lambda: all(one.is_gone for one in self._strays), "the end of strays", _STRAY_SECONDS)
        except TimeoutError:
            # Spark may take long to tell an executor that it was given up; its task has had the time to end.
            for one in self._strays:
                one.kill()


def _described(hit: Hit) -> str:
    known = ", ".join(f"{name} {value}" for name, value in hit.facts.items())
    return f"a {hit.who} was there ({known})" if known else f"a {hit.who} was there"


def _fill(balloon: Path) -> int:
    """Take every byte that the disk has left; how many those were."""
    with balloon.open("wb", buffering=0) as file:
        piece = 1 << 20
        while piece:
            try:
                file.write(b"\0" * piece)
            except OSError:
                piece //= 2
        return file.tell()
