"""The command line: ``python -m benchmarks run --out DIR`` and ``python -m benchmarks profile upsert``."""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks import report
from benchmarks.conductor import Bench, EngineError, WrongResultError
from benchmarks.data import prepare
from benchmarks.parts import (
    cost,
    lock,
    memory_use,
    one_row,
    planning,
    profile,
    requests,
    slots,
    table_work,
    writers,
)
from benchmarks.places import CACHE
from benchmarks.workload import FULL, QUICK, Workload

ENGINES = ("plain", "hudi", "delta", "iceberg", "sparkrobust", "floor")
OTHER_PARTS: dict[str, Callable[[Bench], None]] = {
    "slots": slots.run,
    "requests": requests.run,
    "one_row": one_row.run_small,
    "growth": one_row.run_growth,
    "lock": lock.run,
    "writers": writers.run,
    "planning": planning.run,
    "memory": memory_use.run,
}
COST = "cost"
OURS_ALONE = frozenset({"growth", "lock", "planning", "memory", "slots", "requests", COST})
PARTS = (*table_work.NAMES, COST, *OTHER_PARTS)


def main() -> int:
    """Run what the command line asks for."""
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(f"ended by signal {number}"))
    arguments = _parser().parse_args()
    if arguments.command == "data":
        print(prepare(_workload(arguments), arguments.cache).folder)
        return 0
    with _bench(arguments) as bench:
        if arguments.command == "profile":
            dataset = prepare(bench.workload, arguments.cache)
            profile.run(bench, dataset, arguments.operation, arguments.repeat)
            return 0
        return _run(bench, arguments)


def _run(bench: Bench, arguments: argparse.Namespace) -> int:
    facts = report.machine_facts()
    wanted = arguments.only or PARTS
    alone = set(wanted) <= OURS_ALONE
    engines = [e for e in bench.engines if e != table_work.FLOOR and (not alone or e == one_row.OURS)]
    versions = {engine: bench.worker(engine).ask("facts") for engine in engines}
    parts = {name: part for name, part in OTHER_PARTS.items() if name in wanted}
    table_parts = [name for name in wanted if name in table_work.NAMES]
    if table_parts or COST in wanted:
        dataset = prepare(bench.workload, arguments.cache)
    if COST in wanted:
        parts = {COST: lambda bench: cost.run(bench, dataset), **parts}
    if table_parts:
        parts = {"table work": lambda bench: table_work.run(bench, dataset, table_parts), **parts}
    for name, part in parts.items():
        if name in OURS_ALONE and one_row.OURS not in bench.engines:
            continue
        bench.say(name)
        try:
            part(bench)
        except (EngineError, WrongResultError) as error:
            bench.give_up(name, error)
    print(report.write(bench, facts, versions))
    return 1 if bench.unavailable else 0


@contextlib.contextmanager
def _bench(arguments: argparse.Namespace) -> Iterator[Bench]:
    # Each run has tables of its own: the last writes of a run that was stopped aren't to end in this one's.
    cache = arguments.cache.resolve()
    for left in cache.glob("tables-*"):
        if not Path("/proc", left.name.removeprefix("tables-")).exists():
            shutil.rmtree(left, ignore_errors=True)
    tables = cache / f"tables-{os.getpid()}"
    arguments.out.mkdir(parents=True, exist_ok=True)
    bench = Bench(
        workload=_workload(arguments),
        rounds=arguments.rounds,
        warm_ups=arguments.warm_ups,
        memory=arguments.driver_memory,
        tables=tables,
        out=arguments.out.resolve(),
        engines=arguments.engines,
    )
    try:
        with bench:
            yield bench
    finally:
        shutil.rmtree(tables, ignore_errors=True)


def _workload(arguments: argparse.Namespace) -> Workload:
    return QUICK if arguments.quick else FULL


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description="sparkrobust beside its peers.")
    commands = parser.add_subparsers(dest="command", required=True)
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--quick", action="store_true", help="small sizes, to see that nothing is broken")
    common.add_argument("--cache", type=Path, default=CACHE, help="where the input data and the tables go")
    common.add_argument("--driver-memory", default="3g", help="of each Spark session (default 3g)")
    common.add_argument("--rounds", type=int, default=3, help="rounds that count (default 3)")
    common.add_argument("--warm-ups", type=int, default=1, help="rounds before, that don't count (default 1)")
    common.add_argument("--out", type=Path, default=Path("bench-out"), help="for report, JSON, plot, logs")
    run = commands.add_parser("run", parents=[common], help="measure and judge the targets")
    run.add_argument("--only", type=_names(PARTS), help=f"comma-separated parts: {', '.join(PARTS)}")
    run.add_argument("--engines", type=_names(ENGINES), default=ENGINES, help=", ".join(ENGINES))
    one = commands.add_parser("profile", parents=[common], help="one operation of sparkrobust by its steps")
    one.add_argument("operation", choices=profile.OPERATIONS)
    one.add_argument("--repeat", type=int, default=3, help="how often (default 3); the last one is profiled")
    one.set_defaults(engines=("sparkrobust",))
    commands.add_parser("data", parents=[common], help="only make the input data")
    return parser


def _names(known: tuple[str, ...]) -> Callable[[str], tuple[str, ...]]:
    def parse(text: str) -> tuple[str, ...]:
        names = tuple(text.split(","))
        if unknown := set(names) - set(known):
            raise argparse.ArgumentTypeError(f"unknown: {', '.join(unknown)}; known: {', '.join(known)}")
        return names

    return parse


if __name__ == "__main__":
    raise SystemExit(main())
