"""Rows that are kept in the control folder: the first reading's, whoever reads again."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from sparkrobust.core.instant import InstantTime
from sparkrobust.core.names import ControlFolder
from sparkrobust.handles.pinned import pin, pinned
from sparkrobust.storage.contract import Storage
from sparkrobust.storage.local import LocalStorage
from sparkrobust.storage.memory import MemoryStorage
from sparkrobust.world import Ids

CONTROL = ControlFolder(instant=InstantTime("20240101000000000"), nonce="ab")


@pytest.fixture(params=["memory", "local"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    made: Storage = (
        MemoryStorage(str(tmp_path)) if request.param == "memory" else LocalStorage(str(tmp_path / "table"))
    )
    made.make_staging(CONTROL.staging)
    made.make_folder(CONTROL.rows_folder)
    return made


def batch(*numbers: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"n": pa.array(numbers, pa.int64())})


def test_the_first_reading_stays_and_others_leave_nothing(storage: Storage) -> None:
    pin(storage, CONTROL, 3, [batch(1, 2), batch(3)], Ids())
    pin(storage, CONTROL, 3, [batch(7, 8, 9, 10)], Ids())
    kept = [number for part in pinned(storage, CONTROL, 3) for number in part["n"].to_pylist()]
    assert kept == [1, 2, 3]
    assert list(storage.names(CONTROL.staging)) == []


def test_a_partition_without_rows_is_kept_too(storage: Storage) -> None:
    pin(storage, CONTROL, 0, [], Ids())
    assert list(pinned(storage, CONTROL, 0)) == []


def test_a_reading_that_fails_keeps_nothing(storage: Storage) -> None:
    def broken() -> pa.RecordBatch:
        yield batch(1)
        raise OSError("the input broke")

    with pytest.raises(OSError, match="the input broke"):
        pin(storage, CONTROL, 0, broken(), Ids())
    assert storage.stat(CONTROL.rows(0)) is None
    assert list(storage.names(CONTROL.staging)) == []
