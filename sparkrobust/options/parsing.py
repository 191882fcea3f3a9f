"""Options as a pipeline spells them become values to rely on, or one error that names all bad ones."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum

from sparkrobust.errors import InvalidOptionError
from sparkrobust.options import values as v
from sparkrobust.options.hudi_keys import FAMILIES, KEYS
from sparkrobust.options.option import Kind, Option, Refusal
from sparkrobust.options.refusals import READ_REFUSED, REFUSED
from sparkrobust.options.table import OPTIONS, READ_OPTIONS

Given = Mapping[str, str | bool | int | float | None]

_OF_STORES = ("fs.", "dfs.", "spark.hadoop.fs.", "spark.hadoop.dfs.")
"""What a caller may pass: as in Spark, a boolean is spelled in lower case, and ``None`` is not given."""


@dataclass(frozen=True, kw_only=True)
class WriteOptions:
    """The options of one write, typed.  ``None`` leaves it to the table's own properties."""

    table_name: str | None = None
    database_name: str | None = None
    record_key_fields: tuple[str, ...] | None = None
    partition_fields: tuple[str, ...] | None = None
    ordering_fields: tuple[str, ...] | None = None
    key_generator: v.KeyGenerator | None = None
    hive_style_partitioning: bool | None = None
    url_encode_partitions: bool | None = None
    table_type: v.TableType | None = None
    merge_mode: v.MergeMode | None = None
    payload_class: str | None = None
    base_file_format: v.FileFormat | None = None
    timeline_zone: v.TimelineZone | None = None

    operation: v.Operation = v.Operation.UPSERT
    combine_before_insert: bool = False
    duplicate_policy: v.DuplicatePolicy = v.DuplicatePolicy.NONE
    insert_drop_duplicates: bool = False
    merge_allow_duplicate_on_inserts: bool = True
    index_type: v.IndexType = v.IndexType.SIMPLE
    sort_mode: v.SortMode = v.SortMode.NONE
    bulk_insert_parallelism: int = 0
    consistent_logical_timestamp: bool = False
    set_null_for_missing_columns: bool = False
    reconcile_schema: bool = False
    allow_column_drop: bool = False
    driver_bytes: int = 4 << 20
    mode: v.Mode = v.Mode.AUTO
    on_finalized: v.OnFinalized = v.OnFinalized.REUSE
    write_id: str | None = None
    pin_input: v.PinInput = v.PinInput.AUTO
    progress: v.Progress = v.Progress.AUTO
    commit_metadata_prefix: str = "_"

    max_file_size: int = 120 << 20
    small_file_limit: int = 100 << 20
    block_size: int = 120 << 20
    page_size: int = 1 << 20
    codec: v.Codec = v.Codec.SNAPPY
    dictionary: bool = True
    record_size_estimate: int = 1024
    insert_split_size: int = 500_000
    insert_auto_split: bool = True

    concurrency_mode: v.ConcurrencyMode = v.ConcurrencyMode.SINGLE_WRITER
    conflict_strategy: v.ConflictStrategy = v.ConflictStrategy.START_TIME
    early_conflicts: bool = False
    key_conflict_check: v.KeyConflictCheck | None = None
    conflict_retries: int = 0
    failed_writes_policy: v.FailedWritesPolicy = v.FailedWritesPolicy.EAGER
    rollback_delay_minutes: int = 60
    lock_provider: v.LockProvider = v.LockProvider.IN_PROCESS
    lock_file_folder: str | None = None
    lock_file_expire_minutes: int = 0
    lock_validity_seconds: int = 300
    lock_renew_seconds: int = 30
    zookeeper_hosts: str | None = None
    zookeeper_port: int = 2181
    zookeeper_base: str | None = None
    zookeeper_key: str | None = None
    zookeeper_session_ms: int = 60_000
    zookeeper_connect_ms: int = 15_000
    lock_wait_ms: int = 60_000
    clock_skew_ms: int = 200
    heartbeat_interval_ms: int = 60_000
    heartbeat_misses: int = 2
    metadata_enable: bool = False
    drop_metadata_table: bool = False
    unknown_options: v.UnknownOptions = v.UnknownOptions.ERROR

    storage: Mapping[str, str] = field(default_factory=dict, repr=False)
    """What the store wants to know (``fs.*``), as it was given; may hold credentials."""
    commit_metadata: Mapping[str, str] = field(default_factory=dict)
    """Texts that the caller wants kept in the commit."""
    ignored: tuple[str, ...] = ()
    """Keys that are known and not needed, or not about tables; to be said once."""
    unknown: tuple[str, ...] = ()
    """``hoodie.*`` keys that nobody knows, where that is to be a warning."""


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """The options of one read, typed."""

    query_type: v.QueryType = v.QueryType.SNAPSHOT
    unknown_options: v.UnknownOptions = v.UnknownOptions.ERROR
    storage: Mapping[str, str] = field(default_factory=dict, repr=False)
    ignored: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()


