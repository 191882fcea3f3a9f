"""``python -m fault_injection``: many worlds, a summary, and an exit status that says whether all held."""

from __future__ import annotations

import argparse
import gc
import os
import shlex
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, as_completed, wait
from dataclasses import dataclass, field

from fault_injection.counted import counted
from fault_injection.exhaustive.explore import Found, explore
from fault_injection.exhaustive.worlds import OF_THE_MODEL, QUICK, SMALL
from fault_injection.faults import Fault
from fault_injection.simulation.runs import Report, run
from fault_injection.simulation.scenarios import CALM, DIRECT, SCENARIOS

_CHUNK = 50
_STORIES = {**SCENARIOS, **CALM, **DIRECT}
_FIRST = range(1000)
"""The worlds of a story of which nobody says how many he wants: some seconds."""
_SHOWN = 20
"""Of the violations."""


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
        yield f"{'worlds':22s} {self.runs:>12,}  ({counted(self.stores)})"
        yield f"{'storage calls':22s} {self.steps:>12,}"
        yield f"{'writes, as told':22s} {sum(self.outcomes.values()):>12,}  ({counted(self.outcomes)})"
        yield f"{'faults':22s} {sum(self.faults.values()):>12,}  ({counted(self.faults)})"
        yield f"{'violations':22s} {len(self.violations):>12,}"
        yield f"{'seconds':22s} {seconds:>12,.1f}"


def _patient() -> None:
    """Worlds leave many small circles behind: to look for them all the time takes a tenth of it."""
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)


def _some(scenario: str, seeds: range) -> Summary:
    summary = Summary()
    for seed in seeds:
        summary.add(run(seed, scenario))
    return summary


def _many(scenario: str, seeds: range, minutes: float | None) -> Summary:
    """All seeds in as many processes as there are cores, or as many as there is time for."""
    deadline = None if minutes is None else time.monotonic() + 60 * minutes
    chunks = (seeds[start : start + _CHUNK] for start in range(0, len(seeds), _CHUNK))
    whole, cores = Summary(), os.cpu_count() or 1
    with ProcessPoolExecutor(cores, initializer=_patient) as pool:
        running: set[Future[Summary]] = set()
        while True:
            while len(running) < 2 * cores and (deadline is None or time.monotonic() < deadline):
                chunk = next(chunks, None)
                if chunk is None:
                    break
                running.add(pool.submit(_some, scenario, chunk))
            if not running:
                return whole
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for one in done:
                whole.merge(one.result())


def _seeds(text: str) -> range:
    first, separator, last = text.partition(":")
    if not separator or not (first.isdigit() and last.isdigit()) or int(first) >= int(last):
        raise argparse.ArgumentTypeError("two numbers A:B, the second one larger and not included")
    return range(int(first), int(last))


def _fault(text: str) -> tuple[int, Fault]:
    step, _, name = text.partition(":")
    if not step.isdigit() or name not in {fault.value for fault in Fault}:
        known = ", ".join(fault.value for fault in Fault if fault is not Fault.NONE)
        raise argparse.ArgumentTypeError(f"the number of a step, a colon, and one of: {known}")
    return int(step), Fault(name)


def _again(scenario: str, seed: int, fault: tuple[int, Fault] | None = None) -> str:
    """The command that makes just this world again, step by step."""
    words = ["python", "-m", "fault_injection", "--scenario", scenario, "--seed", str(seed)]
    if fault is not None:
        words += ["--fault", f"{fault[0]}:{fault[1].value}"]
    return f"    {shlex.join(words)}"


