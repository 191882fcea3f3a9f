"""The one table of options: every key that this library acts on.

Keys and values are Hudi's own; so are the defaults, but where ``doc`` names a departure.  The README's
table and the samples in ``conf/`` are generated from here.  A default of ``None`` means that the table's
own properties decide, or, for a new table, what ``doc`` says.
"""

from __future__ import annotations

from sparkrobust.options import values as v
from sparkrobust.options.of_tables import TABLE_OPTIONS
from sparkrobust.options.option import Kind, Option

_W = "hoodie.datasource.write."

WRITE_OPTIONS = (
    Option(
        key=f"{_W}operation",
        field="operation",
        kind=Kind.WORD,
        words=v.Operation,
        default=v.Operation.UPSERT,
        not_yet=("insert_overwrite", "insert_overwrite_table", "delete_partition"),
        doc="what is done with the rows",
    ),
    Option(
        key="hoodie.combine.before.insert",
        field="combine_before_insert",
        kind=Kind.BOOL,
        default=False,
        doc="of several incoming rows of a key only the largest, or last, is inserted; "
        "an upsert always does so",
    ),
    Option(
        key="hoodie.datasource.insert.dup.policy",
        field="duplicate_policy",
        kind=Kind.WORD,
        words=v.DuplicatePolicy,
        default=v.DuplicatePolicy.NONE,
        doc="what insert does with a key that the table has: add a second row, drop the new one, fail",
    ),
    Option(
        key=f"{_W}insert.drop.duplicates",
        field="insert_drop_duplicates",
        kind=Kind.BOOL,
        default=False,
        doc="older way to say the policy `drop`",
    ),
    Option(
        key="hoodie.merge.allow.duplicate.on.inserts",
        field="merge_allow_duplicate_on_inserts",
        kind=Kind.BOOL,
        default=True,
        doc="an insert that fills a file which has the key keeps both rows",
    ),
    Option(
        key="hoodie.index.type",
        field="index_type",
        kind=Kind.WORD,
        words=v.IndexType,
        default=v.IndexType.SIMPLE,
        not_yet=(
            "GLOBAL_SIMPLE",
            "BLOOM",
            "GLOBAL_BLOOM",
            "BUCKET",
            "RECORD_INDEX",
            "RECORD_LEVEL_INDEX",
            "GLOBAL_RECORD_LEVEL_INDEX",
            "INMEMORY",
            "FLINK_STATE",
        ),
        doc="how the rows of a key are found",
    ),
    Option(
        key="hoodie.bulkinsert.sort.mode",
        field="sort_mode",
        kind=Kind.WORD,
        words=v.SortMode,
        default=v.SortMode.NONE,
        doc="how a bulk insert lays out its rows",
    ),
    Option(
        key="hoodie.bulkinsert.shuffle.parallelism",
        field="bulk_insert_parallelism",
        kind=Kind.INT,
        default=0,
        unit="tasks",
        doc="tasks of a bulk insert that shuffles; 0: Spark's choice",
    ),
    Option(
        key=f"{_W}keygenerator.consistent.logical.timestamp.enabled",
        field="consistent_logical_timestamp",
        kind=Kind.BOOL,
        default=False,
        doc="a timestamp in a key is spelled as a date and time, whichever way the row is written",
    ),
    Option(
        key="hoodie.write.set.null.for.missing.columns",
        field="set_null_for_missing_columns",
        kind=Kind.BOOL,
        default=False,
        doc="a column of the table that the rows lack becomes null instead of an error",
    ),
    Option(
        key=f"{_W}reconcile.schema",
        field="reconcile_schema",
        kind=Kind.BOOL,
        default=False,
        doc="older way to say the same: the table keeps its columns when rows come with fewer",
    ),
    Option(
        key=f"{_W}schema.allow.auto.evolution.column.drop",
        field="allow_column_drop",
        kind=Kind.BOOL,
        default=False,
        doc="a column that the rows lack leaves the table",
    ),
    Option(
        key="hoodie.write.robust.driver.max.bytes",
        field="driver_bytes",
        kind=Kind.INT,
        default=4 << 20,
        unit="bytes",
        doc="a write of few files that are together no larger the driver writes itself, since starting "
        "tasks would take longer; 0: never",
    ),
    Option(
        key="hoodie.write.robust.mode",
        field="mode",
        kind=Kind.WORD,
        words=v.Mode,
        default=v.Mode.AUTO,
        doc="how files become visible: by the best way that the store has (`sr.Table(path).guarantees()` "
        "tells it); by copies, as on Azure, and refused elsewhere; by the tasks themselves before the "
        "commit, which keeps fewer promises",
    ),
    Option(
        key="hoodie.write.robust.on.finalized",
        field="on_finalized",
        kind=Kind.WORD,
        words=v.OnFinalized,
        default=v.OnFinalized.REUSE,
        doc="a task that Spark runs again after its write was finalized writes nothing in either case: "
        "it serves what was written, or fails",
    ),
    Option(
        key="hoodie.write.robust.pin.input",
        field="pin_input",
        kind=Kind.WORD,
        words=v.PinInput,
        default=v.PinInput.AUTO,
        doc="a bulk insert whose rows may be others when Spark makes a part of them again: store them in the "
        "table's folder first, where the plan goes by chance or by the order of rows below a shuffle; "
        "count them twice; neither",
    ),
    Option(
        key="hoodie.write.robust.write.id",
        field="write_id",
        kind=Kind.TEXT,
        doc="a name of this write, for a job that may run again: if a write of this name is durable, its "
        "result is returned and nothing written; what a dead driver of it left is committed if all was "
        "there; it is looked for on the active timeline and in the archived one",
    ),
    Option(
        key="hoodie.write.robust.progress",
        field="progress",
        kind=Kind.WORD,
        words=v.Progress,
        default=v.Progress.AUTO,
        doc="show how far a write is: on a terminal or in a notebook, else only in the log at INFO; "
        "always, in lines of text; never",
    ),
    Option(
        key=f"{_W}commitmeta.key.prefix",
        field="commit_metadata_prefix",
        kind=Kind.TEXT,
        default="_",
        doc="options whose key begins so are stored in the commit's extra metadata",
    ),
)

