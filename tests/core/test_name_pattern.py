"""A pattern picks just the wanted names out of all."""

from __future__ import annotations

import re
import time

from hypothesis import given
from hypothesis import strategies as st

from sparkrobust.core.name_pattern import name_pattern

NAMES = st.builds(
    lambda group, token, instant: f"{group}_{token}_{instant}.parquet",
    st.text("ab-{,*?[\\", min_size=1, max_size=4),
    st.sampled_from(["0-1-2", "0-1-23"]),
    st.sampled_from(["20260101000000001", "20260101000000002"]),
)
OTHERS = NAMES | st.sampled_from([".hoodie_partition_metadata", "a", "ab", "_a", ""])


def matches(pattern: str, name: str) -> bool:
    """As Hadoop's ``GlobPattern`` does: nested alternatives, stars, escaped characters."""
    regex, depth, characters = "", 0, iter(pattern)
    for char in characters:
        if char == "\\":
            regex += re.escape(next(characters))
        elif char == "*":
            regex += ".*"
        elif char == "{":
            regex, depth = regex + "(?:", depth + 1
        elif char == "}":
            regex, depth = regex + ")", depth - 1
        elif char == "," and depth:
            regex += "|"
        else:
            assert char not in "[]?^!"
            regex += re.escape(char)
    return re.fullmatch(regex, name) is not None


@given(st.sets(NAMES, min_size=1, max_size=12), st.sets(OTHERS, max_size=12))
def test_all_wanted_names_match_and_no_other_that_was_there(wanted: set[str], others: set[str]) -> None:
    pattern = name_pattern(wanted, others - wanted)
    assert all(matches(pattern, name) for name in wanted)
    assert not any(matches(pattern, name) for name in others - wanted)


def test_a_new_name_that_would_match_changes_the_pattern() -> None:
    wanted = ["ab-0_0-1-2_1.parquet", "cd-0_0-1-2_1.parquet"]
    old = ["ab-0_0-1-2_0.parquet"]
    pattern = name_pattern(wanted, old)
    assert name_pattern(wanted, [*old, "ab-0_1-7-9_2.parquet"]) == pattern
    assert name_pattern(wanted, [*old, "ab-0_1-7-9_1.parquet"]) != pattern


def test_a_table_of_which_every_second_file_is_old_needs_a_short_pattern() -> None:
    names = [f"{i * 2654435761 % 2**32:08x}-0_{i}-1-2_20260101000000001.parquet" for i in range(20_000)]
    started = time.process_time()
    pattern = name_pattern(names[::2], names[1::2])
    assert len(pattern) < len("".join(names[::2])) / 5
    assert time.process_time() - started < 5
