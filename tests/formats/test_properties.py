"""Java properties, against Java's own answers and Hudi's own files."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkrobust.errors import CorruptTableError
from sparkrobust.formats import properties

TEXT = st.text(st.characters(exclude_categories=("Cs",)), max_size=30)


def test_odd_text_reads_as_java_reads_it(reference: Any) -> None:
    for text, expected in reference("java-properties.json")["load"]:
        try:
            found = properties.parse(text.encode("latin-1"), path="p")
        except CorruptTableError:
            found = None
        assert found == expected, repr(text)


def test_odd_values_are_written_as_java_writes_them(reference: Any) -> None:
    for key, value, text in reference("java-properties.json")["store"]:
        assert properties.render({key: value}) == text.encode("latin-1")


def test_a_comment_of_several_lines_is_written_as_java_writes_it(reference: Any) -> None:
    assert properties.render({}, ["one\ntwo é Ā"]) == reference("java-properties.json")["comment"].encode(
        "latin-1"
    )


@given(st.dictionaries(TEXT, TEXT, max_size=8), st.lists(TEXT, max_size=3))
def test_what_is_rendered_is_read_back_whatever_the_comments(
    values: dict[str, str], comments: list[str]
) -> None:
    assert properties.parse(properties.render(values, comments), path="p") == values


@given(st.binary(max_size=200) | st.text("\\u=:#! \n\r\t0d8f", max_size=40).map(str.encode))
def test_any_bytes_are_properties_or_a_corrupt_file_that_is_named(data: bytes) -> None:
    try:
        found = properties.parse(data, path="some/file")
    except CorruptTableError as error:
        assert error.path == "some/file"
    else:
        assert properties.parse(properties.render(found), path="p") == found


def test_the_table_properties_of_every_fixture_carry_the_checksum_that_we_compute(hudi_tables: Path) -> None:
    files = sorted(hudi_tables.glob("*/.hoodie/hoodie.properties"))
    assert len(files) > 25
    for file in files:
        data = file.read_bytes()
        values = properties.parse(data, path=str(file))
        assert values[properties.TABLE_CHECKSUM] == str(properties.table_checksum(values))
        properties.verify_checksum(values, str(file))
        assert properties.parse(properties.render(values), path="p") == values


def test_hudis_own_lines_are_rendered_byte_for_byte(hudi_tables: Path) -> None:
    for file in sorted(hudi_tables.glob("*/.hoodie/hoodie.properties")):
        data = file.read_bytes()
        first, second = data.decode("latin-1").splitlines()[:2]
        values = properties.parse(data, path=str(file))
        assert properties.render(values, (first[1:], second[1:])) == data


def test_a_torn_properties_file_is_named_in_the_error() -> None:
    with pytest.raises(CorruptTableError, match=r"base/hoodie\.properties: a NUL at byte 3") as caught:
        properties.parse(b"a=b\0\0\0\0", path="base/hoodie.properties")
    assert caught.value.path == "base/hoodie.properties"


def test_a_wrong_checksum_is_refused_and_a_missing_one_is_not() -> None:
    values = {"hoodie.table.name": "cow_partitioned", "hoodie.database.name": "default"}
    properties.verify_checksum(values, "p")
    properties.verify_checksum({**values, "hoodie.table.checksum": "1632043986"}, "p")
    with pytest.raises(CorruptTableError, match="expected 1632043986"):
        properties.verify_checksum({**values, "hoodie.table.checksum": "1"}, "p")
    with pytest.raises(CorruptTableError, match=r"hoodie\.table\.name is missing"):
        properties.verify_checksum({"hoodie.table.checksum": "1"}, "p")


def test_a_huge_properties_file_is_refused_before_it_is_read() -> None:
    with pytest.raises(CorruptTableError, match="at most"):
        properties.parse(b"\n" * (properties.MAX_BYTES + 1), path="p")


def test_the_date_under_the_comment_is_english_and_like_hudis() -> None:
    moment = datetime(2026, 11, 18, 9, 5, 7, tzinfo=timezone.utc)
    assert properties.comment_date(moment) == "Wed Nov 18 09:05:07 UTC 2026"
