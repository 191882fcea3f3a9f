"""The targets, and whether what was measured meets them.

A target compares medians. What one of its two sides lacks is reported as not measured, never as a pass.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from statistics import median

from benchmarks.parts import cost, lock, requests, slots, writers
from benchmarks.parts.memory_use import ABOVE_SPARK, JVM_ABOVE_SPARK, MERGE_WORKER
from benchmarks.parts.one_row import INSERT, OURS, SPREAD, TOGETHER, UPSERT
from benchmarks.parts.planning import OWN, PLANNING, WHOLE
from benchmarks.parts.table_work import FLOOR, READ, SAME_FILES
from benchmarks.workload import Workload

Times = Mapping[str, Mapping[str, list[float]]]


def told(seconds: float) -> str:
    """A time as people read it."""
    return f"{seconds:.2f} s" if seconds >= 0.1 else f"{1000 * seconds:.2f} ms"


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """One target, what was measured, and whether that is a pass (``None``: not measured)."""

    subject: str
    target: str
    measured: str
    passed: bool | None
    processor: str = ""


@dataclass(frozen=True, kw_only=True)
class Ratio:
    """A median of ours divided by the median of another."""

    step: str
    over: str
    limit: float
    over_step: str | None = None
    ours: str = OURS

    def _sides(self, times: Times) -> tuple[list[float] | None, list[float] | None]:
        other_step = self.over_step or self.step
        return times.get(self.step, {}).get(self.ours), times.get(other_step, {}).get(self.over)

    def judge(self, times: Times, processor: Times) -> Verdict:
        """Compare the two medians; the ratio of processor times stands beside, for noisy machines."""
        mine, other = self._sides(times)
        other_step = self.over_step or self.step
        over = self.over if other_step == self.step else f"{self.over} {other_step}"
        mine_named = self.step if self.ours == OURS else f"{self.step}, {self.ours}"
        subject, target = f"{mine_named} / {over}", f"<= {self.limit:.3g} x"
        if not mine or not other:
            return Verdict(subject=subject, target=target, measured="not measured", passed=None)
        ratio = median(mine) / median(other)
        measured = f"{ratio:.2f} x ({told(median(mine))} / {told(median(other))})"
        used, other_used = self._sides(processor)
        beside = f"{median(used) / median(other_used):.2f} x" if used and other_used else ""
        passed = ratio <= self.limit
        return Verdict(subject=subject, target=target, measured=measured, passed=passed, processor=beside)


@dataclass(frozen=True, kw_only=True)
class Seconds:
    """A median in seconds."""

    step: str
    contestant: str
    limit: float

    def judge(self, times: Times) -> Verdict:
        """Compare the median with the limit."""
        subject, target = f"{self.step}: {self.contestant}", f"< {self.limit:g} s"
        measured = times.get(self.step, {}).get(self.contestant)
        if not measured:
            return Verdict(subject=subject, target=target, measured="not measured", passed=None)
        value = median(measured)
        return Verdict(subject=subject, target=target, measured=f"{value:.2f} s", passed=value < self.limit)


@dataclass(frozen=True, kw_only=True)
class Overhead:
    """How much longer the robust writer takes than the bare one; the machine's noise is about 2 %."""

    step: str
    limit: float

    def judge(self, times: Times, processor: Times) -> Verdict:
        """Compare the medians; beside it stands the same of the processor's time."""
        subject, target = f"{self.step}: the protocol's share", f"<= {self.limit:.0%}"
        on, off = (times.get(self.step, {}).get(mode) for mode in (cost.ON, cost.OFF))
        if not on or not off:
            return Verdict(subject=subject, target=target, measured="not measured", passed=None)
        share = median(on) / median(off) - 1
        used, bare = processor[self.step][cost.ON], processor[self.step][cost.OFF]
        pairs = median(one / other for one, other in zip(on, off, strict=True)) - 1
        return Verdict(
            subject=subject,
            target=target,
            measured=f"{share:+.1%} ({median(on):.3f} s / {median(off):.3f} s), by pairs {pairs:+.1%}",
            passed=share <= self.limit,
            processor=f"{median(used) / median(bare) - 1:+.1%}",
        )


@dataclass(frozen=True, kw_only=True)
class PerFile:
    """Small requests for each data file, besides those of its upload."""

    write: str
    limit: float

    def judge(self, counted: Mapping[str, Mapping[str, float]]) -> Verdict:
        """Compare the count with the limit."""
        subject, target = f"requests to S3, {self.write}: {requests.SMALL}", f"<= {self.limit:g}"
        value = counted.get(self.write, {}).get(requests.SMALL)
        if value is None:
            return Verdict(subject=subject, target=target, measured="not measured", passed=None)
        return Verdict(subject=subject, target=target, measured=f"{value:.2f}", passed=value <= self.limit)


