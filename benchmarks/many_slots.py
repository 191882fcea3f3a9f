"""A write of very many slots, ended without Spark, in processes of its own: a driver's work after its tasks.

``stage TABLE SLOTS PARTITIONS`` does what the tasks do, a small file and a completion marker for each slot;
``end TABLE`` finalizes, publishes and commits, and prints seconds and peak memory as JSON.
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time

from sparkrobust.coordinator.control import Control
from sparkrobust.coordinator.create import make_table
from sparkrobust.coordinator.leftovers import control_folders
from sparkrobust.coordinator.table import HudiTable
from sparkrobust.coordinator.transaction import Transaction
from sparkrobust.core.instant import Action
from sparkrobust.core.markers import CompletionMarker, Fingerprint, Terms
from sparkrobust.core.names import BaseFileName, MarkerType, begin_marker, joined, marker_folder
from sparkrobust.core.write_status import OperationType, WriteStat
from sparkrobust.core.written import WrittenFile
from sparkrobust.options import parse
from sparkrobust.storage.local import LocalStorage
from sparkrobust.world import Clock, Ids

_OPTIONS = {
    "hoodie.table.name": "slots",
    "hoodie.datasource.write.recordkey.field": "id",
    "hoodie.datasource.write.partitionpath.field": "part",
}
_SCHEMA = '{"type":"record","name":"slots_record","namespace":"hoodie.slots","fields":[]}'
_ROWS = b"rows"


def _unsynced(fd: object) -> None:
    """In the place of ``os.fsync``."""


def stage(root: str, slots: int, partitions: int) -> None:
    """Begin a write and do all of its slots."""
    table, _ = make_table(LocalStorage(root), parse(_OPTIONS), Clock(), Ids())
    terms = Terms(action=Action.COMMIT, operation=OperationType.BULK_INSERT, schema=_SCHEMA)
    write = Transaction(table, terms)
    write.begin(slots=slots)
    # Nobody measures this, and the whole disk is synced at the end.
    os.fsync = _unsynced
    for slot in range(slots):
        _stage_slot(table, write, slot, f"region-{slot % partitions:04d}")
    os.sync()


def _stage_slot(table: HudiTable, write: Transaction, slot: int, partition: str) -> None:
    storage, folder = table.storage, write.folder
    token = f"{slot}-0-{table.ids.number()}"
    name = BaseFileName(file_id=f"{table.ids.uuid()}-0", write_token=token, instant=write.time)
    path = joined(partition, str(name))
    storage.mark(begin_marker(write.time, path, MarkerType.CREATE), b"", under=marker_folder(write.time))
    with storage.stage(folder.staging, f"{name}.{folder.nonce}", path) as writer:
        writer.write(_ROWS)
        staged = writer.finish()
    stat = WriteStat(
        file_id=name.file_id,
        path=path,
        partition_path=partition,
        num_writes=1,
        num_inserts=1,
        total_write_bytes=staged.size,
        file_size_in_bytes=staged.size,
    )
    file = WrittenFile(stat=stat, staged=staged)
    marker = CompletionMarker(slot=slot, attempt=token, input=Fingerprint(rows=1, keys=slot), files=(file,))
    storage.put_if_absent(folder.completion(slot), marker.render(folder.nonce))


def end(root: str) -> dict[str, float]:
    """Finalize, publish, commit; then look whether all files are there."""
    table = HudiTable.open(LocalStorage(root))
    [folder] = control_folders(table.storage)
    gate = Control(table, folder).gate()
    assert gate is not None and gate.slots is not None
    write = Transaction.of_another(table, folder, gate)
    before, used, started = _peak(), time.process_time(), time.perf_counter()
    markers = write.finalize(gate.slots)
    finalized = time.perf_counter()
    write.commit(markers)
    committed, used = time.perf_counter(), time.process_time() - used
    peak = _peak()
    write.clean_up()
    cleaned = time.perf_counter()
    if (found := len(table.base_files())) != gate.slots:
        raise RuntimeError(f"{found} files are visible, and {gate.slots} were staged")
    return {
        "finalize": finalized - started,
        "commit": committed - finalized,
        "processor": used,
        "clean up": cleaned - committed,
        "megabytes": peak - before,
    }


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    if sys.argv[1] == "stage":
        stage(sys.argv[2], int(sys.argv[3]), int(sys.argv[4]))
    else:
        print(json.dumps(end(sys.argv[2])))
