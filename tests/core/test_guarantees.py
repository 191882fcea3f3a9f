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
        *(f"  {number}. {promise.value}" for number, promise in enumerate(Promise, 1)),
        *(f"  - {limit}" for limit in found.limits),
    ]
    assert len(found.limits) >= 5


def test_a_notebook_shows_them_with_nothing_of_the_users_as_markup() -> None:
    found = Guarantees(url="<u>", mode="m", how="h", promises=(Promise.ONE_TRUTH,), limits=("a < b",))
    assert found._repr_html_() == (
        "<p>&lt;u&gt;: mode m; h</p><ol><li>the commits and the files in the store agree</li></ol>"
        "<p>limits</p><ul><li>a &lt; b</li></ul>"
    )
