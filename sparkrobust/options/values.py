"""The words that options take, each enum's value being Hudi's spelling."""

from __future__ import annotations

from enum import Enum


class Operation(Enum):
    """What a write does with its rows."""

    UPSERT = "upsert"
    INSERT = "insert"
    BULK_INSERT = "bulk_insert"
    DELETE = "delete"


class TableType(Enum):
    COPY_ON_WRITE = "COPY_ON_WRITE"


class KeyGenerator(Enum):
    """How record key and partition path are made of a row's fields."""

    SIMPLE = "SIMPLE"
    COMPLEX = "COMPLEX"
    NON_PARTITION = "NON_PARTITION"


class MergeMode(Enum):
    """Which of two rows of one key stays."""

    COMMIT_TIME_ORDERING = "COMMIT_TIME_ORDERING"
    EVENT_TIME_ORDERING = "EVENT_TIME_ORDERING"


class DuplicatePolicy(Enum):
    """What an insert does with a key that the table has already."""

    NONE = "none"
    DROP = "drop"
    FAIL = "fail"


class SortMode(Enum):
    """How a bulk insert lays out its rows."""

    NONE = "NONE"
    GLOBAL_SORT = "GLOBAL_SORT"
    PARTITION_SORT = "PARTITION_SORT"
    PARTITION_PATH_REPARTITION = "PARTITION_PATH_REPARTITION"
    PARTITION_PATH_REPARTITION_AND_SORT = "PARTITION_PATH_REPARTITION_AND_SORT"


class IndexType(Enum):
    """How the rows of a key are found."""

    SIMPLE = "SIMPLE"


class Codec(Enum):
    """Compression of data files."""

    SNAPPY = "snappy"
    GZIP = "gzip"
    ZSTD = "zstd"
    LZ4_RAW = "lz4_raw"
    UNCOMPRESSED = "uncompressed"


class FileFormat(Enum):
    PARQUET = "PARQUET"


class ConcurrencyMode(Enum):
    SINGLE_WRITER = "SINGLE_WRITER"
    OPTIMISTIC = "OPTIMISTIC_CONCURRENCY_CONTROL"


class ConflictStrategy(Enum):
    """How the writes are found that were completed while another one ran."""

    START_TIME = "SimpleConcurrentFileWritesConflictResolutionStrategy"
    COMPLETION_TIME = "EndTimestampBasedConcurrentFileWritesConflictResolutionStrategy"


class LockProvider(Enum):
    """Who is kept apart by the table's lock."""

    IN_PROCESS = "InProcessLockProvider"
    FILE_SYSTEM = "FileSystemBasedLockProvider"
    STORAGE = "StorageBasedLockProvider"
    ZOOKEEPER = "ZookeeperBasedLockProvider"


class KeyConflictCheck(Enum):
    """Whether two writers that insert one new key conflict."""

    EXACT = "exact"
    OFF = "off"


class FailedWritesPolicy(Enum):
    """When the remains of failed writes are rolled back."""

    EAGER = "EAGER"
    LAZY = "LAZY"
    NEVER = "NEVER"


class TimelineZone(Enum):
    """The zone of a table's instants."""

    UTC = "UTC"
    LOCAL = "LOCAL"


class OnFinalized(Enum):
    """What a task does that runs after its write was finalized."""

    REUSE = "reuse"
    FAIL = "fail"


class Mode(Enum):
    """How files become visible."""

    AUTO = "auto"
    COPY = "copy"
    DIRECT = "direct"


class PinInput(Enum):
    """What is done about rows that may be others when they are read again, where nobody counts them."""

    AUTO = "auto"
    CHECK = "check"
    OFF = "off"


class Progress(Enum):
    """Whether a write shows how far it is."""

    AUTO = "auto"
    ON = "on"
    OFF = "off"


class UnknownOptions(Enum):
    """What happens on a ``hoodie.*`` key that nobody knows."""

    ERROR = "error"
    WARN = "warn"


class QueryType(Enum):
    """On a copy-on-write table both give the latest rows."""

    SNAPSHOT = "snapshot"
    READ_OPTIMIZED = "read_optimized"
