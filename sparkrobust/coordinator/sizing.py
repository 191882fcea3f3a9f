"""How large a record of this table is on disk, learnt from its newest commits."""

from __future__ import annotations

from itertools import islice

from sparkrobust.coordinator.table import HudiTable

_COMMITS_LOOKED_AT = 5
_ENOUGH_BYTES = 1 << 20


def record_bytes(table: HudiTable, otherwise: int) -> int:
    """Bytes of one record; ``otherwise`` while the table has too little data to tell.

    A small file is mostly footer: commits below a megabyte say nothing about records.
    """
    for _, metadata in islice(table.newest_commits(), _COMMITS_LOOKED_AT):
        stats = list(metadata.write_stats)
        written = sum(stat.total_write_bytes for stat in stats)
        rows = sum(stat.num_writes for stat in stats)
        if written >= _ENOUGH_BYTES and rows:
            return max(1, written // rows)
    return otherwise
