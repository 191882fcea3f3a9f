"""What a pipeline's options become, and what is said about wrong ones."""

from __future__ import annotations

import dataclasses
import pickle

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkrobust.errors import InvalidOptionError
from sparkrobust.options import (
    OPTIONS,
    READ_OPTIONS,
    REFUSED,
    Codec,
    ConflictStrategy,
    DuplicatePolicy,
    FailedWritesPolicy,
    KeyGenerator,
    Kind,
    MergeMode,
    Operation,
    ReadOptions,
    WriteOptions,
    parse,
    parse_read,
)
from sparkrobust.options.hudi_keys import KEYS

PIPELINE = {
    "hoodie.table.name": "trips",
    "hoodie.datasource.write.operation": "upsert",
    "hoodie.datasource.write.recordkey.field": "id,region",
    "hoodie.datasource.write.partitionpath.field": "day",
    "hoodie.datasource.write.precombine.field": "ts",
    "hoodie.datasource.write.hive_style_partitioning": "true",
    "hoodie.datasource.write.keygenerator.class": "org.apache.hudi.keygen.ComplexKeyGenerator",
    "hoodie.upsert.shuffle.parallelism": "8",
    "hoodie.embed.timeline.server": "false",
    "path": "somewhere",
}


def problems(options: dict[str, str]) -> str:
    with pytest.raises(InvalidOptionError) as caught:
        parse(options)
    return str(caught.value)


def test_the_options_of_an_ordinary_pipeline_become_typed_values() -> None:
    parsed = parse(PIPELINE)
    assert parsed.table_name == "trips"
    assert parsed.operation is Operation.UPSERT
    assert parsed.record_key_fields == ("id", "region")
    assert parsed.partition_fields == ("day",)
    assert parsed.ordering_fields == ("ts",)
    assert parsed.hive_style_partitioning is True
    assert parsed.key_generator is KeyGenerator.COMPLEX
    assert parsed.ignored == ("hoodie.upsert.shuffle.parallelism", "hoodie.embed.timeline.server")


def test_without_options_every_field_is_its_default_and_the_table_decides_its_own() -> None:
    assert dataclasses.asdict(parse({})) == dataclasses.asdict(WriteOptions())
    assert parse({}).partition_fields is None
    assert parse({"hoodie.datasource.write.partitionpath.field": ""}).partition_fields == ()


def test_keys_are_found_in_any_case_as_in_spark() -> None:
    assert parse({"HOODIE.Table.Name": "t"}).table_name == "t"


def test_values_come_as_spark_spells_python_values() -> None:
    parsed = parse(
        {
            "hoodie.combine.before.insert": True,
            "hoodie.parquet.max.file.size": 1024,
            "hoodie.table.name": None,
        }
    )
    assert parsed.combine_before_insert is True
    assert parsed.max_file_size == 1024
    assert parsed.table_name is None


def test_all_wrong_options_are_named_in_one_error() -> None:
    text = problems(
        {
            "hoodie.datasource.write.operation": "upsrt",
            "hoodie.combine.before.insert": "yes",
            "hoodie.parquet.max.file.size": "120MB",
            "hoodie.tabel.name": "t",
            "hoodie.datasource.write.table.type": "MERGE_ON_READ",
            "hoodie.populate.meta.fields": "false",
        }
    )
    assert text.startswith("6 options are wrong:")
    assert "'upsrt' is not one of upsert, insert, bulk_insert, delete; did you mean upsert?" in text
    assert "hoodie.combine.before.insert: 'yes' is neither true nor false" in text
    assert "hoodie.parquet.max.file.size: '120MB' is not a whole number of bytes" in text
    assert "hoodie.tabel.name: nobody knows this option; did you mean hoodie.table.name" in text
    assert "hoodie.datasource.write.table.type: 'MERGE_ON_READ' is not supported" in text
    assert "hoodie.populate.meta.fields: not supported: a table without meta columns" in text


def test_an_unknown_hudi_key_is_only_kept_for_a_warning_where_the_caller_says_so() -> None:
    parsed = parse({"hoodie.write.robust.unknown.options": "warn", "hoodie.tabel.name": "t"})
    assert parsed.unknown == ("hoodie.tabel.name",)


