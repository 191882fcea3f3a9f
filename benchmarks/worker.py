"""One engine in one process: a Spark session that stays alive and answers one request at a time.

``python -m benchmarks.worker ENGINE TABLES_DIR DRIVER_MEMORY`` reads a JSON request a line from stdin and
writes a JSON answer a line to stdout. The clock is read here, around the operation alone: the input DataFrame
stands before it starts, and what the parent process does is not in it.
"""

from __future__ import annotations

import contextlib
import cProfile
import io
import json
import os
import platform
import pstats
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from benchmarks import engines
from benchmarks.crowd import Crowd
from benchmarks.data import BASE_TS, SPARK_SCHEMA
from benchmarks.engines.base import COMMON_SETTINGS, Engine
from benchmarks.locked import HELD, Watch, watched
from sparkrobust.probe import Point

Request = Mapping[str, Any]
Answer = dict[str, Any]


def start_session(engine: Engine, *, memory: str) -> SparkSession:
    """A session with two cores, this engine's jars and the settings that all engines share."""
    builder = SparkSession.builder.master("local[2]").appName(f"benchmark of {engine.name}")
    settings = {**COMMON_SETTINGS, **engine.settings(), "spark.driver.memory": memory}
    settings["spark.local.dir"] = str(engine.folder.parent / "spark-scratch")
    settings["spark.sql.warehouse.dir"] = str(engine.folder.parent / "spark-warehouse")
    if engine.jars():
        settings["spark.jars"] = ",".join(str(jar) for jar in engine.jars())
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return spark


class Desk:
    """Answers the requests; each method named like an operation is one."""

    def __init__(self, engine: Engine, spark: SparkSession) -> None:
        self.engine = engine
        self.spark = spark

    def answer(self, request: Request) -> Answer:
        """Carry out one request."""
        operation = request["do"]
        if operation in ("bulk_insert", "insert", "upsert", "delete"):
            return self._write(operation, request)
        action: Callable[[Request], Answer] = getattr(self, operation)
        return action(request)

    def _write(self, operation: str, request: Request) -> Answer:
        rows, write = self._rows(request["rows"]), getattr(self.engine, operation)
        profiler = cProfile.Profile() if request.get("profile") else None
        self._wake_up()
        with watched() if request.get("watched") else contextlib.nullcontext() as watch:
            started = time.perf_counter()
            if profiler is None:
                result = write(rows, request["table"], request.get("options", {}))
            else:
                result = profiler.runcall(write, rows, request["table"], request.get("options", {}))
            seconds = time.perf_counter() - started
        return {
            "seconds": seconds,
            "steps": _steps(result),
            "profile": profiler and _hottest(profiler),
            "locked": watch and _under_the_lock(watch),
        }

    def crowd(self, request: Request) -> Answer:
        """Many writers at once, each in a partition of its own; the seconds of them all."""
        each, of_a_write = request["rows_of_a_partition"], request["rows_of_a_write"]
        appending = request["kind"] == "insert"

        def commit(writer: int, turn: int) -> object:
            version, partition = request["begun"] + turn + 1, f"region-{writer:02d}"
            # Above all keys of the first rows of all writers, where keys are to be new.
            first = (writer + 1) * 1_000_000 + version * of_a_write if appending else writer * each
            keys = [first, first + of_a_write]
            rows = self._rows({"keys": keys, "part": f"'{partition}'", "version": version})
            write = self.engine.insert if appending else self.engine.upsert_into(partition)
            return write(rows, request["table"], request["options"])

        crowd = Crowd(request["writers"], request["commits"], commit)
        self._wake_up()
        seconds = crowd.run()
        return {"seconds": seconds, "refused": crowd.refused, "last_refusal": crowd.last_refusal}

    def _wake_up(self) -> None:
        """Leave neither idle Python workers nor dirty pages of another engine's to the step that is timed.

        Spark stops a Python worker that was idle for a minute, which is about what the turns of the others
        take, and a new one costs half a second. A pipeline that writes seldom pays it: the README says so.
        """
        os.sync()
        self.spark.range(0, 2, 1, 2).mapInArrow(_wide_awake, "id long").collect()

    def _rows(self, wanted: Request) -> DataFrame:
        """Rows from parquet files, or made from a range of key numbers."""
        if "parquet" in wanted:
            return self.spark.read.schema(SPARK_SCHEMA).parquet(wanted["parquet"])
        first, stop = wanted["keys"]
        return self.spark.range(first, stop, 1, wanted.get("tasks", 1)).select(
            F.expr("format_string('key-%012d', id)").alias("id"),
            F.lit(BASE_TS + wanted.get("version", 0)).cast("long").alias("ts"),
            F.expr(wanted["part"]).alias("part"),
            *(F.expr(f"rand({seed})").alias(name) for seed, name in enumerate(("price", "weight", "score"))),
            F.col("id").alias("qty"),
            F.expr("xxhash64(id)").alias("stock"),
            F.expr("sha1(cast(id AS string))").alias("name"),
            F.expr("sha1(cast(-1 - id AS string))").alias("note"),
        )

    def aggregate(self, request: Request) -> Answer:
        """Read the table with an aggregate.

        ``planning`` are the seconds until there is a DataFrame, ``in_spark`` those of them spent in the JVM.
        """
        started = time.perf_counter()
        with JvmClock(self.spark) as clock:
            frame = self.engine.load(self.spark, request["table"])
        planning = time.perf_counter() - started
        found = _aggregated(frame)
        seconds = time.perf_counter() - started
        return {"seconds": seconds, "planning": planning, "in_spark": clock.seconds, "found": found}

    def all_rows(self, request: Request) -> Answer:
        """How many rows the table holds, and a sum over all of what they hold, without the meta columns."""
        frame = self.engine.load(self.spark, request["table"])
        names = sorted(name for name in frame.columns if not name.startswith("_hoodie_"))
        row = F.xxhash64(*names).cast("decimal(20,0)")
        count, total = frame.select(row.alias("row")).agg(F.count("row"), F.sum("row")).collect()[0]
        return {"rows": count, "sum": str(total)}

    def aggregate_files(self, request: Request) -> Answer:
        """The same aggregate by Spark alone on the same files, with their schema given or not."""
        schema = self.engine.load(self.spark, request["table"]).schema
        files = self.engine.data_files(self.spark, request["table"])
        started = time.perf_counter()
        reader = self.spark.read.schema(schema) if request.get("schema", True) else self.spark.read
        frame = reader.parquet(*files)
        planned = time.perf_counter()
        found = _aggregated(frame)
        return {"seconds": time.perf_counter() - started, "planning": planned - started, "found": found}

    def read_files(self, request: Request) -> Answer:
        """The aggregate by Spark alone on these files, in a process where our reader never ran."""
        return {"found": _aggregated(self.spark.read.parquet(*request["files"]))}

    def files(self, request: Request) -> Answer:
        """The data files of the latest snapshot."""
        return {"files": self.engine.data_files(self.spark, request["table"])}

    def live_heap(self, request: Request) -> Answer:
        """Megabytes that the JVM of the driver holds on to after a collection."""
        jvm = self.spark.sparkContext._jvm
        assert jvm is not None
        jvm.System.gc()
        runtime = jvm.Runtime.getRuntime()
        return {"megabytes": (runtime.totalMemory() - runtime.freeMemory()) / 2**20}

    def facts(self, request: Request) -> Answer:
        """Versions in this process."""
        jvm = self.spark.sparkContext._jvm
        assert jvm is not None
        return {
            "spark": self.spark.version,
            "java": jvm.System.getProperty("java.version"),
            "python": platform.python_version(),
            "jars": [jar.name for jar in self.engine.jars()],
        }


