"""What a run leaves: a text for people, JSON with every measured time, and a plot."""

from __future__ import annotations

import json
import os
import platform
import subprocess
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.conductor import Bench
from benchmarks.parts.table_work import NAMES
from benchmarks.places import ROOT
from benchmarks.targets import Verdict, judge, told

WORDS = {True: "pass", False: "MISS", None: "-"}
COLOURS = {
    "sparkrobust": "#d1495b",
    "floor": "#b0b0b0",
    "plain": "#8d99ae",
    "hudi": "#00798c",
    "hudi without metadata table": "#5fb3bf",
    "delta": "#edae49",
    "iceberg": "#30638e",
}


def machine_facts() -> dict[str, Any]:
    """Cores, memory, load and versions: what one must know to compare two runs."""
    cpu = next((x.split(":")[1].strip() for x in _lines("/proc/cpuinfo") if x.startswith("model name")), "?")
    memory = next((int(x.split()[1]) for x in _lines("/proc/meminfo") if x.startswith("MemTotal")), 0)
    git = ["git", "-C", str(ROOT), "describe", "--always", "--dirty"]
    described = subprocess.run(git, capture_output=True, text=True, check=False)
    return {
        "time": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "cpu": cpu,
        "cores": os.cpu_count(),
        "memory_gb": round(memory / 2**20, 1),
        "kernel": platform.release(),
        "load": os.getloadavg(),
        "python": platform.python_version(),
        "pyarrow": metadata.version("pyarrow"),
        "pyspark": metadata.version("pyspark"),
        "project": described.stdout.strip() or "?",
    }


def _lines(path: str) -> list[str]:
    return Path(path).read_text().splitlines()


def write(bench: Bench, facts: Mapping[str, Any], versions: Mapping[str, Any]) -> str:
    """Write ``results.json``, ``report.txt`` and the plot into the output folder; return the text."""
    verdicts = judge(bench.workload, bench.times, bench.processor, bench.megabytes, bench.requests)
    document = {
        "facts": {"start": facts, "end_load": os.getloadavg(), "engines": versions},
        "workload": asdict(bench.workload),
        "rounds": bench.rounds,
        "warm_ups": bench.warm_ups,
        "seconds": bench.times,
        "processor_seconds": bench.processor,
        "seconds_by_step_of_ours": bench.steps,
        "megabytes": bench.megabytes,
        "requests": bench.requests,
        "targets": [asdict(verdict) for verdict in verdicts],
        "notes": bench.notes,
        "out_of_the_run": bench.unavailable,
    }
    (bench.out / "results.json").write_text(json.dumps(document, indent=1))
    text = "\n".join(_text(bench, facts, verdicts))
    (bench.out / "report.txt").write_text(text + "\n")
    plot(bench)
    return text


def _text(bench: Bench, facts: Mapping[str, Any], verdicts: Sequence[Verdict]) -> list[str]:
    lines = [f"{name}: {value}" for name, value in facts.items()]
    lines += ["", f"workload {bench.workload.name}, {bench.workload.rows:,} rows; medians"]
    for step, contestants in bench.times.items():
        lines += ["", step]
        for name, seconds in sorted(contestants.items(), key=lambda item: median(item[1])):
            spread = f"({told(min(seconds))} to {told(max(seconds))}, {len(seconds)} times)"
            processor = bench.processor.get(step, {}).get(name)
            used = f"processor {median(processor):8.2f} s" if processor else " " * 20
            lines.append(f"  {name:44} {told(median(seconds)):>11}  {used}  {spread}")
    if bench.megabytes:
        lines += ["", "megabytes"]
        lines += [f"  {name:70} {value:8.0f}" for name, value in bench.megabytes.items()]
    for write, kinds in bench.requests.items():
        lines += ["", f"requests to S3, {write}"]
        lines += [f"  {kind:70} {count:8.2f}" for kind, count in kinds.items()]
    if bench.steps:
        lines += ["", "sparkrobust, seconds by step (medians)"]
        lines += [f"  {name:40} {steps_line(steps)}" for name, steps in bench.steps.items()]
    lines += ["", "targets (last column: the ratio of processor times)"]
    for verdict in verdicts:
        word = WORDS[verdict.passed]
        lines.append(
            f"  {word:5} {verdict.subject:62} {verdict.target:10} {verdict.measured:28} {verdict.processor}"
        )
    lines += [f"note: {note}" for note in bench.notes]
    lines += [f"out of the run: {name}: {why}" for name, why in bench.unavailable.items()]
    return lines


def steps_line(rounds: Sequence[Mapping[str, float]]) -> str:
    """The median of each step of our writer, in the order in which the steps happen."""
    by_step = defaultdict(list)
    for steps in rounds:
        for step, seconds in steps.items():
            by_step[step].append(seconds)
    return "  ".join(f"{step} {median(seconds):.2f}" for step, seconds in by_step.items())


def plot(bench: Bench) -> None:
    """One panel for each kind of work; the dots are the single times."""
    steps = [step for step in (*NAMES, "one-row insert", "one-row upsert") if step in bench.times]
    if not steps:
        return
    import matplotlib  # optional: only the benchmark's own environment has it

    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(len(steps), 1, figsize=(9, 2.2 * len(steps)), squeeze=False)
    for axis, step in zip(axes[:, 0], steps, strict=True):
        found = sorted(bench.times[step].items(), key=lambda item: -median(item[1]))
        names = [name for name, _ in found]
        axis.barh(names, [median(s) for _, s in found], color=[COLOURS.get(n, "#cccccc") for n in names])
        for row, (_, seconds) in enumerate(found):
            axis.plot(seconds, [row] * len(seconds), ".", color="black", markersize=3)
            axis.text(max(seconds), row, f"  {median(seconds):.2f} s", va="center", fontsize=8)
        axis.set_title(step.replace("_", " "), loc="left", fontsize=10)
        axis.margins(x=0.12)
        axis.spines[["top", "right"]].set_visible(False)
        axis.tick_params(labelsize=8)
    figure.suptitle(f"seconds, {bench.workload.rows:,} rows x 10 columns, Spark on two cores; less is better")
    figure.tight_layout(rect=(0, 0, 1, 0.985))
    for kind in ("png", "svg"):
        figure.savefig(bench.out / f"benchmark.{kind}", dpi=120)
    pyplot.close(figure)
