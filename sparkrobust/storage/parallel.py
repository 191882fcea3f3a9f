"""Many requests at once, to a store that answers each of them slowly."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

T = TypeVar("T")

_HANDS = 16


def all_at_once(action: Callable[[T], None], items: Iterable[T]) -> None:
    """Do it to all; the first error ends it, and what was not begun by then is not done."""
    everything = [*items]
    if not everything:
        return
    with ThreadPoolExecutor(min(_HANDS, len(everything))) as pool:
        running = [pool.submit(action, one) for one in everything]
        try:
            for one in running:
                one.result()
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