@pytest.mark.parametrize("key", sorted(KEYS))
def test_every_key_that_hudi_has_and_we_do_not_need_is_accepted(key: str) -> None:
    assert parse({key: "anything"}).ignored == (key,)
    assert parse_read({key: "anything"}).ignored == (key,)


def test_no_key_is_listed_twice() -> None:
    listed = [name for row in (*OPTIONS, *REFUSED) for name in (row.key, *row.aliases)]
    assert sorted(listed) == sorted(set(listed))
    assert not KEYS & set(listed)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("hoodie.datasource.write.operation", "insert_overwrite"),
        ("hoodie.datasource.write.operation", "delete_partition"),
        ("hoodie.index.type", "BUCKET"),
        ("hoodie.index.type", "BLOOM"),
        ("hoodie.index.type", "GLOBAL_SIMPLE"),
        ("hoodie.index.type", "RECORD_INDEX"),
        ("hoodie.clustering.inline", "true"),
        ("hoodie.datasource.clustering.inline.enable", "true"),
        ("hoodie.table.cdc.enabled", "true"),
        ("hoodie.datasource.write.drop.partition.columns", "true"),
        ("hoodie.write.concurrency.mode", "non_blocking_concurrency_control"),
        ("hoodie.write.lock.provider", "org.apache.hudi.aws.transaction.lock.DynamoDBBasedLockProvider"),
        ("hoodie.write.record.merge.mode", "CUSTOM"),
        ("hoodie.datasource.write.payload.class", "org.apache.hudi.common.model.PartialUpdateAvroPayload"),
        ("hoodie.datasource.write.keygenerator.class", "org.apache.hudi.keygen.CustomKeyGenerator"),
        ("hoodie.datasource.write.keygenerator.type", "TIMESTAMP"),
        ("hoodie.write.table.version", "6"),
        ("hoodie.precommit.validators", "org.example.Check"),
    ],
)
def test_a_feature_that_would_change_what_is_stored_is_refused_by_name(key: str, value: str) -> None:
    text = problems({key: value})
    assert text.startswith(f"An option is wrong:\n  {key}: ")
    assert "not supported" in text


@pytest.mark.parametrize("refusal", REFUSED, ids=lambda refusal: refusal.key)
def test_a_refused_feature_that_is_switched_off_is_accepted(refusal) -> None:  # type: ignore[no-untyped-def]
    for value in refusal.harmless:
        parse({refusal.key: value})


@pytest.mark.parametrize(
    ("spelling", "expected"),
    [
        ("SimpleKeyGenerator", KeyGenerator.SIMPLE),
        ("org.apache.hudi.keygen.SimpleKeyGenerator", KeyGenerator.SIMPLE),
        ("org.apache.hudi.keygen.NonpartitionedKeyGenerator", KeyGenerator.NON_PARTITION),
        ("org.apache.hudi.keygen.ComplexAvroKeyGenerator", KeyGenerator.COMPLEX),
    ],
)
def test_a_key_generator_is_known_by_its_class_with_or_without_package(
    spelling: str, expected: KeyGenerator
) -> None:
    assert parse({"hoodie.datasource.write.keygenerator.class": spelling}).key_generator is expected


def test_a_class_of_another_package_is_not_taken_for_hudis() -> None:
    text = problems({"hoodie.datasource.write.keygenerator.class": "com.x.SimpleKeyGenerator"})
    assert "not supported" in text


def test_a_class_in_another_case_is_an_error_with_the_right_spelling() -> None:
    text = problems({"hoodie.datasource.write.keygenerator.class": "simplekeygenerator"})
    assert "did you mean SimpleKeyGenerator?" in text


@pytest.mark.parametrize("package", ["", "org.apache.hudi.common.model."])
def test_a_payload_class_says_the_merge_mode_and_is_kept_under_its_full_name(package: str) -> None:
    parsed = parse({"hoodie.datasource.write.payload.class": package + "OverwriteWithLatestAvroPayload"})
    assert parsed.merge_mode is MergeMode.COMMIT_TIME_ORDERING
    assert parsed.payload_class == "org.apache.hudi.common.model.OverwriteWithLatestAvroPayload"