def _wide_awake(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Nothing, but pyarrow has made its first scalar afterwards (for which it imports pandas)."""
    for batch in batches:
        pa.array([1])
        yield batch


class JvmClock:
    """Counts the seconds that the driver's Python waits for answers of the JVM, within a ``with`` block."""

    def __init__(self, spark: SparkSession) -> None:
        gateway = spark.sparkContext._gateway
        assert gateway is not None
        self._client: Any = gateway._gateway_client
        self.seconds = 0.0

    def __enter__(self) -> JvmClock:
        send = self._client.send_command

        def timed(*arguments: Any, **named: Any) -> Any:
            started = time.perf_counter()
            try:
                return send(*arguments, **named)
            finally:
                self.seconds += time.perf_counter() - started

        self._client.send_command = timed
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        del self._client.send_command  # the method of the class shows again


def _aggregated(frame: DataFrame) -> dict[str, list[Any]]:
    rows = frame.groupBy("part").agg(
        F.count("*"), F.sum("qty"), F.sum("ts"), F.sum("price"), F.max("name"), F.max("stock")
    )
    return {row[0]: list(row)[1:] for row in rows.collect()}


def _steps(result: Any) -> dict[str, float]:
    """Seconds by step, which only our own writer tells."""
    seconds: Mapping[Any, float] = getattr(result, "seconds", None) or {}
    return {str(getattr(step, "value", step)): value for step, value in seconds.items()}


def _under_the_lock(watch: Watch) -> dict[str, float]:
    """Seconds that the lock was held to begin, and to commit, of which some go by until the file is there."""
    commit = watch.of(Point.COMMIT_PUBLISHED)
    return {
        "begin": watch.of(Point.REQUESTED)[HELD],
        "to commit file": commit[Point.COMMIT_PUBLISHED.value],
        "commit": commit[HELD],
    }


def _hottest(profiler: cProfile.Profile) -> str:
    text = io.StringIO()
    pstats.Stats(profiler, stream=text).sort_stats("cumulative").print_stats(40)
    return text.getvalue()


def serve(desk: Desk, answers: Any) -> None:
    """Answer until the parent closes our stdin."""
    for line in sys.stdin:
        try:
            reply = {"ok": True, **desk.answer(json.loads(line))}
        except Exception as error:
            traceback.print_exc()
            reply = {"ok": False, "error": f"{type(error).__name__}: {error}"[:2000]}
        print(json.dumps(reply), file=answers, flush=True)


def main(name: str, tables: str, memory: str) -> None:
    """Start the session, say so, and serve."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what Spark and the engines print must not mix with the answers
    engine = engines.make(name, Path(tables))
    spark = start_session(engine, memory=memory)
    print(json.dumps({"ok": True}), file=answers, flush=True)
    serve(Desk(engine, spark), answers)
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
