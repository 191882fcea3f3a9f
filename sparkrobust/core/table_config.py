"""A table's own settings, read out of ``hoodie.properties``, and what of them we can't serve."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum

from sparkrobust.errors import CorruptTableError, UnsupportedTableError

CURRENT_VERSION = 9
METADATA_PARTITIONS = "hoodie.table.metadata.partitions"
METADATA_PARTITIONS_INFLIGHT = "hoodie.table.metadata.partitions.inflight"


class TableType(Enum):
    COPY_ON_WRITE = "COPY_ON_WRITE"
    MERGE_ON_READ = "MERGE_ON_READ"


class MergeMode(Enum):
    """Which of two rows of one key stays."""

    EVENT_TIME = "EVENT_TIME_ORDERING"
    COMMIT_TIME = "COMMIT_TIME_ORDERING"
    CUSTOM = "CUSTOM"


class KeyGenerator(Enum):
    """How record keys and partition paths are made; the value is Hudi's word."""

    SIMPLE = "SIMPLE"
    COMPLEX = "COMPLEX"
    NON_PARTITION = "NON_PARTITION"

    @classmethod
    def for_fields(cls, keys: int, partitions: int) -> KeyGenerator:
        if partitions == 0:
            return cls.NON_PARTITION
        return cls.SIMPLE if keys == 1 and partitions == 1 else cls.COMPLEX


def _fields(text: str | None) -> tuple[str, ...]:
    return tuple(part.strip() for part in (text or "").split(",") if part.strip())


@dataclass(frozen=True, kw_only=True)
class TableConfig:
    """What a table says of itself."""

    name: str
    version: int
    table_type: TableType
    key_fields: tuple[str, ...]
    partition_fields: tuple[str, ...]
    ordering_fields: tuple[str, ...]
    merge_mode: MergeMode
    key_generator: str
    hive_style: bool
    url_encoded: bool
    utc: bool
    """Instants are in UTC; else in the time zone of each writer's machine."""
    metadata_partitions: tuple[str, ...]
    values: Mapping[str, str] = field(repr=False)

    @classmethod
    def of(cls, values: Mapping[str, str], *, path: str) -> TableConfig:
        """Read the properties; what makes no sense at all is a corrupt table."""
        try:
            name = values["hoodie.table.name"]
            version = int(values.get("hoodie.table.version", str(CURRENT_VERSION)))
            layout = int(values.get("hoodie.timeline.layout.version", "1"))
            table_type = TableType(values.get("hoodie.table.type", "COPY_ON_WRITE"))
            ordering = _fields(
                values.get("hoodie.table.ordering.fields") or values.get("hoodie.table.precombine.field")
            )
            default_mode = MergeMode.EVENT_TIME if ordering else MergeMode.COMMIT_TIME
            mode = MergeMode(values.get("hoodie.record.merge.mode", default_mode.value))
        except (KeyError, ValueError) as error:
            raise CorruptTableError(f"{path}: not the properties of a table: {error}", path=path) from error
        if version not in (8, CURRENT_VERSION) or layout != 2:
            raise UnsupportedTableError(
                f"{path}: the table has version {version} with timeline layout {layout}",
                hint="versions 8 and 9 are served: upgrade the table with Hudi 1.x first",
            )
        # A field may carry its generator, as in `region:SIMPLE`.
        partitions = tuple(
            part.partition(":")[0] for part in _fields(values.get("hoodie.table.partition.fields"))
        )
        keys = _fields(values.get("hoodie.table.recordkey.fields"))
        metadata = (values.get(METADATA_PARTITIONS), values.get(METADATA_PARTITIONS_INFLIGHT))
        return cls(
            name=name,
            version=version,
            table_type=table_type,
            key_fields=keys,
            partition_fields=partitions,
            ordering_fields=ordering,
            merge_mode=mode,
            key_generator=values.get("hoodie.table.keygenerator.type")
            or KeyGenerator.for_fields(len(keys), len(partitions)).value,
            hive_style=_true(values.get("hoodie.datasource.write.hive_style_partitioning")),
            url_encoded=_true(values.get("hoodie.datasource.write.partitionpath.urlencode")),
            utc=values.get("hoodie.table.timeline.timezone", "LOCAL").upper() == "UTC",
            metadata_partitions=tuple(part for text in metadata for part in _fields(text)),
            values=dict(values),
        )

    @property
    def event_time(self) -> bool:
        """Late rows lose."""
        return self.merge_mode is MergeMode.EVENT_TIME and bool(self.ordering_fields)

    @property
    def keys_are_composed(self) -> bool:
        """Record keys read ``field:value,field:value``."""
        if len(self.key_fields) > 1:
            return True
        if self.key_generator.removesuffix("_AVRO") != KeyGenerator.COMPLEX.value:
            return False
        new_encoding = _true(self.values.get("hoodie.write.complex.keygen.new.encoding"))
        return self.version >= CURRENT_VERSION or not new_encoding

    @property
    def paths_are_values(self) -> bool:
        """Partition paths are made of the fields' values as they are, and not of something derived."""
        return self.key_generator.removesuffix("_AVRO") in {item.value for item in KeyGenerator}

    def refuse_reading(self, path: str) -> None:
        """``UnsupportedTableError`` for a table whose snapshot we can't tell."""
        reasons = []
        if self.table_type is TableType.MERGE_ON_READ:
            reasons.append("it is merge-on-read")
        if self.values.get("hoodie.table.base.file.format", "PARQUET").upper() != "PARQUET":
            reasons.append("its base files are not parquet")
        if any(key.startswith("hoodie.bootstrap.base.path") for key in self.values):
            reasons.append("it was bootstrapped from foreign files")
        _refuse(reasons, path, "read", "use Hudi's own reader")

    def refuse_writing(self, path: str) -> None:
        """``UnsupportedTableError`` for a table that we would write wrongly."""
        self.refuse_reading(path)
        reasons = []
        if not self.key_fields:
            reasons.append("it has no record key (Hudi makes its keys)")
        if not self.paths_are_values:
            reasons.append(f"its key generator is {self.key_generator}")
        if self.merge_mode is MergeMode.CUSTOM:
            reasons.append("its rows are merged by custom code")
        if self.values.get("hoodie.table.partial.update.mode"):
            reasons.append("it has a partial update mode")
        if _true(self.values.get("hoodie.table.cdc.enabled")):
            reasons.append("it keeps a change log (hoodie.table.cdc.enabled)")
        if not _true(self.values.get("hoodie.populate.meta.fields", "true")):
            reasons.append("it has no meta columns (hoodie.populate.meta.fields)")
        if _true(self.values.get("hoodie.datasource.write.drop.partition.columns")):
            reasons.append("its files lack the partition columns (…drop.partition.columns)")
        if _true(self.values.get("hoodie.partition.metafile.use.base.format")):
            reasons.append("its partition files are parquet (…metafile.use.base.format)")
        _refuse(reasons, path, "written", "write it with Hudi")


def _refuse(reasons: list[str], path: str, what: str, way_out: str) -> None:
    if reasons:
        raise UnsupportedTableError(
            f"{path}: the table can't be {what}: {'; '.join(reasons)}", path=path, hint=way_out
        )


def _true(text: str | None) -> bool:
    return (text or "").strip().lower() == "true"
