"""Which Spark task a slot runs in, made certain.

``repartition(n, column)`` puts a row into partition ``pmod(murmur3(value, seed 42), n)``.  For every
partition there is a small integer that hashes to just it; a slot's rows carry that integer, so the
driver decides which task they meet in, and no two slots share a task by accident of hashing.
"""

from __future__ import annotations

from collections.abc import Sequence

_MASK = 0xFFFFFFFF


def _rotated(x: int, bits: int) -> int:
    return ((x << bits) | (x >> (32 - bits))) & _MASK


def spark_hash(value: int) -> int:
    """Spark SQL's ``hash`` of one 32-bit integer (Murmur3 x86 32, seed 42), signed."""
    k = _rotated((value & _MASK) * 0xCC9E2D51 & _MASK, 15) * 0x1B873593 & _MASK
    h = (_rotated(42 ^ k, 13) * 5 + 0xE6546B64) & _MASK
    h ^= 4  # the length in bytes
    h = (h ^ (h >> 16)) * 0x85EBCA6B & _MASK
    h = (h ^ (h >> 13)) * 0xC2B2AE35 & _MASK
    h ^= h >> 16
    return h - (1 << 32) if h >> 31 else h


def targets(tasks: int) -> list[int]:
    """For each of ``tasks`` partitions, an integer that hashes to it."""
    found: dict[int, int] = {}
    candidate = 0
    while len(found) < tasks:
        found.setdefault(spark_hash(candidate) % tasks, candidate)
        candidate += 1
    return [found[task] for task in range(tasks)]


_MOST_SLOTS_A_TASK = 64


def pack(weights: Sequence[int], tasks_wanted: int, small: int) -> list[int]:
    """The task of each slot: its own, unless it is so small that a task's start would cost more.

    Slots lighter than ``small`` share tasks, up to that weight together; slots never share while
    there are fewer of them than ``tasks_wanted``.
    """
    if len(weights) <= tasks_wanted:
        return list(range(len(weights)))
    placed: list[int] = []
    task, filled, members = -1, 0, _MOST_SLOTS_A_TASK  # as if a full task went before
    for weight in weights:
        if filled + weight > small or members >= _MOST_SLOTS_A_TASK:
            task, filled, members = task + 1, 0, 0
        placed.append(task)
        filled, members = filled + weight, members + 1
    return placed
