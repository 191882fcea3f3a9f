"""The end of a write of very many slots on a local disk: its seconds, and the driver's memory."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from typing import Any

from benchmarks.conductor import Bench, EngineError
from benchmarks.places import ROOT

ENDING = "end of a write by its slots: finalize, publish, commit"
CLEANING = "end of a write by its slots: clean up"
MEMORY = "driver of the end of a write, peak above its start"
PARTITIONS = 100


def run(bench: Bench) -> None:
    """Few slots and many in turns, each in a process of its own."""
    size = bench.workload
    for number in range(-1, max(bench.rounds, 3)):
        for slots in (size.few_slots, size.many_slots):
            found = _ended(bench, slots)
            if number < 0:
                continue
            bench.record(ENDING, f"{slots}", found["finalize"] + found["commit"], found["processor"])
            bench.record(CLEANING, f"{slots}", found["clean up"])
            peak = f"{MEMORY}, {slots} slots"
            bench.megabytes[peak] = max(bench.megabytes.get(peak, 0.0), found["megabytes"])
    above = f"{MEMORY}, {size.many_slots} slots above {size.few_slots}"
    bench.megabytes[above] = (
        bench.megabytes[f"{MEMORY}, {size.many_slots} slots"]
        - bench.megabytes[f"{MEMORY}, {size.few_slots} slots"]
    )
    bench.say(f"  ends of writes of {size.few_slots} and {size.many_slots} slots done")


def _ended(bench: Bench, slots: int) -> dict[str, Any]:
    table = bench.tables / "slots"
    shutil.rmtree(table, ignore_errors=True)
    try:
        _process("stage", str(table), str(slots), str(PARTITIONS))
        found: dict[str, Any] = json.loads(_process("end", str(table)))
        return found
    finally:
        shutil.rmtree(table, ignore_errors=True)


def _process(*arguments: str) -> str:
    command = [sys.executable, "-m", "benchmarks.many_slots", *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise EngineError(f"{' '.join(command)} failed:\n{done.stderr[-2000:]}")
    return done.stdout