@dataclass(frozen=True, kw_only=True)
class Megabytes:
    """A peak in megabytes."""

    what: str
    limit: float

    def judge(self, megabytes: Mapping[str, float]) -> Verdict:
        """Compare the peak with the limit."""
        target, value = f"< {self.limit:g} MB", megabytes.get(self.what)
        if value is None:
            return Verdict(subject=self.what, target=target, measured="not measured", passed=None)
        measured = f"{value:.0f} MB"
        return Verdict(subject=self.what, target=target, measured=measured, passed=value < self.limit)


RATIOS = (
    Ratio(step="bulk", over="plain", limit=0.8),
    Ratio(step="bulk", over="hudi", limit=0.2),
    Ratio(step="bulk", over="iceberg", limit=0.7),
    Ratio(step="upsert", over="hudi", limit=0.15),
    Ratio(step="upsert", over="iceberg", limit=0.35),
    Ratio(step="upsert", over=FLOOR, limit=2.5),
    Ratio(step="one_partition", over="hudi", limit=0.2),
    Ratio(step="one_partition", over="iceberg", limit=0.8),
    Ratio(step="delete", over="hudi", limit=0.2),
    Ratio(step="delete", over="iceberg", limit=0.8),
    Ratio(step=READ, over=SAME_FILES, limit=1.1),
    Ratio(step=INSERT, over="hudi", limit=0.2),
    Ratio(step=UPSERT, over="hudi", limit=0.2),
    Ratio(step=INSERT, over="delta", limit=0.9),
    Ratio(step=UPSERT, over="delta", over_step=INSERT, limit=0.9),
    # Three times as many commits in a second.
    *(
        Ratio(step=writers.step_of(kind), over="hudi", limit=1 / 3)
        for kind in (writers.IN_PROCESS, writers.FILE, writers.FILE_GOOD_CLOCKS)
    ),
    Ratio(
        step=writers.step_of(writers.IN_PROCESS),
        over="delta",
        over_step=writers.step_of(writers.DELTAS_OWN),
        limit=1.0,
    ),
)
OVERHEADS = (
    Overhead(step=cost.BULK, limit=0.03),
    Overhead(step=cost.UPSERT, limit=0.03),
    Overhead(step=cost.SMALL_FILES, limit=0.05),
)
PER_FILE = tuple(PerFile(write=write, limit=5) for write in (requests.BULK, requests.UPSERT))
SECONDS = (
    Seconds(step=PLANNING, contestant=WHOLE, limit=1.0),
    Seconds(step=PLANNING, contestant=OWN, limit=1.0),
)
MEGABYTES = (
    Megabytes(what=MERGE_WORKER, limit=1024),
    Megabytes(what=f"{ABOVE_SPARK}, read by sparkrobust", limit=200),
    Megabytes(what=f"{ABOVE_SPARK}, upsert of one row", limit=200),
    Megabytes(what=f"{JVM_ABOVE_SPARK}, read by sparkrobust", limit=200),
    Megabytes(what=f"{JVM_ABOVE_SPARK}, upsert of one row", limit=200),
)


def growth(workload: Workload) -> Iterator[Ratio]:
    """The targets of growth, whose contestants are the sizes of the tables."""
    for step in (INSERT, UPSERT):
        for kind, few, many in (
            ("instants", workload.few_instants, workload.many_instants),
            (SPREAD, workload.few_files, workload.many_files),
            (TOGETHER, workload.few_files, workload.many_files),
        ):
            yield Ratio(step=f"{step}, {kind}", ours=str(many), over=str(few), limit=1.3)


def under_the_lock(workload: Workload) -> Iterator[Ratio]:
    """The targets of the time under the lock, whose contestants are the numbers of active instants."""
    few, *more = map(str, workload.active_instants)
    for step in lock.STEPS:
        for many in more:
            yield Ratio(step=f"{lock.TO_COMMIT}, {step}", ours=many, over=few, limit=1.5)


def ending(workload: Workload) -> tuple[Seconds, Megabytes]:
    """The targets of a write of many slots, whose contestants are the numbers of slots."""
    above = f"{slots.MEMORY}, {workload.many_slots} slots above {workload.few_slots}"
    return (
        Seconds(step=slots.ENDING, contestant=f"{workload.many_slots}", limit=3.0),
        Megabytes(what=above, limit=32),
    )


def judge(
    workload: Workload,
    times: Times,
    processor: Times,
    megabytes: Mapping[str, float],
    counted: Mapping[str, Mapping[str, float]],
) -> list[Verdict]:
    """All targets."""
    seconds_of_end, memory_of_end = ending(workload)
    return [
        *(ratio.judge(times, processor) for ratio in (*RATIOS, *growth(workload), *under_the_lock(workload))),
        *(overhead.judge(times, processor) for overhead in OVERHEADS),
        *(seconds.judge(times) for seconds in (*SECONDS, seconds_of_end)),
        *(count.judge(counted) for count in PER_FILE),
        *(peak.judge(megabytes) for peak in (*MEGABYTES, memory_of_end)),
    ]
