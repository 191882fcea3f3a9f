"""Who is compared: each way to write, with what its Spark session needs and its own worst moment to die."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from fault_injection.spark.class_archive import SMALL_JVM
from fault_injection.spark.faults import Appears, When, at

TASKS = 4
MANY = 32
"""Tasks, where it takes a while to make their files visible."""
PEER_JARS = {
    "hudi": ("hudi-spark3.5-bundle_2.12-*.jar",),
    "delta": ("delta-spark_2.12-*.jar", "delta-storage-*.jar"),
    "iceberg": ("iceberg-spark-runtime-3.5_2.12-*.jar",),
}
CATALOG = "lake"
_OPEN = "--add-opens=java.base/java.nio=ALL-UNNAMED"
_SETTINGS: dict[str, dict[str, str]] = {
    "hudi": {
        "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
        "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
        "spark.sql.extensions": "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.hudi.catalog.HoodieCatalog",
        "spark.executor.extraJavaOptions": f"{SMALL_JVM} -Duser.timezone=UTC {_OPEN}",
    },
    "delta": {
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    },
    "iceberg": {
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        f"spark.sql.catalog.{CATALOG}": "org.apache.iceberg.spark.SparkCatalog",
        f"spark.sql.catalog.{CATALOG}.type": "hadoop",
    },
}
_TABLE = {
    "hoodie.table.name": "compared",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.precombine.field": "ts",
    "hoodie.datasource.write.keygenerator.class": "org.apache.hudi.keygen.NonpartitionedKeyGenerator",
}
_COUNT = "hoodie.write.robust.pin.input"
_OPERATION = "hoodie.datasource.write.operation"


def settings_of(family: str, jars: Path, tables: Path) -> dict[str, str]:
    """What a session of these engines is made with."""
    found = [file for pattern in PEER_JARS.get(family, ()) for file in sorted(jars.glob(pattern))]
    if len(found) < len(PEER_JARS.get(family, ())):
        raise SystemExit(f"{jars} lacks {family}'s jars: run python benchmarks/install.py, or give --jars")
    settings = dict(_SETTINGS.get(family, {}))
    if found:
        path = ":".join(map(str, found))
        settings |= {"spark.driver.extraClassPath": path, "spark.executor.extraClassPath": path}
    if family == "iceberg":
        settings[f"spark.sql.catalog.{CATALOG}.warehouse"] = str(tables)
    # Several batches for each task, so that one can be stopped between them.
    return {**settings, "spark.sql.execution.arrow.maxRecordsPerBatch": "500"}


def version_of(family: str, jars: Path) -> str:
    """By the name of its jar."""
    found = next(iter(jars.glob(PEER_JARS[family][0])), None)
    return found.stem.rpartition("-")[2] if found else ""


@dataclass(frozen=True, kw_only=True)
class Subject:
    """One way to write."""

    name: str
    family: str
    merges: bool = False
    """Rows replace those with the same keys; else they are added."""
    options: Mapping[str, str] = field(default_factory=dict)
    counts_first: bool = False
    """Its rows are read once before they are written."""

    def near_the_end(self, table: str) -> When | None:
        """A moment at which a part of the write's last step may be done, as far as one is known."""
        if self.family in ("sparkrobust", "plain"):
            # What was written aside is made visible, file by file.
            return Appears(table, "*.parquet", new=True)
        if self.family == "hudi":
            # The metadata table knows the new files, the timeline has no commit.
            return Appears(table, ".hoodie/metadata/.hoodie/timeline/*.deltacommit", new=True)
        # One file that is put whole makes the write visible: there is nothing between, but all is written.
        return None if self.merges else at("source ends", nth=MANY)


def _hudi(operation: str, markers: str) -> Subject:
    return Subject(
        name=f"Hudi {operation}, {'direct' if markers == 'DIRECT' else 'timeline server'} markers",
        family="hudi",
        merges=operation == "upsert",
        options={
            **_TABLE,
            _OPERATION: operation,
            "hoodie.write.markers.type": markers,
            # Nothing that is compared reads them.
            "hoodie.metadata.index.column.stats.enable": "false",
        },
    )


def _ours(operation: str, note: str = "", **more: str) -> Subject:
    return Subject(
        name=f"sparkrobust {operation}{note}",
        family="sparkrobust",
        merges=operation == "upsert",
        counts_first=more.get(_COUNT) == "check",
        options={
            **_TABLE,
            _OPERATION: operation,
            "hoodie.metadata.enable": "false",
            # Small as the tables are, tasks write them.
            "hoodie.write.robust.driver.max.bytes": "0",
            **more,
        },
    )


SUBJECTS = (
    _ours("bulk_insert"),
    _ours("bulk_insert", ", rows counted", **{_COUNT: "check"}),
    _hudi("bulk_insert", "DIRECT"),
    _hudi("bulk_insert", "TIMELINE_SERVER_BASED"),
    Subject(name="Delta append", family="delta"),
    Subject(name="Iceberg append", family="iceberg"),
    Subject(name="plain parquet append", family="plain"),
    _ours("upsert"),
    _hudi("upsert", "DIRECT"),
    _hudi("upsert", "TIMELINE_SERVER_BASED"),
    Subject(name="Delta merge", family="delta", merges=True),
    Subject(name="Iceberg merge", family="iceberg", merges=True),
)
FAMILIES = tuple(dict.fromkeys(subject.family for subject in SUBJECTS))
BY_NAME = {subject.name: subject for subject in SUBJECTS}