def parse(options: Given) -> WriteOptions:
    """The options of a write.

    Keys are looked up in any case, values by the rules of the table in :mod:`sparkrobust.options.table`.

    Raises
    ------
    InvalidOptionError
        Naming every key that is wrong, with the reason.
    """
    sorted_out = _sort_out(options, OPTIONS, REFUSED)
    fields, problems = sorted_out.fields, sorted_out.problems
    _settle_key_generator(fields, problems)
    _settle_merge_mode(fields, problems)
    _settle_duplicates(fields, problems)
    _settle_writers(fields, problems)
    _settle_lock_times(fields, problems)
    _settle_zookeeper(fields, problems)
    prefix = str(fields.get("commit_metadata_prefix", "_"))
    extra = {
        key: text
        for key, text in sorted_out.others.items()
        if prefix and key.startswith(prefix) and not key.startswith("_hoodie.")
    }
    sorted_out.finish()
    ignored = (
        *sorted_out.ignored,
        *(key for key in sorted_out.others if key not in extra and key.lower() != "path"),
        *(["hoodie.metadata.enable"] if fields.get("metadata_enable") else []),
    )
    return WriteOptions(
        **fields,  # type: ignore[arg-type]  # a test holds the table's fields against the class
        storage=sorted_out.storage,
        commit_metadata=extra,
        ignored=ignored,
        unknown=tuple(sorted_out.unknown),
    )


def parse_read(options: Given) -> ReadOptions:
    """The options of a read; those of a write are fine and mean nothing there."""
    sorted_out = _sort_out(options, READ_OPTIONS, READ_REFUSED)
    sorted_out.finish()
    return ReadOptions(
        **sorted_out.fields,  # type: ignore[arg-type]  # as above
        storage=sorted_out.storage,
        ignored=(*sorted_out.ignored, *(key for key in sorted_out.others if key.lower() != "path")),
        unknown=tuple(sorted_out.unknown),
    )


# -- sorting keys ----------------------------------------------------------------------------------


def _names(rows: Iterable[Option] | Iterable[Refusal]) -> frozenset[str]:
    return frozenset(name for row in rows for name in (row.key, *row.aliases))


_WRITE_KEYS = _names(OPTIONS) | _names(REFUSED)
_READ_KEYS = _names(READ_OPTIONS) | _names(READ_REFUSED)
_EVERY_KEY = sorted(_WRITE_KEYS | _READ_KEYS | KEYS)


@dataclass(kw_only=True)
class _SortedOut:
    """What became of each key that was given."""

    fields: dict[str, object] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    storage: dict[str, str] = field(default_factory=dict)
    ignored: list[str] = field(default_factory=list)
    unknown: list[str] = field(default_factory=list)
    others: dict[str, str] = field(default_factory=dict)
    """Keys that are not Hudi's."""

    def finish(self) -> None:
        if self.unknown and self.fields.get("unknown_options") is not v.UnknownOptions.WARN:
            self.problems.extend(
                f"{key if key.isprintable() else repr(key)}: nobody knows this option{did_you_mean(key)}"
                for key in self.unknown
            )
        if not self.problems:
            return
        count = "An option is wrong" if len(self.problems) == 1 else f"{len(self.problems)} options are wrong"
        raise InvalidOptionError(f"{count}:" + "".join(f"\n  {problem}" for problem in self.problems))


def _sort_out(options: Given, rows: tuple[Option, ...], refusals: tuple[Refusal, ...]) -> _SortedOut:
    result = _SortedOut()
    given = {key: spelled(value) for key, value in options.items() if value is not None}
    hudi: dict[str, str] = {}
    acted = _names(rows) | _names(refusals)
    for key, text in given.items():
        lower = key.lower()
        if lower in acted:
            hudi[lower] = text
        elif lower.startswith(_OF_STORES):
            result.storage[key[len("spark.hadoop.") :] if lower.startswith("spark.") else key] = text
        elif lower in KEYS or lower in _WRITE_KEYS or lower in _READ_KEYS or lower.startswith(FAMILIES):
            result.ignored.append(key)
        elif lower.startswith("hoodie."):
            result.unknown.append(key)
        else:
            result.others[key] = text
    for row in rows:
        _take(row, hudi, result)
    for refusal in refusals:
        for name in (refusal.key, *refusal.aliases):
            if hudi.get(name, "").strip().lower() not in refusal.harmless:
                result.problems.append(f"{name}: not supported: {refusal.reason}")
    return result


