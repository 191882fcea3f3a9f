"""``make demo``: a cluster, a write, an executor killed in the middle of it, and what became of the table.

What is in the table afterwards is held against numbers worked out here, and the files in its folders against
the commits' own lists, read with a plain Avro reader.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import fastavro
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

import sparkrobust as sr
from fault_injection.spark.class_archive import SMALL_JVM
from fault_injection.spark.cluster import Cluster
from fault_injection.spark.places import LOOPBACK
from fault_injection.spark.processes import descendants, open_files

ROWS = 400_000
OPTIONS = {
    "hoodie.table.name": "demo",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "part",
    "hoodie.datasource.write.precombine.field": "ts",
    "hoodie.datasource.write.hive_style_partitioning": "true",
}
CONF = {
    "spark.driver.host": LOOPBACK,
    "spark.driver.bindAddress": LOOPBACK,
    "spark.driver.memory": "700m",
    "spark.executor.memory": "700m",
    "spark.executor.extraJavaOptions": SMALL_JVM,
    "spark.sql.shuffle.partitions": "4",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}


SILENCE = """\
rootLogger.level = fatal
rootLogger.appenderRef.err.ref = err
appender.err.type = Console
appender.err.name = err
appender.err.target = SYSTEM_ERR
appender.err.layout.type = PatternLayout
"""
"""For Spark's own log, in which a killed executor is a long story."""


def say(text: str) -> None:
    print(f"{time.monotonic() - STARTED:6.1f} s  {text}", flush=True)


STARTED = time.monotonic()


def rows(spark: SparkSession, first: int, end: int, version: int) -> DataFrame:
    """Rows whose contents follow from their id and version."""
    return spark.range(first, end, 1, 4).select(
        "id",
        F.lit(version).alias("ts"),
        (F.col("id") * version).alias("value"),
        F.sha2(F.concat_ws(":", "id", F.lit(version)), 512).alias("text"),
        (F.col("id") % 4).cast("string").alias("part"),
    )


def kill_a_writer(cluster: Cluster, table: Path, stop: threading.Event) -> bool:
    """Wait until an executor has a file of the table open for its rows, and kill it then and there."""
    while not stop.is_set():
        for executor in cluster.executors():
            for process in descendants(executor.pid):
                mine = [
                    name
                    for name in open_files(process)
                    if name.startswith(f"{table}/") and ".parquet" in name
                ]
                if mine:
                    os.kill(executor.pid, signal.SIGKILL)
                    say(f"SIGKILL to executor {executor.id}, which has {Path(mine[0]).name} open")
                    return True
        time.sleep(0.001)
    return False


def while_killing(cluster: Cluster, table: Path, write: Callable[[], object]) -> tuple[object, bool]:
    """Write, with the killer lying in wait."""
    stop, hits = threading.Event(), list[bool]()
    killer = threading.Thread(target=lambda: hits.append(kill_a_writer(cluster, table, stop)))
    killer.start()
    try:
        return write(), any(hits)
    finally:
        stop.set()
        killer.join()


def committed_files(table: Path) -> set[str]:
    """Every data file that a completed commit names."""
    named: set[str] = set()
    for commit in (table / ".hoodie" / "timeline").glob("*_*.commit"):
        with commit.open("rb") as file:
            for record in fastavro.reader(file):
                stats = record["partitionToWriteStats"].values()
                named |= {stat["path"] for partition in stats for stat in partition}
    return named


def files_in_place(table: Path) -> set[str]:
    """Every file in the table's data folders."""
    found = (path for path in table.rglob("*") if path.is_file() and ".hoodie" not in path.parts)
    return {str(path.relative_to(table)) for path in found if path.name != ".hoodie_partition_metadata"}


def verify(spark: SparkSession, table: Path) -> bool:
    """Rows and files against what they must be."""
    end, middle = ROWS + ROWS // 2, ROWS // 2
    wanted = {
        "rows": end,
        "keys": end,
        "sum": sum(range(middle)) + 2 * sum(range(middle, end)),
        "texts": end,
    }
    read = sr.read(spark).load(str(table))
    right = F.sha2(F.concat_ws(":", "id", "ts"), 512) == F.col("text")
    answer = read.agg(
        F.count("*").alias("rows"),
        F.count_distinct("id").alias("keys"),
        F.sum("value").alias("sum"),
        F.sum(right.cast("long")).alias("texts"),
    ).first()
    found = answer.asDict() if answer is not None else {}
    say(f"rows: {found.get('rows'):,} read, {wanted['rows']:,} expected; distinct keys {found.get('keys'):,}")
    say(f"contents: sum {found.get('sum'):,}, expected {wanted['sum']:,}; right texts {found.get('texts'):,}")
    stray = files_in_place(table) - committed_files(table)
    missing = committed_files(table) - files_in_place(table)
    say(f"files: {len(files_in_place(table))} in place, {len(stray)} of them stray, {len(missing)} missing")
    return found == wanted and not stray and not missing


def run(folder: Path) -> bool:
    """The whole show; whether all was as it must be."""
    table = folder / "table"
    with Cluster(folder / "cluster", isolated=False, java=SMALL_JVM) as cluster:
        say(f"cluster at {cluster.url}: master and 2 workers, processes {', '.join(map(str, cluster.pids))}")
        builder = SparkSession.builder.master(cluster.url).appName("demo")
        for key, value in CONF.items():
            builder = builder.config(key, value)
        quiet = folder / "log4j2.properties"
        quiet.write_text(SILENCE)
        java = f"{SMALL_JVM} -Dlog4j2.configurationFile={quiet.as_uri()}"
        spark = builder.config("spark.driver.extraJavaOptions", java).getOrCreate()
        try:
            first = rows(spark, 0, ROWS, 1)
            load = {**OPTIONS, "hoodie.datasource.write.operation": "bulk_insert"}
            say(str(sr.write(first).options(**load).mode("overwrite").save(str(table))))
            say(f"now an upsert of {ROWS:,} rows, half of them new; an executor dies while it writes")
            second = rows(spark, ROWS // 2, ROWS + ROWS // 2, 2)
            write = sr.write(second).options(**OPTIONS).mode("append")
            result, hit = while_killing(cluster, table, lambda: write.save(str(table)))
            if not hit:
                say("no executor was caught writing: nothing was shown")
                return False
            say(str(result))
            return verify(spark, table)
        finally:
            spark.stop()


def main() -> None:
    if not Path("/proc/self/fd").is_dir():
        raise SystemExit("the demo finds the executor to kill through /proc, which this system does not have")
    with tempfile.TemporaryDirectory(prefix="sparkrobust-demo-") as scratch:
        good = run(Path(scratch))
    say("no row lost, none doubled, no stray file" if good else "NOT as it must be, see above")
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
