"""A write status crosses from executors to the driver, and stands in markers: it is exact, or refused."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkrobust.core.write_status import JSON_VERSION, MAX_JSON_BYTES, OperationType, RuntimeStats, WriteStat
from sparkrobust.errors import CorruptTableError

TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)
COUNT = st.integers(0, (1 << 63) - 1)
OPTIONAL_COUNT = st.none() | COUNT

STATS = st.builds(
    WriteStat,
    file_id=TEXT,
    path=st.none() | TEXT,
    partition_path=st.none() | TEXT,
    prev_commit=st.none() | TEXT,
    prev_base_file=st.none() | TEXT,
    num_writes=COUNT,
    num_inserts=COUNT,
    num_update_writes=COUNT,
    num_deletes=COUNT,
    total_write_bytes=COUNT,
    file_size_in_bytes=COUNT,
    total_log_files=OPTIONAL_COUNT,
    log_version=st.none() | st.integers(0, (1 << 31) - 1),
    log_files=st.none() | st.lists(TEXT, max_size=3).map(tuple),
    cdc_stats=st.none() | st.dictionaries(TEXT, COUNT, max_size=3),
    min_event_time=st.none() | st.integers(-(1 << 62), 1 << 62),
    runtime_stats=st.none() | st.builds(RuntimeStats, total_scan_time=COUNT, total_create_time=COUNT),
)


def test_table_services_do_not_count_when_the_schema_is_looked_for() -> None:
    services = {item.value for item in OperationType if not item.may_change_schema}
    assert services == {"CLUSTER", "COMPACT", "INDEX", "LOG_COMPACT"}


@given(STATS)
def test_a_write_status_crosses_as_json(stat: WriteStat) -> None:
    assert WriteStat.from_json(stat.to_json()) == stat
    assert WriteStat.from_json(stat.to_json().encode()).to_json() == stat.to_json()


PLAIN = WriteStat(file_id="f", path="p/f", partition_path="p").to_plain()


@pytest.mark.parametrize(
    "change",
    [
        {"version": JSON_VERSION + 1},
        {"version": True},
        {"version": "1"},
        {"num_writes": -1},
        {"num_writes": 1.0},
        {"num_writes": True},
        {"num_writes": 1 << 63},
        {"num_writes": None},
        {"file_id": None},
        {"file_id": 3},
        {"path": ["x"]},
        {"log_files": "x"},
        {"log_files": [1]},
        {"cdc_stats": {"a": "b"}},
        {"runtime_stats": {"total_scan_time": 1}},
        {"runtime_stats": 3},
        {"unknown": 1},
        {"temp_path": "\ud800"},
    ],
)
def test_an_odd_write_status_is_corrupt_and_named(change: dict[str, Any]) -> None:
    with pytest.raises(CorruptTableError, match=r"^cm/7: expected") as caught:
        WriteStat.from_json(json.dumps({**PLAIN, **change}), path="cm/7")
    assert caught.value.path == "cm/7"


@pytest.mark.parametrize("name", sorted(PLAIN))
def test_a_write_status_without_one_of_its_fields_is_corrupt(name: str) -> None:
    with pytest.raises(CorruptTableError, match=name):
        WriteStat.from_plain({key: value for key, value in PLAIN.items() if key != name})


@pytest.mark.parametrize(
    "text",
    [
        "",
        "null",
        "[]",
        "{",
        '{"version":1,"version":1}',
        json.dumps(PLAIN).replace('"num_writes": 0', '"num_writes": NaN'),
        json.dumps(PLAIN).replace('"num_writes": 0', '"num_writes": ' + "9" * 5000),
        "[" * 100_000,
        " " * (MAX_JSON_BYTES + 1),
    ],
)
def test_a_write_status_that_is_no_sound_json_is_corrupt(text: str) -> None:
    with pytest.raises(CorruptTableError):
        WriteStat.from_json(text)


@given(st.binary(max_size=100))
def test_any_bytes_are_a_write_status_or_corrupt(data: bytes) -> None:
    with pytest.raises(CorruptTableError):
        WriteStat.from_json(data)


LARGEST = (1 << 63) - 1
COUNTS = {
    *("num_writes", "num_deletes", "num_update_writes", "num_inserts", "num_updates"),
    *("total_write_bytes", "total_write_errors", "file_size_in_bytes"),
    *("total_log_records", "total_updated_records_compacted", "total_log_blocks", "total_corrupt_log_block"),
    *("total_rollback_blocks", "total_log_files_compacted", "total_log_read_time_ms"),
    "total_log_size_compacted",
}
OPTIONAL = {
    *(
        "prev_base_file",
        "total_log_files",
        "log_version",
        "log_offset",
        "base_file",
        "log_files",
        "cdc_stats",
    ),
    *("min_event_time", "max_event_time", "runtime_stats", "temp_path"),
}


def test_a_write_status_without_more_says_what_hudi_says_of_a_new_file() -> None:
    assert WriteStat(file_id="f", path="p/f", partition_path="p").to_plain() == {
        **dict.fromkeys(COUNTS, 0),
        **dict.fromkeys(OPTIONAL),
        "version": 1,
        "file_id": "f",
        "path": "p/f",
        "partition_path": "p",
        "prev_commit": "null",
    }


def test_all_of_a_write_status_is_told_in_its_plain_form() -> None:
    stat = WriteStat(
        file_id="f",
        path="p/f",
        partition_path="p",
        log_files=("a", "b"),
        cdc_stats={"z": 1, "a": 2},
        runtime_stats=RuntimeStats(total_scan_time=1, total_create_time=2, total_upsert_time=3),
    )
    plain = stat.to_plain()
    assert plain["log_files"] == ["a", "b"]
    assert plain["cdc_stats"] == {"z": 1, "a": 2} and type(plain["cdc_stats"]) is dict
    assert plain["runtime_stats"] == {"total_scan_time": 1, "total_create_time": 2, "total_upsert_time": 3}
    text = stat.to_json()
    assert '"cdc_stats":{"a":2,"z":1}' in text and " " not in text
    assert WriteStat.from_json(text) == stat


@pytest.mark.parametrize("name", sorted(COUNTS | {"total_log_files", "log_version", "log_offset"}))
def test_a_count_is_a_long_that_is_not_negative(name: str) -> None:
    assert getattr(WriteStat.from_plain({**PLAIN, name: LARGEST}), name) == LARGEST
    assert getattr(WriteStat.from_plain({**PLAIN, name: 0}), name) == 0
    for value in (-1, LARGEST + 1, "1", 1.0, False):
        with pytest.raises(CorruptTableError, match=f"a write status: expected a count as {name}, found"):
            WriteStat.from_plain({**PLAIN, name: value})


@pytest.mark.parametrize("name", ["min_event_time", "max_event_time"])
def test_an_event_time_is_any_long_or_none(name: str) -> None:
    for value in (None, -LARGEST, 0, LARGEST):
        assert getattr(WriteStat.from_plain({**PLAIN, name: value}), name) == value
    for wrong in (-LARGEST - 1, LARGEST + 1, "1", 1.0, True):
        with pytest.raises(CorruptTableError, match=f"expected a time as {name}, found"):
            WriteStat.from_plain({**PLAIN, name: wrong})


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("file_id", None, "text as file_id"),
        ("path", 3, "text as path"),
        ("temp_path", "a\udfffb", "text as temp_path"),
        ("prev_commit", "\ud800", "text as prev_commit"),
        ("log_files", {}, "a list as log_files"),
        ("log_files", ["a", None], "text as log_files"),
        ("cdc_stats", [], "an object as cdc_stats"),
        ("cdc_stats", {"\ud800": 1}, "text as cdc_stats"),
        ("cdc_stats", {"a": -1}, "a count as cdc_stats"),
        ("runtime_stats", [], "total_scan_time, total_create_time, total_upsert_time as runtime_stats"),
        (
            "runtime_stats",
            {"total_scan_time": 1, "total_create_time": 2, "total_upsert_time": -3},
            "a count as total_upsert_time",
        ),
        ("version", None, "version 1"),
    ],
)
def test_what_a_field_should_have_been_is_said_beside_what_it_is(
    name: str, value: Any, expected: str
) -> None:
    with pytest.raises(CorruptTableError) as caught:
        WriteStat.from_plain({**PLAIN, name: value}, path="x")
    assert str(caught.value).startswith(f"x: expected {expected}, found ")
    assert caught.value.path == "x"


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("version", 7, "version 1, found 7"),
        ("file_id", 3, "text as file_id, found 3"),
        ("num_writes", "1", "a count as num_writes, found '1'"),
        ("log_offset", -1, "a count as log_offset, found -1"),
        ("min_event_time", "1", "a time as min_event_time, found '1'"),
        ("log_files", {}, "a list as log_files, found {}"),
        ("cdc_stats", [1], "an object as cdc_stats, found [1]"),
        (
            "runtime_stats",
            3,
            "total_scan_time, total_create_time, total_upsert_time as runtime_stats, found 3",
        ),
    ],
)
def test_what_a_field_is_instead_is_said_whole_with_the_place(name: str, value: Any, said: str) -> None:
    with pytest.raises(CorruptTableError) as caught:
        WriteStat.from_plain({**PLAIN, name: value}, path="x")
    assert (str(caught.value), caught.value.path) == (f"x: expected {said}", "x")


@pytest.mark.parametrize("char", ["\ud7ff", "\ue000", "\U0010ffff", "\0"])
def test_every_whole_character_is_text(char: str) -> None:
    assert WriteStat.from_plain({**PLAIN, "temp_path": char}).temp_path == char


def test_a_status_that_is_no_object_or_has_other_fields_is_refused_with_their_names() -> None:
    for plain in ([], None, "x", 3):
        with pytest.raises(CorruptTableError) as caught:
            WriteStat.from_plain(plain, path="x")
        assert str(caught.value) == f"x: expected an object, found {plain!r}"
    more = {key: value for key, value in PLAIN.items() if key != "path"} | {"b": 1, "a": 2}
    with pytest.raises(
        CorruptTableError, match=r"the fields of version 1, found .*\['path'\] missing, \['a', 'b'\]"
    ):
        WriteStat.from_plain(more, path="x")


def test_a_text_of_the_largest_size_is_read_and_a_larger_one_is_not() -> None:
    text = json.dumps(PLAIN)
    assert MAX_JSON_BYTES == 1 << 20
    assert WriteStat.from_json(text + " " * (MAX_JSON_BYTES - len(text))) == WriteStat.from_plain(PLAIN)
    with pytest.raises(CorruptTableError, match=r"^x: expected at most 1048576 bytes, found '1048577 bytes'"):
        WriteStat.from_json(text + " " * (MAX_JSON_BYTES - len(text) + 1), path="x")


def test_why_a_text_is_no_json_is_said_shortly() -> None:
    with pytest.raises(CorruptTableError) as caught:
        WriteStat.from_json('{"' + "a" * 500, path="x")
    assert str(caught.value).startswith("x: expected the JSON of a write status (Unterminated string")
    assert len(str(caught.value)) < 200 and caught.value.path == "x"
    with pytest.raises(CorruptTableError, match=r"^a write status: expected the JSON"):
        WriteStat.from_json("[")
