"""The create handle: the rows of one slot become new file groups."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa

from sparkrobust.core.file_ids import Slot
from sparkrobust.core.written import WrittenFile
from sparkrobust.handles.files import GrowingFiles
from sparkrobust.handles.plan import Attempt, WritePlan
from sparkrobust.handles.rows import check_keys, living, stamped


def create(plan: WritePlan, attempt: Attempt, slot: Slot, tables: Iterable[pa.Table]) -> list[WrittenFile]:
    """Write every row of ``tables`` into the slot's new files."""
    files = GrowingFiles(plan, attempt, slot)
    try:
        written = 0
        for table in tables:
            check_keys(table)
            table = living(table, plan.rules)
            files.write(stamped(table, plan.schema, plan.control.instant, slot.index, written))
            written += table.num_rows
        return files.finish()
    except BaseException:
        files.discard()
        raise
