"""No upload outlives its write, whoever cleans up and whatever comes in between; on a real S3 server."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

import pyarrow as pa
import pytest

from fault_injection.s3_server import S3Server
from sparkrobust import probe
from sparkrobust.coordinator.leftovers import begin_markers, control_folders, remove_markers
from sparkrobust.coordinator.recovery import Fate, recover
from sparkrobust.coordinator.rollback import roll_back_failed_writes
from sparkrobust.coordinator.table import HudiTable
from sparkrobust.coordinator.transaction import Transaction
from sparkrobust.core.instant import State
from sparkrobust.core.names import MarkerType, begin_marker, instant_file, marker_folder
from sparkrobust.handles.pinned import pin, pinned
from sparkrobust.probe import Point
from sparkrobust.storage.contract import StagedFile
from tests.coordinator.writes import (
    Stop,
    begun,
    commit,
    data_files,
    dead,
    leftovers,
    on_s3,
    opened,
    stage,
    stopped,
    terms,
    uploads,
)
from tests.moments import at
from tests.storage.conftest import BUCKET

pytestmark = pytest.mark.parametrize("storage", ["s3"], indirect=True)


def rolled_back_by_hudi(table: HudiTable, time: str) -> None:
    """As a single writer of Hudi's does it, which knows begin markers and no uploads."""
    storage = table.storage
    for path, _ in list(begin_markers(storage, time)):
        storage.delete(path)
    table.reload()
    (pending,) = [one for one in table.timeline.pending if one.time == time]
    for state in (State.INFLIGHT, State.REQUESTED):
        storage.delete(instant_file(replace(pending, state=state)))
    storage.delete_tree(marker_folder(time))


@pytest.mark.parametrize("stop", ["staged", "finalized", "decided"])
def test_what_a_write_has_uploaded_goes_with_the_next_though_hudi_took_its_begin_markers_away(
    table: HudiTable, s3_server: S3Server, stop: str
) -> None:
    failed = stopped(table, stop)
    assert len(uploads(table, s3_server)) == (2 if stop == "decided" else 1)
    rolled_back_by_hudi(table, failed.time)
    table.reload()
    roll_back_failed_writes(table)
    commit(table)
    assert uploads(table, s3_server) == [] and leftovers(table.storage) == []
    assert len(data_files(table.storage)) == 1