def test_options_that_contradict_each_other_are_an_error() -> None:
    assert "contradicts" in problems({"hoodie.table.name": "a", "hoodie.datasource.write.table.name": "b"})
    assert "contradicts" in problems(
        {
            "hoodie.datasource.write.payload.class": "DefaultHoodieRecordPayload",
            "hoodie.record.merge.mode": "COMMIT_TIME_ORDERING",
        }
    )
    assert "contradicts" in problems(
        {
            "hoodie.datasource.write.insert.drop.duplicates": "true",
            "hoodie.datasource.insert.dup.policy": "fail",
        }
    )
    assert "takes one field" in problems(
        {
            "hoodie.datasource.write.keygenerator.type": "SIMPLE",
            "hoodie.datasource.write.recordkey.field": "a,b",
        }
    )


def test_a_lock_that_could_not_be_renewed_ten_times_is_an_error() -> None:
    validity, renew = (
        f"hoodie.write.lock.storage.{name}" for name in ("validity.timeout.secs", "renew.interval.secs")
    )
    assert "100 is less than ten times" in problems({validity: "100"})
    assert "300 is less than ten times" in problems({renew: "31"})
    parsed = parse({validity: "20", renew: "2"})
    assert (parsed.lock_validity_seconds, parsed.lock_renew_seconds) == (20, 2)


def test_the_same_thing_said_under_two_names_is_fine() -> None:
    assert parse({"hoodie.table.name": "a", "hoodie.datasource.write.table.name": "a"}).table_name == "a"


def test_dropping_duplicates_is_a_duplicate_policy() -> None:
    parsed = parse({"hoodie.datasource.write.insert.drop.duplicates": "true"})
    assert parsed.duplicate_policy is DuplicatePolicy.DROP


def test_a_non_partitioned_key_generator_means_no_partition_field() -> None:
    parsed = parse(
        {
            "hoodie.datasource.write.keygenerator.class": "NonpartitionedKeyGenerator",
            "hoodie.datasource.write.partitionpath.field": "day",
        }
    )
    assert parsed.partition_fields == ()


def test_names_with_gaps_or_repetitions_between_commas_are_errors() -> None:
    assert "empty name" in problems({"hoodie.datasource.write.recordkey.field": "a,,b"})
    assert "names a twice" in problems({"hoodie.datasource.write.recordkey.field": "a, a"})


def test_storage_options_are_passed_on_and_their_values_are_never_shown() -> None:
    parsed = parse({"fs.s3a.secret.key": "hush", "spark.hadoop.fs.s3a.endpoint": "here"})
    assert parsed.storage == {"fs.s3a.secret.key": "hush", "fs.s3a.endpoint": "here"}
    assert "hush" not in repr(parsed)
    assert parsed.ignored == ()
    assert parse({"spark.hadoop.dfs.nameservices": "a"}).storage == {"dfs.nameservices": "a"}


def test_the_value_of_an_unknown_key_is_not_shown() -> None:
    assert "hush" not in problems({"hoodie.secret.keys": "hush"})


def test_options_with_the_commit_prefix_are_kept_for_the_commit() -> None:
    parsed = parse({"_job": "42", "_hoodie.internal": "x", "mergeSchema": "true"})
    assert parsed.commit_metadata == {"_job": "42"}
    assert set(parsed.ignored) == {"_hoodie.internal", "mergeSchema"}


def test_a_metadata_table_that_is_asked_for_is_said_to_be_ignored() -> None:
    assert parse({"hoodie.metadata.enable": "true"}).ignored == ("hoodie.metadata.enable",)
    assert parse({"hoodie.metadata.enable": "false"}).ignored == ()


def test_a_reader_takes_the_options_of_a_pipeline_and_refuses_what_it_cannot_answer() -> None:
    assert dataclasses.asdict(parse_read({})) == dataclasses.asdict(ReadOptions())
    assert parse_read(PIPELINE).unknown == ()
    with pytest.raises(InvalidOptionError, match="time travel is not supported"):
        parse_read({"as.of.instant": "20240101"})
    with pytest.raises(InvalidOptionError, match="'incremental' is not supported"):
        parse_read({"hoodie.datasource.query.type": "incremental"})


