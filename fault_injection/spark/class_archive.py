"""Spark's classes, loaded and checked once for all JVMs of a machine: each starts with half the work.

The archive is Java's own (class data sharing).  A JVM maps it if its class path is the one that the archive
was made with, and goes without it where it is not; so every process of a cluster has the same folder of
settings, an empty one, and is given its settings by other ways.
"""

from __future__ import annotations

import functools
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pyspark

SPARK_HOME = Path(str(pyspark.__file__)).parent
SMALL_JVM = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"

_PATIENCE_SECONDS = 300
_BESIDES = (
    "deploy.master.Master",
    "deploy.worker.Worker",
    "executor.CoarseGrainedExecutorBackend",
    "network.shuffle.OneForOneBlockFetcher",
    "scheduler.EventLoggingListener",
    "scheduler.cluster.StandaloneSchedulerBackend",
)
"""What a session without a cluster does not load."""


@functools.cache
def settings_folder() -> Path:
    """The empty folder for ``SPARK_CONF_DIR``."""
    folder = _cache() / "conf"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@functools.cache
def small_jvm() -> str:
    """Options for JVMs that live for seconds: a simple compiler, and Spark's classes at hand."""
    archive = _cache() / "spark.jsa"
    if not archive.exists() and not _make(archive):
        return SMALL_JVM
    return f"{SMALL_JVM} -XX:SharedArchiveFile={archive}"


def _cache() -> Path:
    """A folder for this Spark on this Java, which nobody else may write into."""
    above = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    known = hashlib.sha256("\n".join(_what_it_holds_for()).encode()).hexdigest()
    return above / "fault_injection" / known[:16]


def _what_it_holds_for() -> Iterator[str]:
    yield _java("-version").stderr
    for jar in sorted((SPARK_HOME / "jars").iterdir()):
        found = jar.stat()
        yield f"{jar} {found.st_size} {found.st_mtime_ns}"


def _java(*options: str) -> subprocess.CompletedProcess[str]:
    """The Java that Spark's own scripts start."""
    home = os.environ.get("JAVA_HOME")
    command = os.path.join(home, "bin", "java") if home else "java"
    return subprocess.run([command, *options], capture_output=True, text=True)


def _make(archive: Path) -> bool:
    """Run a session that loads what sessions load, and keep its classes; whether this Java can."""
    if _java("-Xshare:on", "-version").returncode:
        return False
    scratch = Path(tempfile.mkdtemp(dir=settings_folder().parent))
    made = scratch / archive.name
    options = f"{SMALL_JVM} -XX:ArchiveClassesAtExit={made} -Xlog:cds=off -Xlog:cds+dynamic=off"
    command = [
        str(SPARK_HOME / "bin" / "spark-submit"), "--master", "local[2]", "--driver-java-options", options,
        "--conf", "spark.ui.enabled=false", __file__, *_BESIDES,
    ]  # fmt: skip
    environment = {
        **os.environ, "SPARK_HOME": str(SPARK_HOME), "SPARK_CONF_DIR": str(settings_folder()),
        "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1",
    }  # fmt: skip
    try:
        subprocess.run(
            command, env=environment, cwd=scratch, capture_output=True, check=True, timeout=_PATIENCE_SECONDS
        )
        # Whoever makes it at the same time makes the same.
        made.replace(archive)
    except (OSError, subprocess.SubprocessError):
        return False
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return True


def _load(besides: list[str]) -> None:
    """A little of everything that jobs do, run by ``spark-submit`` in the session whose classes are kept."""
    from pyspark.sql import SparkSession  # noqa: PLC0415  # only here

    spark = SparkSession.builder.getOrCreate()
    for name in besides:
        spark._jvm.java.lang.Class.forName(f"org.apache.spark.{name}")  # type: ignore[union-attr]
    rows = spark.range(1000).selectExpr("id", "id % 7 AS part", "cast(id AS string) AS text").cache()
    rows.groupBy("part").count().collect()
    in_order = rows.repartition(3, "part").sortWithinPartitions("id")
    in_order.mapInArrow(lambda batches: batches, rows.schema).collect()
    rows.write.mode("overwrite").parquet("rows")
    spark.createDataFrame([(1, "a")], "id long, text string").join(spark.read.parquet("rows"), "id").collect()
    spark.stop()


if __name__ == "__main__":
    _load(sys.argv[1:])