def test_an_upload_that_a_late_task_begins_while_its_write_is_cleaned_up_goes_with_the_next_one(
    table: HudiTable, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed, storage = stopped(table, "staged"), table.storage
    real = storage.delete_all

    def late(paths: Iterable[str]) -> None:
        name = f"p1/late-0_0-0-1_{failed.time}.parquet"
        upload = storage.stage(failed.folder.staging, "late", name)
        mark = begin_marker(failed.time, name, MarkerType.CREATE)
        storage.mark(mark, upload.token.encode(), under=marker_folder(failed.time))
        monkeypatch.setattr(storage, "delete_all", real)
        real(paths)

    monkeypatch.setattr(storage, "delete_all", late)
    remove_markers(storage, failed.time)
    assert len(list(begin_markers(storage, failed.time))) == 1
    remove_markers(storage, failed.time)
    assert uploads(table, s3_server) == [] and list(begin_markers(storage, failed.time)) == []


def test_a_commit_that_hudi_made_impossible_leaves_no_upload(table: HudiTable, s3_server: S3Server) -> None:
    failed = stopped(table, "decided")
    rolled_back_by_hudi(table, failed.time)
    table.reload()
    roll_back_failed_writes(table)
    assert uploads(table, s3_server) == [] and data_files(table.storage) == []


def dies_before_it_decides(table: HudiTable) -> Transaction:
    """Its commit file is staged, and nothing tells whether it is to be completed."""
    failed = dead(begun(table))
    stage(table, failed)
    markers = failed.finalize(1)

    def die() -> None:
        raise Stop

    with probe.listening(at(Point.COMMIT_STAGED, die)), pytest.raises(Stop):
        failed.commit(markers)
    return failed


@pytest.mark.parametrize("recovers", [True, False])
def test_the_commit_file_of_a_driver_that_dies_before_it_decides_goes_with_its_write_however_that_ends(
    table: HudiTable, s3_server: S3Server, recovers: bool
) -> None:
    dies_before_it_decides(table)
    assert len(uploads(table, s3_server)) == 2
    other = opened(table)
    if recovers:
        assert [one.fate for one in recover(other, even_alive=True)] == [Fate.COMMITTED]
    else:
        roll_back_failed_writes(other)
    assert uploads(table, s3_server) == [] and leftovers(table.storage) == []
    assert len(data_files(table.storage)) == recovers


@pytest.mark.parametrize("moment", ["its rows are read", "they are all there", "it is over"])
@pytest.mark.parametrize("ends", ["undone", "recovered", "committed"])
def test_the_rows_that_an_executor_stored_as_it_was_killed_go_with_their_write_however_that_ends(
    table: HudiTable, s3_server: S3Server, monkeypatch: pytest.MonkeyPatch, moment: str, ends: str
) -> None:
    write, left, publish = begun(table), list[object](), table.storage.publish
    rows = pa.RecordBatch.from_pydict({"n": [1, 2]})

    def kill() -> None:
        """For the others it is dead from here on; what it does to clean up is too late to count."""
        monkeypatch.undo()
        assert len(uploads(table, s3_server)) == (moment != "it is over")
        if ends == "undone":
            roll_back_failed_writes(opened(table))
        else:
            stage(table, write)
            markers = write.finalize(1)
            if ends == "committed":
                write.commit(markers)
                write.clean_up()
            else:
                dead(write)
                assert [one.fate for one in recover(opened(table))] == [Fate.COMMITTED]
        left.extend([*uploads(table, s3_server), *leftovers(table.storage)])
        raise Stop

    def read() -> Iterator[pa.RecordBatch]:
        yield rows
        if moment == "its rows are read":
            kill()

    def published(staged: StagedFile) -> None:
        if moment == "it is over":
            publish(staged)
            assert list(pinned(table.storage, write.folder, 3)) == [rows]
        kill()

    monkeypatch.setattr(table.storage, "publish", published)
    with pytest.raises(Stop):
        pin(table.storage, write.folder, 3, read(), table.ids)
    assert left == [] and len(data_files(table.storage)) == (ends != "undone")


def test_rows_that_are_stored_leave_nothing_that_tells_of_their_uploads(
    table: HudiTable, s3_server: S3Server
) -> None:
    write = begun(table)
    before = set(leftovers(table.storage))
    for number in (1, 2):  # the second attempt loses
        pin(table.storage, write.folder, 3, [pa.RecordBatch.from_pydict({"n": [number]})], table.ids)
    assert set(leftovers(table.storage)) - before == {write.folder.rows(3)}
    assert uploads(table, s3_server) == []


@pytest.mark.parametrize("note", ["commit-x", "rows-0-x"])
@pytest.mark.parametrize("content", ["", "{", "{}", '{"path": 3}', "other"])
def test_what_lies_where_an_upload_is_told_of_and_tells_of_none_keeps_nobody_from_cleaning_up(
    table: HudiTable, s3_server: S3Server, content: str, note: str
) -> None:
    failed = stopped(table, "staged")
    name = "p1/another-0_0-0-1_20240101000000000.parquet"
    with table.storage.stage(failed.folder.staging, "another", name) as another:
        told = another.token if content == "other" else content
        table.storage.put(f"{failed.folder.path}/{note}", told.encode())
        roll_back_failed_writes(opened(table))
        assert leftovers(table.storage) == []
        assert [key.endswith(name) for key in uploads(table, s3_server)] == [True]


def asked_of(table: HudiTable, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths of what is read or discarded from now on."""
    found: list[str] = []
    for name in ("read", "discard"):
        real = getattr(table.storage, name)

        def told(what: str, real: Callable[..., object] = real, **how: object) -> object:
            found.append(what)
            return real(what, **how)

        monkeypatch.setattr(table.storage, name, told)
    return found


def test_nobody_asks_for_the_upload_of_a_commit_that_was_completed_though_it_has_no_files(
    table: HudiTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    empty = Transaction(table, terms())
    empty.begin(slots=0)
    empty.commit(empty.finalize(0))
    asked = asked_of(table, monkeypatch)
    empty.clean_up()
    assert asked == [] and leftovers(table.storage) == []


def test_the_mark_of_a_folder_that_another_tool_has_left_does_not_stay(
    table: HudiTable, s3_server: S3Server
) -> None:
    failed = stopped(table, "staged")
    client, prefix = on_s3(table, s3_server)
    client.put_object(Bucket=BUCKET, Key=f"{prefix}/{failed.folder.path}/", Body=b"")
    for _ in range(2):
        roll_back_failed_writes(opened(table))
    assert control_folders(table.storage) == [] and leftovers(table.storage) == []
