"""``python -m fault_injection.spark.comparison``: the tries, and what they came to, as JSON.

It runs on Spark 3.5, for which all the engines have jars: ``python benchmarks/install.py`` fetches them.
Cells that are measured again replace those in the file, or add to them; the others stay.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import shutil
import sys
import tempfile
from pathlib import Path

import pyspark

import sparkrobust
from fault_injection.spark.chaos import Chaos
from fault_injection.spark.cluster import Cluster
from fault_injection.spark.comparison.faults import COMPARED
from fault_injection.spark.comparison.results import RESULTS, Results
from fault_injection.spark.comparison.subjects import FAMILIES, PEER_JARS, SUBJECTS, version_of
from fault_injection.spark.comparison.tries import FamilyRun, Plan, Tried

ROOT = Path(__file__).resolve().parents[3]
JARS = Path(os.environ.get("SPARKROBUST_BENCH_JARS", ROOT / ".cache" / "bench-jars"))


def main(arguments: list[str]) -> None:
    given = _parse(arguments)
    folder = Path(tempfile.mkdtemp(prefix="comparison-"))
    try:
        with Cluster(folder / "cluster", isolated=True) as cluster, Chaos(cluster) as chaos:
            begun = set(Results.load(given.out).cells) if given.add else set()
            for family in given.engines:
                run = FamilyRun(chaos, family, given.jars, folder / "tables", _say)
                for tried in run.run(_plans(given, family)):
                    _count(tried, given.out, begun, given.jars)
    finally:
        if not given.keep:
            shutil.rmtree(folder, ignore_errors=True)


def _count(tried: Tried, file: Path, begun: set[tuple[str, str]], jars: Path) -> None:
    """Put a try into the file at once: a run that is interrupted leaves what it has measured."""
    cell = (tried.plan.subject.name, tried.plan.fault.name)
    results = Results.load(file)
    results.measured = _measured(jars)
    if cell not in begun:
        begun.add(cell)
        results.begin(*cell, merges=tried.plan.subject.merges)
    results.add(*cell, tried.outcome)
    results.sort((subject.name, fault.name) for fault in COMPARED for subject in SUBJECTS)
    results.save(file)


def _parse(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m fault_injection.spark.comparison", description=__doc__)
    parser.add_argument("--tries", type=int, default=2, help="of each fault, by default 2")
    parser.add_argument("--engines", nargs="+", default=FAMILIES, choices=FAMILIES)
    parser.add_argument("--subjects", nargs="+", help="parts of their names, by default all")
    parser.add_argument("--faults", nargs="+", help="parts of their names, by default all")
    parser.add_argument("--out", type=Path, default=RESULTS, help=f"by default {RESULTS.name} beside this")
    parser.add_argument("--jars", type=Path, default=JARS, help="the folder with the engines' jars")
    parser.add_argument("--add", action="store_true", help="count these tries with those in the file")
    parser.add_argument("--keep", action="store_true", help="the cluster's folder, to look into it")
    return parser.parse_args(arguments)


def _plans(given: argparse.Namespace, family: str) -> list[Plan]:
    def meant(name: str, parts: list[str] | None) -> bool:
        return parts is None or any(part in name for part in parts)

    return [
        Plan(subject=subject, fault=fault, number=number)
        for fault in COMPARED
        for subject in SUBJECTS
        if subject.family == family
        if meant(subject.name, given.subjects) and meant(fault.name, given.faults)
        if fault.of(subject, "") is not None
        for number in range(given.tries)
    ]


def _measured(jars: Path) -> dict[str, object]:
    versions = {family.capitalize(): version_of(family, jars) for family in PEER_JARS}
    return {
        "date": datetime.date.today().isoformat(),
        "machine": f"{platform.system()}, {os.cpu_count()} cores",
        "versions": {"Spark": pyspark.__version__, "sparkrobust": sparkrobust.__version__, **versions},
    }


def _say(text: str) -> None:
    sys.stderr.write(f"{text}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
