"""Counts in a line, for the summaries of runs."""

from __future__ import annotations

from collections import Counter


def counted(found: Counter[str]) -> str:
    """Each name with how often it was counted, in their order."""
    return ", ".join(f"{name} {count:,}" for name, count in sorted(found.items()))
