"""A driver that runs the jobs it is given, in one Spark session, one after the other.

Requests come in on standard input and answers go out on standard output, a line of JSON each.  Whatever a
job prints goes to the log.  Spark's settings come by ``PYSPARK_SUBMIT_ARGS``, so a script finds them by
``SparkSession.builder.getOrCreate()`` as everywhere.
"""

from __future__ import annotations

import importlib
import json
import os
import runpy
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from fault_injection.spark.exchange import Hit, Rule, Run
from fault_injection.spark.inside import DRIVER, Process, become, here, watch_call

_LOOK_SECONDS = 0.01


class Again:
    """Runs a plan that was run before once more."""

    def __init__(self, kind: type[DataFrame]) -> None:
        self._collect = kind.collect
        self._last: DataFrame | None = None

        def remembering(frame: DataFrame) -> Any:
            self._last = frame
            return self._collect(frame)

        kind.collect = remembering  # type: ignore[method-assign, assignment]

    def __call__(self, run: Run, rule: Rule, hit: Hit) -> None:
        if self._last is None:
            run.note(rule.name, "there was no plan to run again")
            return
        try:
            rows = self._collect(self._last)
        except Exception as error:
            run.note(rule.name, f"the plan, run again, failed: {error}")
        else:
            run.note(rule.name, f"the plan, run again, gave {len(rows)} rows")


@contextmanager
def telling_stages(spark: SparkSession, rules: list[Rule]) -> Iterator[None]:
    """As long as the block runs, each stage of Spark's that starts is a point, if a rule asks for it."""
    if not any(rule.point == "stage starts" for rule in rules):
        yield
        return
    over, seen = threading.Event(), set[int]()

    def look() -> None:
        tracker = spark.sparkContext.statusTracker()
        while not over.is_set():
            for stage in tracker.getActiveStageIds():
                if stage not in seen:
                    seen.add(stage)
                    here("stage starts", stage=stage)
            time.sleep(_LOOK_SECONDS)

    watcher = threading.Thread(target=look, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join()


def job_of(name: str, spark: SparkSession) -> Callable[..., Any]:
    """The function that a job's name means: ``package.module:function``, or a script."""
    if name.endswith(".py"):
        return lambda *arguments: _script(name, arguments)
    module, _, function = name.partition(":")
    found = getattr(importlib.import_module(module), function)
    return lambda *arguments, **named: found(spark, *arguments, **named)


def _script(path: str, arguments: tuple[Any, ...]) -> None:
    before, sys.argv = sys.argv, [path, *map(str, arguments)]
    try:
        runpy.run_path(path, run_name="__main__")
    finally:
        sys.argv = before


def executors(spark: SparkSession) -> list[str]:
    """The ids of those that the driver gives tasks to.

    Not of those that its status store lists as active: one that was lost, and then says from across a healed
    cut which blocks it has, stays there for good.
    """
    found = spark.sparkContext._jsc.sc().getExecutorIds()
    return sorted(found.apply(number) for number in range(found.size()))


def answer(spark: SparkSession, process: Process, request: dict[str, Any]) -> dict[str, Any]:
    """What one request comes to."""
    if request["what"] == "executors":
        return {"value": executors(spark)}
    assert process.room is not None
    _, rules = process.room.current()
    for rule in rules:
        side, _, function = rule.point.partition(" ")
        if side in ("before", "after") and ":" in function:
            watch_call(function)
    job = job_of(request["job"], spark)
    with telling_stages(spark, rules):
        try:
            return {"value": job(*request["args"], **request["named"])}
        except Exception as error:
            known = {name: str(value) for name, value in vars(error).items() if not name.startswith("_")}
            return {"error": {"type": type(error).__name__, "message": str(error), **known}}


def main() -> None:
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def say(**what: Any) -> None:
        print(json.dumps(what, default=str), file=answers, flush=True)

    process = become(DRIVER)
    spark = SparkSession.builder.getOrCreate()
    jvm = spark.sparkContext._jvm
    assert jvm is not None
    process.deeds["again"] = Again(type(spark.range(1)))
    java = jvm.java.lang.ProcessHandle.current().pid()
    say(pid=os.getpid(), java=java, app=spark.sparkContext.applicationId)
    for line in sys.stdin:
        say(**answer(spark, process, json.loads(line)))
    spark.stop()


if __name__ == "__main__":
    main()