def _take(row: Option, given: Mapping[str, str], result: _SortedOut) -> None:
    """Read one option under all its names; two names may say the same thing, not different ones."""
    for name in (row.key, *row.aliases):
        if name not in given:
            continue
        try:
            value = _READERS[row.kind](row, given[name].strip())
        except ValueError as problem:
            result.problems.append(f"{name}: {problem}")
            continue
        if value is None:
            continue
        if result.fields.setdefault(row.field, value) != value:
            result.problems.append(f"{name}: contradicts another option that means the same ({row.key})")


def spelled(value: str | bool | int | float) -> str:
    """A value as Spark's own writer would pass it on."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def did_you_mean(key: str) -> str:
    """The known keys most like this one, as the end of a sentence."""
    likely = difflib.get_close_matches(key.lower(), _EVERY_KEY, n=2, cutoff=0.75)
    return f"; did you mean {' or '.join(likely)}?" if likely else ""


# -- reading values --------------------------------------------------------------------------------


def _text(row: Option, text: str) -> object:
    return text or None


def _fields(row: Option, text: str) -> object:
    names = tuple(name.strip() for name in text.split(",")) if text else ()
    if "" in names:
        raise ValueError(f"{text!r} has an empty name between its commas")
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise ValueError(f"names {', '.join(twice)} twice")
    return names


def _bool(row: Option, text: str) -> object:
    if text.lower() not in ("true", "false"):
        raise ValueError(f"{text!r} is neither true nor false")
    return text.lower() == "true"


def _int(row: Option, text: str) -> object:
    unit = f" of {row.unit}" if row.unit else ""
    if not re.fullmatch(r"[+-]?[0-9]{1,18}", text):
        raise ValueError(f"{text!r} is not a whole number{unit}")
    if int(text) < row.minimum:
        raise ValueError(f"{text} is less than {row.minimum:g}{unit}")
    return int(text)


def _word(row: Option, text: str) -> object:
    if not text:
        return None
    assert row.words is not None
    canonical = text.lower().removesuffix("_avro") if row.words is v.KeyGenerator else text.lower()
    for word in row.words:
        if str(word.value).lower() == canonical:
            return word
    allowed = ", ".join(row.values)
    if canonical in (later.lower() for later in row.not_yet):
        raise ValueError(f"{text!r} is not supported; supported: {allowed}")
    likely = difflib.get_close_matches(canonical, [value.lower() for value in row.values], n=1)
    guess = f"; did you mean {next(x for x in row.values if x.lower() == likely[0])}?" if likely else ""
    raise ValueError(f"{text!r} is not one of {allowed}{guess}")


_KEY_GENERATORS = {
    "SimpleKeyGenerator": v.KeyGenerator.SIMPLE,
    "SimpleAvroKeyGenerator": v.KeyGenerator.SIMPLE,
    "ComplexKeyGenerator": v.KeyGenerator.COMPLEX,
    "ComplexAvroKeyGenerator": v.KeyGenerator.COMPLEX,
    "NonpartitionedKeyGenerator": v.KeyGenerator.NON_PARTITION,
    "NonpartitionedAvroKeyGenerator": v.KeyGenerator.NON_PARTITION,
}
_LOCKS = {provider.value: provider for provider in v.LockProvider}
_STRATEGIES = {
    **{strategy.value: strategy for strategy in v.ConflictStrategy},
    # Buckets are recognised by themselves.
    "BucketIndexConcurrentFileWritesConflictResolutionStrategy": v.ConflictStrategy.START_TIME,
}
_STRATEGY_PACKAGE = "org.apache.hudi.client.transaction."
_LOCK_PACKAGE = "org.apache.hudi.client.transaction.lock."
_KEYGEN_PACKAGE = "org.apache.hudi.keygen."
_PAYLOADS = {
    "OverwriteWithLatestAvroPayload": v.MergeMode.COMMIT_TIME_ORDERING,
    "DefaultHoodieRecordPayload": v.MergeMode.EVENT_TIME_ORDERING,
}
_PAYLOAD_PACKAGE = "org.apache.hudi.common.model."

_CLASSES: Mapping[type[Enum] | None, tuple[Mapping[str, Enum], str]] = {
    v.KeyGenerator: (_KEY_GENERATORS, _KEYGEN_PACKAGE),
    v.LockProvider: (_LOCKS, _LOCK_PACKAGE),
    v.ConflictStrategy: (_STRATEGIES, _STRATEGY_PACKAGE),
    None: (_PAYLOADS, _PAYLOAD_PACKAGE),
}


def _class(row: Option, text: str) -> object:
    if not text:
        return None
    known, package = _CLASSES[row.words]
    simple = text.removeprefix(package)
    if simple in known:
        return known[simple] if row.words else package + simple
    supported = [name for name in known if "Avro" not in name or not row.words]
    likely = difflib.get_close_matches(simple, supported, n=1)
    guess = f"; did you mean {likely[0]}?" if likely and likely[0].lower() == simple.lower() else ""
    raise ValueError(f"{text!r} is not supported{guess or '; supported: ' + ', '.join(supported)}")


_READERS: Mapping[Kind, Callable[[Option, str], object]] = {
    Kind.TEXT: _text,
    Kind.FIELDS: _fields,
    Kind.BOOL: _bool,
    Kind.INT: _int,
    Kind.WORD: _word,
    Kind.CLASS: _class,
}


# -- options that speak of each other ----------------------------------------------------------------


def _settle_key_generator(fields: dict[str, object], problems: list[str]) -> None:
    """The generator has to fit the numbers of fields, as far as these are given."""
    generator = fields.get("key_generator")
    if generator is v.KeyGenerator.NON_PARTITION:
        fields["partition_fields"] = ()
    if generator is not v.KeyGenerator.SIMPLE:
        return
    for name in ("record_key_fields", "partition_fields"):
        names = fields.get(name)
        if isinstance(names, tuple) and len(names) > 1:
            key = next(option.key for option in OPTIONS if option.field == name)
            problems.append(
                f"{key}: a SIMPLE key generator takes one field: set the type COMPLEX, or leave it out"
            )


def _settle_merge_mode(fields: dict[str, object], problems: list[str]) -> None:
    """A payload class says the merge mode too."""
    payload = fields.get("payload_class")
    if payload is None:
        return
    mode = _PAYLOADS[str(payload).removeprefix(_PAYLOAD_PACKAGE)]
    if fields.setdefault("merge_mode", mode) is not mode:
        problems.append(
            f"hoodie.datasource.write.payload.class: means {mode.value}, "
            f"which contradicts hoodie.write.record.merge.mode"
        )


def _settle_duplicates(fields: dict[str, object], problems: list[str]) -> None:
    """The older switch says the policy ``drop``."""
    if not fields.get("insert_drop_duplicates"):
        return
    if fields.setdefault("duplicate_policy", v.DuplicatePolicy.DROP) is not v.DuplicatePolicy.DROP:
        problems.append(
            "hoodie.datasource.write.insert.drop.duplicates: contradicts hoodie.datasource.insert.dup.policy"
        )


def _settle_writers(fields: dict[str, object], problems: list[str]) -> None:
    """Several writers need a lock that all of them have, and must leave each other's writes alone."""
    if fields.get("concurrency_mode") is not v.ConcurrencyMode.OPTIMISTIC:
        return
    mode = "hoodie.write.concurrency.mode: OPTIMISTIC_CONCURRENCY_CONTROL needs"
    if "lock_provider" not in fields:
        problems.append(f"{mode} a lock that all writers have: set hoodie.write.lock.provider")
    if fields.setdefault("failed_writes_policy", v.FailedWritesPolicy.LAZY) is v.FailedWritesPolicy.EAGER:
        problems.append(f"{mode} hoodie.clean.failed.writes.policy=LAZY: EAGER undoes what others write")


def _settle_lock_times(fields: dict[str, object], problems: list[str]) -> None:
    """A holder must be able to miss some renewals of its lock; Hudi's rule."""
    validity = fields.get("lock_validity_seconds", WriteOptions.lock_validity_seconds)
    renew = fields.get("lock_renew_seconds", WriteOptions.lock_renew_seconds)
    assert isinstance(validity, int) and isinstance(renew, int)
    if validity < 10 * renew:
        problems.append(
            f"hoodie.write.lock.storage.validity.timeout.secs: {validity} is less than ten times "
            f"hoodie.write.lock.storage.renew.interval.secs, which is {renew}"
        )


def _settle_zookeeper(fields: dict[str, object], problems: list[str]) -> None:
    """A lock in ZooKeeper has to be found; its key is the table's name by default, given or not."""
    if fields.get("lock_provider") is not v.LockProvider.ZOOKEEPER:
        return
    if "table_name" in fields:
        fields.setdefault("zookeeper_key", fields["table_name"])
    needed = {"url": "zookeeper_hosts", "base_path": "zookeeper_base"}
    problems += [
        f"hoodie.write.lock.zookeeper.{name}: the lock in ZooKeeper needs it"
        for name, known_as in needed.items()
        if not fields.get(known_as)
    ]
