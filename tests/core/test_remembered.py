"""The memory of what never changes: bounded, and the least used goes first."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from sparkrobust.remembered import Remembered


@given(st.integers(1, 4), st.lists(st.tuples(st.integers(0, 6), st.booleans()), max_size=40))
def test_the_values_used_last_are_there_and_no_more(most: int, uses: list[tuple[int, bool]]) -> None:
    memory: Remembered[int, str] = Remembered(most)
    model: list[int] = []
    for key, keeps in uses:
        if keeps:
            memory.keep(key, str(key))
            assert memory.get(key) == str(key)
        else:
            assert memory.get(key) == (str(key) if key in model else None)
        if keeps or key in model:
            model = [*(one for one in model if one != key), key][-most:]
