"""Hashes of keys, which completion markers carry."""

from __future__ import annotations

import pytest

from sparkrobust.core.key_hashes import SIZE, from_text, hashes_of, to_text


def test_each_key_has_one_hash_and_different_keys_have_different_ones() -> None:
    keys = [f"k{number}" for number in range(100_000)]
    hashes = hashes_of(keys)
    pieces = [hashes[low : low + SIZE] for low in range(0, len(hashes), SIZE)]
    assert len(set(pieces)) == len(keys)
    assert pieces[7] == hashes_of(["k7"]) and hashes_of([]) == b""


def test_hashes_are_the_same_on_every_machine() -> None:
    assert hashes_of(["id:1,region:eu", "ключ"]).hex() == "cb69324c0cd0ffb74cd42d91d185c820"


def test_they_survive_as_text() -> None:
    hashes = hashes_of(["a", "b"])
    assert from_text(to_text(hashes)) == hashes and from_text("") == b""


@pytest.mark.parametrize("text", ["a", "a b=", "AAAA", "Zm9vYmFyYmF6!", "ä"])
def test_text_that_holds_no_hashes_is_refused(text: str) -> None:
    with pytest.raises(ValueError):  # whatever it says
        from_text(text)
