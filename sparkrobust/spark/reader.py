"""``sr.read(spark)``: the latest snapshot, as a native Spark scan of just its files."""

from __future__ import annotations

import logging

import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import types as t

from sparkrobust.coordinator.table import HudiTable
from sparkrobust.core.names import META_COLUMNS
from sparkrobust.core.table_config import TableConfig
from sparkrobust.core.view import BaseFile
from sparkrobust.errors import CorruptTableError, InvalidOptionError
from sparkrobust.options import parse_read
from sparkrobust.spark.schema import to_spark
from sparkrobust.storage.resolve import storage_for

_log = logging.getLogger("sparkrobust")

Value = str | bool | int | float | None


def read(spark: SparkSession) -> Reader:
    """Begin to read a Hudi table.

    Examples
    --------
    >>> sr.read(spark).load(path)  # doctest: +SKIP
    """
    return Reader(spark)


class Reader:
    """Collects options as Spark's own reader does; ``load`` gives the DataFrame."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        self._options: dict[str, Value] = {}

    def format(self, source: str) -> Reader:
        """Accepts ``"hudi"``."""
        if source.lower() not in ("hudi", "org.apache.hudi"):
            raise InvalidOptionError(f"sparkrobust reads Hudi tables, not {source!r}")
        return self

    def option(self, key: str, value: Value) -> Reader:
        """Set one option."""
        self._options[key] = value
        return self

    def options(self, **options: Value) -> Reader:
        """Set several options."""
        self._options.update(options)
        return self

    def load(self, path: str | None = None) -> DataFrame:
        """The latest snapshot: which files it is made of is settled now, they are read by Spark later."""
        target = path if path is not None else self._options.get("path")
        if not target:
            raise InvalidOptionError("load needs the path of the table")
        parsed = parse_read(self._options)
        for key in parsed.unknown:
            _log.warning("nobody knows the option %s", key)
        table = HudiTable.open(storage_for(str(target), parsed.storage))
        return snapshot(self._spark, table)


def snapshot(spark: SparkSession, table: HudiTable) -> DataFrame:
    """The table's latest rows, meta columns first."""
    table.config.refuse_reading(table.storage.url)
    known = table.schema()
    if known is None:
        raise CorruptTableError(
            f"{table.storage.url} has no commit that tells its schema", path=table.storage.url
        )
    meta = [t.StructField(name, t.StringType(), True) for name in META_COLUMNS]
    schema = t.StructType([*meta, *to_spark(known.arrow).fields])
    files = table.base_files()
    if not files:
        return spark.createDataFrame([], schema)
    root = _spark_url(table.storage.url)
    reader = spark.read.schema(schema)
    if _folders_tell_partitions(table.config, known.arrow, files):
        # Spark then prunes by the folders, without a look into the files.
        reader = reader.option("basePath", root)
    # The files may come from writers of several schemas, none of which has to be merged: each is
    # read as the table's present one.
    found = reader.option("mergeSchema", "false").parquet(*(f"{root}/{_escaped(f.path)}" for f in files))
    return found.select(*(f"`{name}`" for name in schema.names))


def _spark_url(url: str) -> str:
    """The root as Hadoop's file systems know it."""
    return url.replace("s3://", "s3a://", 1)


def _escaped(path: str) -> str:
    """Spark takes a path for a pattern: what means something there is escaped."""
    return "".join(f"\\{c}" if c in "{}[]*?\\^" else c for c in path)


def _folders_tell_partitions(config: TableConfig, schema: pa.Schema, files: list[BaseFile]) -> bool:
    """Whether every folder reads ``field=value``, with values that Spark reads back right."""
    if not (config.hive_style and config.partition_fields):
        return False
    for name in config.partition_fields:
        # A timestamp's folder is a number of microseconds, bytes are hexadecimal: Spark reads null.
        kind = schema.field(name).type if name in schema.names else None
        if kind is None or pa.types.is_timestamp(kind) or pa.types.is_binary(kind):
            return False
    return all(_tells(config, partition) for partition in {base.partition for base in files})


def _tells(config: TableConfig, partition: str) -> bool:
    parts = partition.split("/")
    if len(parts) != len(config.partition_fields):
        return False
    for field, part in zip(config.partition_fields, parts, strict=True):
        name, _, value = part.partition("=")
        if name != field:
            return False
        # Spark decodes percent signs whether or not the writer encoded them.
        if "%" in value and not config.url_encoded:
            return False
    return True
