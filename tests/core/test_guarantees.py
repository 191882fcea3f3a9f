"""What a table promises is said in full, as text and for a notebook."""

from __future__ import annotations

import pytest

from sparkrobust.core.guarantees import MODES, Guarantees, Promise, guarantees_of


@pytest.mark.parametrize("mode", MODES)
def test_a_mode_tells_every_promise_and_every_limit(mode: str) -> None:
    found = guarantees_of(mode, "file:///t")
    lines = str(found).splitlines()
    assert lines[0] == f"file:///t: mode {mode}; {found.how}"
    assert [line for line in lines if line.startswith("  ")] == [
        *(f"  {number}. {promise.value}" for number, promise in enumerate(found.promises, 1)),
        *(f"  - {limit}" for limit in found.limits),
    ]
    assert len(found.limits) >= 5
    assert (set(found.promises) == set(Promise)) is (mode != "direct")


def test_mode_direct_does_not_promise_that_nothing_spurious_shows_nor_that_no_zombie_wins() -> None:
    without, with_folders = (
        set(guarantees_of("direct", "t", folders=there).promises) for there in (False, True)
    )
    assert without == {Promise.HONEST_OUTCOME}
    assert with_folders == set(Promise) - {Promise.NOTHING_SPURIOUS, Promise.NO_ZOMBIE}


def test_a_notebook_shows_them_with_nothing_of_the_users_as_markup() -> None:
    found = Guarantees(url="<u>", mode="m", how="h", promises=(Promise.ONE_TRUTH,), limits=("a < b",))
    assert found._repr_html_() == (
        "<p>&lt;u&gt;: mode m; h</p><ol><li>the commits and the files in the store agree</li></ol>"
        "<p>limits</p><ul><li>a &lt; b</li></ul>"
    )