FILE_OPTIONS = (
    Option(
        key="hoodie.parquet.max.file.size",
        field="max_file_size",
        kind=Kind.INT,
        default=120 << 20,
        unit="bytes",
        minimum=1,
        doc="target size of a data file",
    ),
    Option(
        key="hoodie.parquet.small.file.limit",
        field="small_file_limit",
        kind=Kind.INT,
        default=100 << 20,
        unit="bytes",
        doc="files below it are filled up by later inserts; 0: never",
    ),
    Option(
        key="hoodie.parquet.block.size",
        field="block_size",
        kind=Kind.INT,
        default=120 << 20,
        unit="bytes",
        minimum=1,
        doc="size of a row group",
    ),
    Option(
        key="hoodie.parquet.page.size",
        field="page_size",
        kind=Kind.INT,
        default=1 << 20,
        unit="bytes",
        minimum=1,
        doc="size of a page",
    ),
    Option(
        key="hoodie.parquet.compression.codec",
        field="codec",
        kind=Kind.WORD,
        words=v.Codec,
        default=v.Codec.SNAPPY,
        doc="compression of data files (a departure: Hudi's default is gzip)",
    ),
    Option(
        key="hoodie.parquet.dictionary.enabled",
        field="dictionary",
        kind=Kind.BOOL,
        default=True,
        doc="dictionary encoding",
    ),
    Option(
        key="hoodie.copyonwrite.record.size.estimate",
        field="record_size_estimate",
        kind=Kind.INT,
        default=1024,
        unit="bytes",
        minimum=1,
        doc="size of a row, while the table has no commit to learn it from",
    ),
    Option(
        key="hoodie.copyonwrite.insert.split.size",
        field="insert_split_size",
        kind=Kind.INT,
        default=500_000,
        unit="rows",
        minimum=1,
        doc="rows of a new file, where they are not derived from sizes",
    ),
    Option(
        key="hoodie.copyonwrite.insert.auto.split",
        field="insert_auto_split",
        kind=Kind.BOOL,
        default=True,
        doc="rows of a new file are derived from the sizes of earlier ones",
    ),
)