@pytest.mark.parametrize(("rows", "kind"), [(OPTIONS, WriteOptions), (READ_OPTIONS, ReadOptions)])
def test_the_table_of_options_and_the_parsed_class_agree_on_fields_and_defaults(rows, kind) -> None:  # type: ignore[no-untyped-def]
    fields = {field.name: field for field in dataclasses.fields(kind)}
    for row in rows:
        assert fields[row.field].default == row.default, row.key
    carried = {row.field for row in rows} | {"storage", "commit_metadata", "ignored", "unknown"}
    assert set(fields) <= carried


def test_every_listed_default_and_value_is_itself_accepted() -> None:
    for row in OPTIONS:
        for text in (row.default_text, *row.values):
            if text and row.kind is not Kind.CLASS:
                parse({"hoodie.write.lock.provider": "FileSystemBasedLockProvider", row.key: text})


OPTIMISTIC = {
    "hoodie.write.concurrency.mode": "optimistic_concurrency_control",
    "hoodie.write.lock.provider": "FileSystemBasedLockProvider",
}


def test_several_writers_leave_each_others_writes_alone_by_default() -> None:
    assert parse({}).failed_writes_policy is FailedWritesPolicy.EAGER
    assert parse(OPTIMISTIC).failed_writes_policy is FailedWritesPolicy.LAZY
    never = parse({**OPTIMISTIC, "hoodie.clean.failed.writes.policy": "NEVER"})
    assert never.failed_writes_policy is FailedWritesPolicy.NEVER


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"hoodie.clean.failed.writes.policy": "EAGER"}, "EAGER undoes what others write"),
        ({"hoodie.write.lock.provider": None}, r"set hoodie\.write\.lock\.provider"),
    ],
)
def test_several_writers_without_a_common_lock_or_with_an_eager_policy_are_refused(
    more: dict[str, str | None], why: str
) -> None:
    with pytest.raises(InvalidOptionError, match=why):
        parse({**OPTIMISTIC, **more})


@pytest.mark.parametrize("package", ["", "org.apache.hudi.client.transaction."])
@pytest.mark.parametrize(
    ("name", "strategy"),
    [
        ("SimpleConcurrentFileWritesConflictResolutionStrategy", ConflictStrategy.START_TIME),
        ("EndTimestampBasedConcurrentFileWritesConflictResolutionStrategy", ConflictStrategy.COMPLETION_TIME),
        ("BucketIndexConcurrentFileWritesConflictResolutionStrategy", ConflictStrategy.START_TIME),
    ],
)
def test_a_conflict_resolution_strategy_goes_by_hudis_name(
    package: str, name: str, strategy: ConflictStrategy
) -> None:
    key = "hoodie.write.lock.conflict.resolution.strategy"
    assert parse({key: package + name}).conflict_strategy is strategy


def test_a_strategy_that_is_not_served_is_an_error_that_names_those_that_are() -> None:
    key = "hoodie.write.lock.conflict.resolution.strategy"
    with pytest.raises(InvalidOptionError, match=r"SimpleConcurrent.*, EndTimestampBased"):
        parse({key: "PreferWriterConflictResolutionStrategy"})


def test_parsed_options_are_frozen() -> None:
    parsed = parse({})
    with pytest.raises(dataclasses.FrozenInstanceError):
        parsed.codec = Codec.GZIP  # type: ignore[misc]


def test_an_option_error_survives_pickling() -> None:
    with pytest.raises(InvalidOptionError) as caught:
        parse({"hoodie.x.y": "1"})
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)


@given(st.dictionaries(st.sampled_from([row.key for row in OPTIONS]), st.text(max_size=12), max_size=8))
def test_any_text_gives_either_options_or_an_option_error(options: dict[str, str]) -> None:
    try:
        parse(options)
    except InvalidOptionError as error:
        assert {line.split(":")[0].strip() for line in error.message.splitlines()[1:]} <= set(options)
