"""The object of Hudi's storage-based lock."""

from __future__ import annotations

import contextlib
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkrobust.core.lock_record import DRIFT_MS, LockRecord, parse
from sparkrobust.errors import CorruptTableError

PATH = ".hoodie/.locks/table_lock.json"
HUDIS = b'{"expired":false,"validUntil":1704067200000,"owner":"7c9e6679-7425-40de-944b-e07fc1f90ae7"}'


def test_a_record_of_hudis_is_read_and_written_to_the_byte() -> None:
    record = parse(HUDIS, path=PATH)
    owner = "7c9e6679-7425-40de-944b-e07fc1f90ae7"
    assert record == LockRecord(owner=owner, valid_until_ms=1704067200000)
    assert record.render() == HUDIS


def test_a_record_of_ours_has_hudis_fields_and_its_nonce() -> None:
    record = LockRecord(owner="20240101000000000-aa", valid_until_ms=7, expired=True, nonce="ab")
    plain = {"expired": True, "validUntil": 7, "owner": "20240101000000000-aa", "nonce": "ab"}
    assert json.loads(record.render()) == plain
    assert parse(record.render(), path=PATH) == record


@pytest.mark.parametrize(
    ("expired", "late_ms", "held"),
    [
        (False, -1, True),
        (False, 0, True),
        (False, DRIFT_MS, True),
        (False, DRIFT_MS + 1, False),
        (True, -1, False),
        (True, DRIFT_MS + 1, False),
    ],
)
def test_a_lock_is_held_until_its_time_and_the_drift_of_clocks_are_over_unless_it_was_given_back(
    expired: bool, late_ms: int, held: bool
) -> None:
    record = LockRecord(owner="me", valid_until_ms=1000, expired=expired)
    assert record.is_held(1000 + late_ms) is held


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"[]",
        b"null",
        b"{}",
        HUDIS[:-1],
        HUDIS.replace(b"false", b"0"),
        HUDIS.replace(b"1704067200000", b"1704067200000.5"),
        HUDIS.replace(b"1704067200000", b"-1"),
        HUDIS.replace(b'"owner"', b'"other"'),
        b" " * (1 << 16) + HUDIS,
    ],
)
def test_what_is_no_record_is_an_error_that_names_it(data: bytes) -> None:
    with pytest.raises(CorruptTableError, match=r"table_lock\.json"):
        parse(data, path=PATH)


def test_fields_that_a_newer_hudi_may_write_are_passed_over() -> None:
    assert parse(HUDIS[:-1] + b',"audit":{"on":true},"nonce":3}', path=PATH) == parse(HUDIS, path=PATH)


@given(st.binary(max_size=200))
def test_of_any_bytes_comes_a_record_or_the_error(data: bytes) -> None:
    with contextlib.suppress(CorruptTableError):
        parse(data, path=PATH)
