"""``sr.read(spark)``: the latest snapshot, as a native Spark scan of just its files."""

from __future__ import annotations

import logging
from collections.abc import Set
from functools import reduce

import pyarrow as pa
from pyspark.sql import Column, DataFrame, DataFrameReader, SparkSession
from pyspark.sql import functions as F
from pyspark.sql import types as t

from sparkrobust.coordinator.table import HudiTable, Listing
from sparkrobust.core.name_pattern import name_pattern
from sparkrobust.core.names import DEFAULT_PARTITION, META_COLUMNS
from sparkrobust.core.table_config import TableConfig
from sparkrobust.core.view import BaseFile
from sparkrobust.errors import CorruptTableError, InvalidOptionError, UnsupportedTableError
from sparkrobust.options import parse_read
from sparkrobust.spark.frames import is_remote
from sparkrobust.spark.schema import to_spark
from sparkrobust.spark.stored_types import by_stored_types
from sparkrobust.storage.resolve import storage_for

_log = logging.getLogger("sparkrobust")

_FEW_FILES = 32
"""Up to so many paths Spark looks at one after the other; for more it starts a job with a task for each."""

_NO_FILE_SYSTEM = ("FileSystem not found", "No FileSystem for scheme")
_CONNECTORS = {
    "abfs": ("org.apache.hadoop:hadoop-azure", "spark.hadoop.fs.azure.*"),
    "wasb": ("org.apache.hadoop:hadoop-azure", "spark.hadoop.fs.azure.*"),
    "s3a": ("org.apache.hadoop:hadoop-aws", "spark.hadoop.fs.s3a.*"),
}

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
        return table.look_anew(lambda: snapshot(self._spark, table))


def snapshot(spark: SparkSession, table: HudiTable) -> DataFrame:
    """The table's latest rows, meta columns first."""
    table.config.refuse_reading(table.storage.url)
    known = table.schema()
    if known is None:
        raise CorruptTableError(
            f"{table.storage.url} has no commit that tells its schema", path=table.storage.url
        )
    meta = [t.StructField(name, t.StringType(), True) for name in META_COLUMNS]
    columns = [*meta, *to_spark(known.arrow).fields]
    in_folders_only = _columns_in_folders_only(table.config, known.arrow)
    schema = t.StructType(
        [*columns, *(t.StructField(name, t.StringType(), True) for name in in_folders_only)]
    )
    listing = table.listing()
    files = table.latest(listing, whole=True)
    for base in files:
        if not base.size:
            # Spark passes over an empty file without a word.
            raise CorruptTableError(f"the base file {base.path} is empty", path=base.path)
    if not files:
        return spark.createDataFrame([], schema)
    by_folder = _folders_tell_partitions(table.config, known.arrow, files)
    if in_folders_only and not by_folder:
        raise UnsupportedTableError(
            f"{table.storage.url} keeps {', '.join(in_folders_only)} only in folder names that do not say so",
            path=table.storage.url,
            hint="use Hudi's own reader",
        )
    parts = [
        _scan(spark, table, listing, group, physical, schema, by_folder=by_folder)
        for physical, group in by_stored_types(table, known.arrow, files)
    ]
    rows = reduce(lambda one, other: one.unionByName(other), parts)
    return rows if by_folder else _with_nulls(rows, table.config, files)


def _scan(
    spark: SparkSession,
    table: HudiTable,
    listing: Listing,
    files: list[BaseFile],
    physical: pa.Schema,
    schema: t.StructType,
    *,
    by_folder: bool,
) -> DataFrame:
    """Files that store their columns in the same types, as rows of the table's present schema."""
    root = _spark_url(table.storage.url)
    kinds = {field.name: field.dataType for field in to_spark(physical)}
    stored = t.StructType([t.StructField(f.name, kinds.get(f.name, f.dataType), True) for f in schema])
    reader = spark.read.schema(stored)
    if by_folder:
        # Spark then prunes by the folders, without a look into the files.
        reader = reader.option("basePath", root)
    # What the files hold is known: nothing has to be merged.
    reader = reader.option("mergeSchema", "false")
    found = None
    try:
        if len(files) > _FEW_FILES and not is_remote(spark):
            found = _by_pattern(reader, table, listing, files)
        if found is None:
            found = reader.parquet(*(f"{root}/{_escaped(file.path)}" for file in files))
    except Exception as error:
        if not any(words in str(error) for words in _NO_FILE_SYSTEM):
            raise
        raise _no_file_system(root) from error
    return found.select(*(_as(new, kinds.get(new.name, new.dataType)) for new in schema))