SAFETY_OPTIONS = (
    Option(
        key="hoodie.write.concurrency.mode",
        field="concurrency_mode",
        kind=Kind.WORD,
        words=v.ConcurrencyMode,
        default=v.ConcurrencyMode.SINGLE_WRITER,
        not_yet=("NON_BLOCKING_CONCURRENCY_CONTROL",),
        doc="who may write at the same time: nobody else; or others who have the same lock provider, and "
        "then the second of two writes that change the same file group is refused when it commits",
    ),
    Option(
        key="hoodie.write.lock.conflict.resolution.strategy",
        field="conflict_strategy",
        kind=Kind.CLASS,
        words=v.ConflictStrategy,
        default=v.ConflictStrategy.START_TIME,
        doc="how the writes are found that were completed while this one ran, by Hudi's class name, with or "
        "without package: by when they began, or by when they were completed",
    ),
    Option(
        key="hoodie.write.concurrency.early.conflict.detection.enable",
        field="early_conflicts",
        kind=Kind.BOOL,
        default=False,
        doc="look for conflicts before the files are written, too; of two running writes the one that began "
        "later gives way",
    ),
    Option(
        key="hoodie.write.robust.key.conflict.check",
        field="key_conflict_check",
        kind=Kind.WORD,
        words=v.KeyConflictCheck,
        doc="whether a write is refused that inserts a key which another writer inserted at the same time; "
        "without, it is by an upsert and by an insert that looks for duplicates, among several writers",
    ),
    Option(
        key="hoodie.write.num.retries.on.conflict.failures",
        field="conflict_retries",
        kind=Kind.INT,
        default=0,
        doc="how often a write that met a conflict is made again, from the table as it is then; before that "
        "an upsert, or an insert that looks up no keys, does as often only the file groups again that writes "
        "which began earlier have changed",
    ),
    Option(
        key="hoodie.clean.failed.writes.policy",
        field="failed_writes_policy",
        kind=Kind.WORD,
        words=v.FailedWritesPolicy,
        default=v.FailedWritesPolicy.EAGER,
        aliases=("hoodie.cleaner.policy.failed.writes",),
        doc="when the remains of failed writes are rolled back: before the next write, which is for single "
        "writers; before the next write once their heartbeat has expired, which several writers need and "
        "have by default; by no write",
    ),
    Option(
        key="hoodie.table.services.rollback.delay.minutes",
        field="rollback_delay_minutes",
        kind=Kind.INT,
        default=60,
        unit="minutes",
        aliases=("table_service_rollback_delay",),
        doc="age at which the plan of a table service may be rolled back whose rollback removes it",
    ),
    Option(
        key="hoodie.write.lock.provider",
        field="lock_provider",
        kind=Kind.CLASS,
        words=v.LockProvider,
        default=v.LockProvider.IN_PROCESS,
        doc="the lock under which writes begin and commit, by Hudi's class name, with or without package: "
        "between the threads of a driver; or by a file that all writers share, as Hudi's writers take it: "
        "one that is there as long as the lock is held, or one that says until when it is; or in ZooKeeper",
    ),
    Option(
        key="hoodie.write.lock.filesystem.path",
        field="lock_file_folder",
        kind=Kind.TEXT,
        doc="folder of the lock's file; without, the table's `.hoodie`",
    ),
    Option(
        key="hoodie.write.lock.filesystem.expire",
        field="lock_file_expire_minutes",
        kind=Kind.INT,
        default=0,
        unit="minutes",
        doc="age at which the lock's file of a writer that must be dead is taken over; 0: never",
    ),
    Option(
        key="hoodie.write.lock.storage.validity.timeout.secs",
        field="lock_validity_seconds",
        kind=Kind.INT,
        default=300,
        unit="seconds",
        minimum=10,
        doc="how long the storage-based lock counts that its holder does not renew any more",
    ),
    Option(
        key="hoodie.write.lock.storage.renew.interval.secs",
        field="lock_renew_seconds",
        kind=Kind.INT,
        default=30,
        unit="seconds",
        minimum=1,
        doc="how often a holder renews the storage-based lock; ten times fit into its validity",
    ),
    Option(
        key="hoodie.write.lock.zookeeper.url",
        field="zookeeper_hosts",
        kind=Kind.TEXT,
        doc="ZooKeeper's servers, with commas between them, each with its port unless all have the one below",
    ),
    Option(
        key="hoodie.write.lock.zookeeper.port",
        field="zookeeper_port",
        kind=Kind.INT,
        default=2181,
        minimum=1,
        doc="the port of ZooKeeper's servers that are named without one",
    ),
    Option(
        key="hoodie.write.lock.zookeeper.base_path",
        field="zookeeper_base",
        kind=Kind.TEXT,
        doc="ZooKeeper's node below which the locks of tables are",
    ),
    Option(
        key="hoodie.write.lock.zookeeper.lock_key",
        field="zookeeper_key",
        kind=Kind.TEXT,
        doc="the node of this table's lock; without, the table's name, as it is given or as the table has it",
    ),
    Option(
        key="hoodie.write.lock.zookeeper.session_timeout_ms",
        field="zookeeper_session_ms",
        kind=Kind.INT,
        default=60_000,
        unit="milliseconds",
        minimum=1000,
        doc="after which ZooKeeper frees the lock of a writer that it does not hear any more",
    ),
    Option(
        key="hoodie.write.lock.zookeeper.connection_timeout_ms",
        field="zookeeper_connect_ms",
        kind=Kind.INT,
        default=15_000,
        unit="milliseconds",
        minimum=1,
        doc="how long ZooKeeper may take to answer",
    ),
    Option(
        key="hoodie.write.lock.wait_time_ms",
        field="lock_wait_ms",
        kind=Kind.INT,
        default=60_000,
        unit="milliseconds",
        doc="how long a write waits for the lock",
    ),
    Option(
        key="hoodie.time.generator.max_expected_clock_skew_ms",
        field="clock_skew_ms",
        kind=Kind.INT,
        default=200,
        unit="milliseconds",
        doc="how much the clocks of hosts that share a lock may differ; no wait where none is shared",
    ),
    Option(
        key="hoodie.client.heartbeat.interval_in_ms",
        field="heartbeat_interval_ms",
        kind=Kind.INT,
        default=60_000,
        unit="milliseconds",
        minimum=1000,
        doc="how often a write says that it is alive",
    ),
    Option(
        key="hoodie.client.heartbeat.tolerable.misses",
        field="heartbeat_misses",
        kind=Kind.INT,
        default=2,
        unit="intervals",
        minimum=1,
        doc="after so many without a heartbeat a write gives itself up, and others take it for dead",
    ),
    Option(
        key="hoodie.metadata.enable",
        field="metadata_enable",
        kind=Kind.BOOL,
        default=False,
        doc="Hudi's metadata table: we do not keep one (a departure: Hudi's default is true)",
    ),
    Option(
        key="hoodie.write.robust.drop.metadata.table",
        field="drop_metadata_table",
        kind=Kind.BOOL,
        default=False,
        doc="a write may drop the table's metadata table, which we do not keep, in Hudi's own way",
    ),
    Option(
        key="hoodie.write.robust.unknown.options",
        field="unknown_options",
        kind=Kind.WORD,
        words=v.UnknownOptions,
        default=v.UnknownOptions.ERROR,
        doc="what happens on a `hoodie.*` key that nobody knows",
    ),
)

SECTIONS = {
    "The table": TABLE_OPTIONS,
    "The write": WRITE_OPTIONS,
    "Files": FILE_OPTIONS,
    "Safety": SAFETY_OPTIONS,
}
OPTIONS = tuple(option for section in SECTIONS.values() for option in section)

READ_OPTIONS = (
    Option(
        key="hoodie.datasource.query.type",
        field="query_type",
        kind=Kind.WORD,
        words=v.QueryType,
        default=v.QueryType.SNAPSHOT,
        aliases=("hoodie.datasource.view.type",),
        not_yet=("incremental",),
        doc="which rows are read",
    ),
    Option(
        key="hoodie.write.robust.unknown.options",
        field="unknown_options",
        kind=Kind.WORD,
        words=v.UnknownOptions,
        default=v.UnknownOptions.ERROR,
        doc="what happens on a `hoodie.*` key that nobody knows",
    ),
)
