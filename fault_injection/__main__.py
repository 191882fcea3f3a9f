"""``python -m fault_injection``: many worlds, a summary, and an exit status that says whether all held."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field

from fault_injection.simulation.runs import Report, run

_CHUNK = 50


@dataclass
class Summary:
    """What many runs came to."""

    runs: int = 0
    steps: int = 0
    stores: Counter[str] = field(default_factory=Counter)
    outcomes: Counter[str] = field(default_factory=Counter)
    faults: Counter[str] = field(default_factory=Counter)
    violations: list[tuple[int, str]] = field(default_factory=list)

    def add(self, report: Report) -> None:
        self.runs += 1
        self.steps += report.steps
        self.stores[report.store] += 1
        self.outcomes.update(told.outcome for told in report.told)
        self.faults.update({fault.value: count for fault, count in report.injected.items()})
        if report.violation is not None:
            self.violations.append((report.seed, report.violation))

    def merge(self, other: Summary) -> None:
        self.runs += other.runs
        self.steps += other.steps
        self.stores += other.stores
        self.outcomes += other.outcomes
        self.faults += other.faults
        self.violations += other.violations

    def lines(self, seconds: float) -> Iterator[str]:
        yield f"{'worlds':22s} {self.runs:>12,}  ({_counted(self.stores)})"
        yield f"{'storage calls':22s} {self.steps:>12,}"
        yield f"{'writes, as told':22s} {sum(self.outcomes.values()):>12,}  ({_counted(self.outcomes)})"
        yield f"{'faults':22s} {sum(self.faults.values()):>12,}  ({_counted(self.faults)})"
        yield f"{'violations':22s} {len(self.violations):>12,}"
        yield f"{'seconds':22s} {seconds:>12,.1f}"


def _counted(found: Counter[str]) -> str:
    return ", ".join(f"{name} {count:,}" for name, count in sorted(found.items()))


def _some(seeds: range) -> Summary:
    summary = Summary()
    for seed in seeds:
        summary.add(run(seed))
    return summary


def _many(seeds: range, minutes: float | None) -> Summary:
    """All seeds, in as many processes as there are cores, for at most so long."""
    deadline = None if minutes is None else time.monotonic() + 60 * minutes
    chunks = [seeds[start : start + _CHUNK] for start in range(0, len(seeds), _CHUNK)]
    whole = Summary()
    with ProcessPoolExecutor(os.cpu_count()) as pool:
        for summary in pool.map(_some, _until(deadline, chunks)):
            whole.merge(summary)
    return whole


def _until(deadline: float | None, chunks: Iterable[range]) -> Iterator[range]:
    for chunk in chunks:
        if deadline is not None and time.monotonic() > deadline:
            return
        yield chunk


def _seeds(text: str) -> range:
    first, separator, last = text.partition(":")
    if not separator or not (first.isdigit() and last.isdigit()) or int(first) >= int(last):
        raise argparse.ArgumentTypeError("two numbers A:B, the second one larger and not included")
    return range(int(first), int(last))


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m fault_injection", description=__doc__)
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--seed", type=int, help="one world, step by step")
    what.add_argument("--seeds", type=_seeds, metavar="A:B", help="the worlds of all seeds from A up to B")
    given = parser.parse_args(arguments)
    if given.seed is not None:
        return _one(given.seed)
    started = time.monotonic()
    summary = _many(given.seeds, None)
    for line in summary.lines(time.monotonic() - started):
        print(line)
    for seed, violation in sorted(summary.violations)[:20]:
        print(f"seed {seed}: {violation}")
    return 1 if summary.violations else 0


def _one(seed: int) -> int:
    report = run(seed)
    for line in report.log:
        print(line)
    for told in report.told:
        print(f"{told.name} was told: {told.instant} {told.outcome} {told.error}")
    print(f"store {report.store}, {report.steps} steps, digest {report.digest}")
    print(report.violation or "no violation")
    return 1 if report.violation else 0


if __name__ == "__main__":
    sys.exit(main())
