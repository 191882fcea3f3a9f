"""A table's own settings: what they mean, and which tables are refused with the reason."""

from __future__ import annotations

import pytest

from sparkrobust.core.table_config import KeyGenerator, MergeMode, TableConfig, TableType
from sparkrobust.errors import CorruptTableError, UnsupportedTableError

OURS = {
    "hoodie.table.name": "t",
    "hoodie.table.version": "9",
    "hoodie.timeline.layout.version": "2",
    "hoodie.table.recordkey.fields": "id",
}


def config(**more: str) -> TableConfig:
    values = {f"hoodie.{key.replace('__', '.')}": value for key, value in more.items()}
    return TableConfig.of({**OURS, **values}, path="x")


def test_what_is_not_said_has_hudis_meaning() -> None:
    found = config()
    assert (found.name, found.version, found.table_type) == ("t", 9, TableType.COPY_ON_WRITE)
    assert (found.key_fields, found.partition_fields, found.ordering_fields) == (("id",), (), ())
    assert (found.merge_mode, found.key_generator) == (MergeMode.COMMIT_TIME, "NON_PARTITION")
    assert not (found.hive_style or found.url_encoded or found.utc or found.event_time)
    assert found.metadata_partitions == ()
    assert found.values == OURS


def test_what_is_said_is_read() -> None:
    found = config(
        table__type="MERGE_ON_READ",
        table__partition__fields="region:SIMPLE, day:TIMESTAMP",
        table__recordkey__fields=" a , b ,",
        table__ordering__fields="ts",
        datasource__write__hive_style_partitioning=" True ",
        datasource__write__partitionpath__urlencode="true",
        table__timeline__timezone="utc",
        table__metadata__partitions="files,column_stats",
        table__metadata__partitions__inflight="record_index",
    )
    assert found.table_type is TableType.MERGE_ON_READ
    assert (found.partition_fields, found.key_fields) == (("region", "day"), ("a", "b"))
    assert (found.ordering_fields, found.merge_mode, found.event_time) == (
        ("ts",),
        MergeMode.EVENT_TIME,
        True,
    )
    assert found.hive_style and found.url_encoded and found.utc
    assert found.metadata_partitions == ("files", "column_stats", "record_index")
    assert config(table__precombine__field="old").ordering_fields == ("old",)


@pytest.mark.parametrize(
    ("keys", "partitions", "word"),
    [(1, 0, "NON_PARTITION"), (1, 1, "SIMPLE"), (2, 1, "COMPLEX"), (1, 2, "COMPLEX")],
)
def test_the_key_generator_follows_from_the_fields(keys: int, partitions: int, word: str) -> None:
    assert KeyGenerator.for_fields(keys, partitions).value == word


@pytest.mark.parametrize(
    ("more", "composed"),
    [
        ({}, False),
        ({"table__recordkey__fields": "a,b"}, True),
        ({"table__keygenerator__type": "COMPLEX"}, True),
        ({"table__keygenerator__type": "COMPLEX_AVRO"}, True),
        ({"table__keygenerator__type": "COMPLEX", "table__version": "8"}, True),
        (
            {
                "table__keygenerator__type": "COMPLEX",
                "table__version": "8",
                "write__complex__keygen__new__encoding": "true",
            },
            False,
        ),
        ({"table__keygenerator__type": "COMPLEX", "write__complex__keygen__new__encoding": "true"}, True),
    ],
)
def test_when_keys_are_composed(more: dict[str, str], composed: bool) -> None:
    assert config(**more).keys_are_composed is composed


@pytest.mark.parametrize(
    "more",
    [
        {"table__version": "nine"},
        {"timeline__layout__version": "x"},
        {"table__type": "ROWS"},
        {"record__merge__mode": "SOME"},
    ],
)
def test_settings_without_sense_are_corrupt(more: dict[str, str]) -> None:
    with pytest.raises(CorruptTableError, match="x: not the properties of a table"):
        config(**more)
    with pytest.raises(CorruptTableError, match=r"hoodie\.table\.name"):
        TableConfig.of({}, path="x")


@pytest.mark.parametrize("more", [{"table__version": "6"}, {"timeline__layout__version": "1"}])
def test_a_table_of_another_version_is_refused_with_the_way_out(more: dict[str, str]) -> None:
    with pytest.raises(UnsupportedTableError, match="the table has version") as refused:
        config(**more)
    assert "upgrade" in str(refused.value.hint)


UNREADABLE = [
    ({"table__type": "MERGE_ON_READ"}, "merge-on-read"),
    ({"table__base__file__format": "ORC"}, "not parquet"),
    ({"bootstrap__base__path": "/x"}, "bootstrapped"),
]
UNWRITABLE = [
    ({"table__recordkey__fields": ""}, "no record key"),
    ({"table__keygenerator__type": "TIMESTAMP"}, "key generator is TIMESTAMP"),
    ({"record__merge__mode": "CUSTOM"}, "custom code"),
    ({"table__partial__update__mode": "KEEP_VALUES"}, "partial update mode"),
    ({"table__cdc__enabled": "true"}, "change log"),
    ({"populate__meta__fields": "false"}, "no meta columns"),
    ({"datasource__write__drop__partition__columns": "true"}, "lack the partition columns"),
    ({"partition__metafile__use__base__format": "true"}, "partition files are parquet"),
]


def test_an_ordinary_table_is_read_and_written() -> None:
    config().refuse_reading("x")
    config(table__keygenerator__type="SIMPLE_AVRO").refuse_writing("x")


@pytest.mark.parametrize(("more", "reason"), UNREADABLE)
def test_what_can_not_be_read_is_refused_with_the_reason(more: dict[str, str], reason: str) -> None:
    for refuse in (config(**more).refuse_reading, config(**more).refuse_writing):
        with pytest.raises(UnsupportedTableError, match=f"x: the table can't be read: .*{reason}"):
            refuse("x")


@pytest.mark.parametrize(("more", "reason"), UNWRITABLE)
def test_what_can_be_read_and_not_written_is_refused_with_the_reason(
    more: dict[str, str], reason: str
) -> None:
    config(**more).refuse_reading("x")
    with pytest.raises(UnsupportedTableError, match=f"x: the table can't be written: .*{reason}"):
        config(**more).refuse_writing("x")


def test_all_reasons_are_given_at_once() -> None:
    everything = {key: value for more, _ in UNWRITABLE for key, value in more.items()}
    with pytest.raises(UnsupportedTableError) as refused:
        config(**everything).refuse_writing("x")
    assert all(reason in str(refused.value) for _, reason in UNWRITABLE)