def _no_file_system(url: str) -> UnsupportedTableError:
    """What Spark lacks: writing goes through our own client, reading through Hadoop's."""
    scheme = url.partition("://")[0]
    package, keys = _CONNECTORS.get(scheme.removesuffix("s"), ("of that store", "its keys"))
    return UnsupportedTableError(
        f"this Spark session has no file system for {scheme}://, by which Spark reads",
        path=url,
        hint=f"give the session the package {package}, of its own Hadoop's version, and {keys}",
    )


def _by_pattern(
    reader: DataFrameReader, table: HudiTable, listing: Listing, files: list[BaseFile]
) -> DataFrame | None:
    """The same as by the files' paths, but Spark lists folders instead of looking at every file.

    Spark lists when it is told of the folders, so what lies there before and after is what it saw; if
    that is not just the files of the snapshot, it has to be told of each.  (Over Spark Connect it
    lists later, whenever it likes.)
    """
    wanted = {str(file.name) for file in files}
    folders = {file.partition for file in files}
    others = _others([name for folder in folders for name, _ in listing[folder]], wanted, len(files))
    if others is None:
        return None
    root = _spark_url(table.storage.url)
    pattern = name_pattern(wanted, others)
    chosen = reader.option("pathGlobFilter", pattern)
    found = chosen.parquet(*(f"{root}/{_escaped(folder)}" for folder in sorted(folders)))
    seen = _others(table.names(folders), wanted, len(files))
    unchanged = seen == others or (seen is not None and name_pattern(wanted, seen) == pattern)
    return found if unchanged else None


def _others(names: list[str], wanted: Set[str], count: int) -> list[str] | None:
    """The names beside the wanted ones, in order; ``None`` unless just ``count`` files have a wanted one."""
    others = sorted(name for name in names if name not in wanted)
    return others if len(names) - len(others) == count else None


def _as(field: t.StructField, stored: t.DataType) -> Column:
    column = F.col(f"`{field.name}`")
    return column if stored == field.dataType else column.cast(field.dataType).alias(field.name)


def _with_nulls(rows: DataFrame, config: TableConfig, files: list[BaseFile]) -> DataFrame:
    """An empty partition value is null, as where it is read from the folder's name.

    Null and empty share a folder, ``__HIVE_DEFAULT_PARTITION__``; only where there is one is a look at
    the values needed, which takes from Spark the chance to push filters on them down.
    """
    if not any(DEFAULT_PARTITION in base.partition for base in files):
        return rows
    for field in rows.schema.fields:
        if field.name in config.partition_fields and isinstance(field.dataType, t.StringType):
            column = F.col(f"`{field.name}`")
            rows = rows.withColumn(field.name, F.when(column != "", column))
    return rows


def _columns_in_folders_only(config: TableConfig, schema: pa.Schema) -> list[str]:
    if config.values.get("hoodie.datasource.write.drop.partition.columns", "").lower() != "true":
        return []
    return [name for name in config.partition_fields if name not in schema.names]


def _spark_url(url: str) -> str:
    """The root as Hadoop's file systems know it."""
    return url.replace("s3://", "s3a://", 1)


def _escaped(path: str) -> str:
    """Spark takes a path for a pattern: what means something there is escaped."""
    return "".join(f"\\{c}" if c in "{}[]*?\\^" else c for c in path)


def _folders_tell_partitions(config: TableConfig, schema: pa.Schema, files: list[BaseFile]) -> bool:
    """Whether every folder reads ``field=value``, with values that Spark reads back right."""
    if not (config.hive_style and config.partition_fields and config.paths_are_values):
        return False
    for name in config.partition_fields:
        # A timestamp's folder is a number of microseconds, bytes are hexadecimal: Spark reads null.
        kind = schema.field(name).type if name in schema.names else pa.string()
        if pa.types.is_timestamp(kind) or pa.types.is_binary(kind):
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
