"""Whatever a partition value says, its path stays inside of the table and outside of its metadata."""

from __future__ import annotations

import posixpath

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sparkrobust.core.partition_path import escape, problem_with, render, unescape

WILD = st.text(alphabet=st.sampled_from("./\\%:~= \0\n\t2eEfFaé*{}[]?#\"'^"), max_size=24) | st.text(
    max_size=24
)


@given(st.lists(WILD, min_size=1, max_size=3), st.booleans(), st.booleans())
@example([".."], False, False)
@example(["../../escape"], False, False)
@example(["x/../../y"], True, False)
@example([".hoodie"], False, False)
@example([".hoodie/timeline"], False, False)
@example(["/abs"], False, False)
@example(["a\0b"], True, True)
@example(["%2e%2e%2f"], False, False)
def test_a_path_that_is_accepted_stays_inside(values: list[str], hive_style: bool, encoded: bool) -> None:
    fields = [f"f{i}" for i in range(len(values))]
    path = render(values, fields, hive_style=hive_style, encoded=encoded)
    if problem_with(path) is not None:
        return
    assert posixpath.normpath(path) == path
    whole = posixpath.normpath(posixpath.join("/base/table", path))
    assert whole.startswith("/base/table/")
    assert not whole.startswith("/base/table/.hoodie/") and whole != "/base/table/.hoodie"
    assert "\0" not in path


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("..", "'..'"),
        (".", "'.'"),
        ("a/../b", "'..'"),
        ("a//b", "''"),
        ("a/", "''"),
        ("/a", "absolute"),
        (".hoodie", "belongs to the table"),
        (".hoodie/x", "belongs to the table"),
        ("a\0b", "NUL"),
        ("a\nb", "control"),
        ("a:b", "colon"),
        ("\ud800", "control"),
        ("x" * 256, "255 bytes"),
        ("é" * 128, "255 bytes"),
    ],
)
def test_an_unsafe_path_is_refused_with_the_reason(path: str, reason: str) -> None:
    assert reason in (problem_with(path) or "")


@pytest.mark.parametrize(
    "path",
    [
        "",
        "p1",
        "2024/01/01",
        "dt=2024-01-01/region=eu west",
        "%2F",
        "...",
        "a.hoodie",
        "x/.hoodie",
        "50%",
        "é",
    ],
)
def test_an_ordinary_path_is_accepted(path: str) -> None:
    assert problem_with(path) is None


@given(st.text(alphabet=st.characters(min_codepoint=1, exclude_categories=["Cs"])))
def test_an_escaped_value_reads_back_and_holds_no_separator(value: str) -> None:
    assert unescape(escape(value)) == value
    assert "/" not in escape(value)


@pytest.mark.parametrize(
    ("value", "escaped"),
    [
        ("a/b c=%é", "a%2Fb c%3D%25é"),
        ("\x01\x7f", "%01%7F"),
        ("\"#'*:?\\{[]^", "%22%23%27%2A%3A%3F%5C%7B%5B%5D%5E"),
    ],
)
def test_values_are_escaped_as_hudi_does(value: str, escaped: str) -> None:
    assert escape(value) == escaped


@pytest.mark.parametrize("value", [None, ""])
def test_a_missing_value_has_hives_word_for_it(value: str | None) -> None:
    assert (
        render([value, "x"], ["a", "b"], hive_style=True, encoded=True) == "a=__HIVE_DEFAULT_PARTITION__/b=x"
    )