def main(arguments: list[str] | None = None) -> int:
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments[:1] == ["spark"]:
        # Of the simulated world nothing needs Spark.
        from fault_injection.spark import random_chaos  # noqa: PLC0415

        return random_chaos.main(arguments[1:])
    parser = argparse.ArgumentParser(
        prog="python -m fault_injection",
        description=f"{__doc__}  On a real Spark: python -m fault_injection spark --help",
    )
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--seed", type=int, help="one world, step by step")
    what.add_argument("--seeds", type=_seeds, metavar="A:B", help="the worlds of all seeds from A up to B")
    parser.add_argument(
        "--scenario",
        choices=_STORIES,
        default="any",
        metavar="NAME",
        help="what happens in them; without seeds and minutes its first "
        f"{len(_FIRST):,} worlds: {', '.join(_STORIES)}",
    )
    parser.add_argument(
        "--fault",
        type=_fault,
        metavar="STEP:FAULT",
        help="with --seed: what goes wrong at a step besides, as --each-call says it",
    )
    what.add_argument("--each-call", action="store_true", help="every fault at every call of every operation")
    what.add_argument(
        "--exhaustive",
        choices=("quick", "all", *SMALL),
        metavar="quick|all|NAME",
        help=f"everything that can happen in a small world: {'; '.join(SMALL)}",
    )
    parser.add_argument(
        "--minutes", type=float, help="no new worlds after so long; with --exhaustive, for each of them"
    )
    given = parser.parse_args(arguments)
    if given.fault is not None and given.seed is None:
        parser.error("--fault is for one world: say its --seed")
    if given.seed is not None:
        return _one(given.seed, given.scenario, given.fault)
    if given.each_call:
        return _each_call()
    if given.exhaustive is not None:
        return _exhaustive(given.exhaustive, given.minutes)
    started = time.monotonic()
    all_there_are = _FIRST if given.minutes is None else range(1 << 62)
    summary = _many(given.scenario, given.seeds or all_there_are, given.minutes)
    for line in summary.lines(time.monotonic() - started):
        print(line)
    for seed, violation in sorted(summary.violations)[:_SHOWN]:
        print(f"seed {seed}: {violation}")
        print(_again(given.scenario, seed))
    return 1 if summary.violations else 0


def _calls_of(scenario: str) -> tuple[str, int, list[str]]:
    """How many worlds differ from this calm one by one fault, what is wrong in them, and how to see it."""
    calm = run(0, scenario, watches=True)
    wrong = [f"{scenario}: {calm.violation}\n    {_again(scenario, 0)}"] if calm.violation else []
    worlds = 1
    for step in range(calm.steps_of_founders + 1, calm.steps_before_peace + 1):
        for fault in sorted(calm.possible.get(step, ()), key=lambda one: one.value):
            report = run(0, scenario, {step: fault})
            worlds += 1
            if report.violation is not None:
                wrong.append(
                    f"{scenario}, step {step}, {fault.value}: {report.violation}\n"
                    f"    {_again(scenario, 0, (step, fault))}"
                )
    return scenario, worlds, wrong


def _each_call() -> int:
    started, whole, violations = time.monotonic(), 0, 0
    with ProcessPoolExecutor(os.cpu_count(), initializer=_patient) as pool:
        for scenario, worlds, wrong in pool.map(_calls_of, CALM):
            print(f"{scenario:45s} {worlds:>7,} worlds {len(wrong):>4} violations", flush=True)
            for line in wrong[:_SHOWN]:
                print(f"    {line}")
            whole, violations = whole + worlds, violations + len(wrong)
    print(f"{'all':45s} {whole:>7,} worlds {violations:>4} violations, {time.monotonic() - started:,.0f} s")
    return 1 if violations else 0


def _everything_in(name: str, minutes: float | None) -> tuple[str, Found]:
    return name, explore(SMALL[name].make, minutes=minutes)


def _exhaustive(which: str, minutes: float | None) -> int:
    """Everything that can happen in small worlds, each in a process of its own."""
    names = {"quick": list(QUICK), "all": list(SMALL)}.get(which, [which])
    started, whole = time.monotonic(), Found()
    wrong = 0
    with ProcessPoolExecutor(os.cpu_count(), initializer=_patient) as pool:
        for done in as_completed([pool.submit(_everything_in, name, minutes) for name in names]):
            name, found = done.result()
            how = "violated" if found.violation else "complete" if found.complete else "capped"
            counts = f"{found.states:>11,} states {found.edges:>12,} edges"
            least = OF_THE_MODEL.get(name, 0)
            model = f", the model has {least:,} states" if least else ""
            print(f"{name:50s} {counts} {found.seconds:>8,.1f} s  {how}{model}", flush=True)
            if found.violation is not None:
                wrong += 1
                print("\n".join(f"    {line}" for line in (found.violation, *found.trace)))
            elif found.complete and found.states < least:
                wrong += 1
                print("    fewer than the model's: not all was gone through")
            whole.states, whole.edges = whole.states + found.states, whole.edges + found.edges
    seconds = time.monotonic() - started
    print(f"{'all':50s} {whole.states:>11,} states {whole.edges:>12,} edges {seconds:>8,.1f} s")
    return 1 if wrong else 0


def _one(seed: int, scenario: str, fault: tuple[int, Fault] | None = None) -> int:
    report = run(seed, scenario, dict([fault] if fault else ()))
    for line in report.log:
        print(line)
    for told in report.told:
        print(f"{told.name} was told: {told.instant} {told.outcome} {told.error}")
    print(f"store {report.store}, {report.steps} steps, digest {report.digest}")
    print(report.violation or "no violation")
    return 1 if report.violation else 0


if __name__ == "__main__":
    sys.exit(main())
