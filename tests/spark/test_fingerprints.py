"""Rows that are counted before the write and after it: lost, doubled or other ones are noticed."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkrobust.core.file_ids import SizeLimits
from sparkrobust.core.markers import NO_ROWS, CompletionMarker, Fingerprint, refuse_lost_rows
from sparkrobust.errors import IndeterminateInputError
from sparkrobust.spark.slots import SlotBook

prints = st.builds(
    lambda rows, keys: Fingerprint(rows=rows, keys=keys), st.integers(0, 9), st.integers(0, 99)
)


def marker(slot: int, rows: Fingerprint) -> CompletionMarker:
    return CompletionMarker(slot=slot, attempt="0-0-1", input=rows, files=())


@given(st.lists(st.tuples(st.sets(st.integers(0, 7), min_size=1, max_size=3), prints), max_size=8))
def test_sets_of_slots_that_share_one_are_counted_together(said: list[tuple[set[int], Fingerprint]]) -> None:
    limits = SizeLimits(max_file_bytes=1, small_file_bytes=0, record_bytes=1)
    book = SlotBook(limits, lambda: "u")
    for slots, rows in said:
        book.expect(slots, rows)
    whole = book.expected()
    covered = Counter(slot for slots, _ in whole for slot in slots)
    assert set(covered.values()) <= {1}
    assert set(covered) == set().union(*(slots for slots, _ in said))
    for slots, rows in whole:
        parts = [(some, theirs) for some, theirs in said if some & slots]
        assert all(some <= slots for some, _ in parts)
        assert rows.rows == sum(theirs.rows for _, theirs in parts)
        assert rows.keys == sum(theirs.keys or 0 for _, theirs in parts)


@given(st.lists(prints, min_size=1, max_size=5), st.integers(0, 4), st.integers(-1, 1), st.integers(-1, 1))
def test_a_row_more_or_less_or_another_one_is_noticed_wherever_it_went(
    rows: list[Fingerprint], place: int, more: int, other: int
) -> None:
    whole = NO_ROWS
    for one in rows:
        whole = whole.plus(one)
    expected = [(frozenset(range(len(rows))), whole)]
    refuse_lost_rows([marker(n, one) for n, one in enumerate(rows)], expected, {})
    there = rows[place % len(rows)]
    assert there.keys is not None
    changed = Fingerprint(rows=max(0, there.rows + more), keys=max(0, there.keys + other))
    given_now = [changed if n == place % len(rows) else one for n, one in enumerate(rows)]
    markers = [marker(n, one) for n, one in enumerate(given_now)]
    if changed == there:
        refuse_lost_rows(markers, expected, {})
    else:
        with pytest.raises(IndeterminateInputError, match="slots was given"):
            refuse_lost_rows(markers, expected, {})


def test_where_no_sum_is_known_the_number_of_rows_decides() -> None:
    expected = [(frozenset({0}), Fingerprint(rows=3, keys=17))]
    refuse_lost_rows([marker(0, Fingerprint(rows=3))], expected, {})
    with pytest.raises(IndeterminateInputError):
        refuse_lost_rows([marker(0, Fingerprint(rows=2))], expected, {})
