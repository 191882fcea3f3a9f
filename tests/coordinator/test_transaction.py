"""A write on the timeline, from its first trace to its end, on a store in memory and on a disk."""

from __future__ import annotations

from pathlib import Path

import pytest

from sparkrobust.coordinator.create import make_table
from sparkrobust.coordinator.properties import read_properties, update_properties
from sparkrobust.coordinator.rollback import roll_back_failed_writes
from sparkrobust.coordinator.table import HudiTable
from sparkrobust.coordinator.transaction import NONCE, Transaction
from sparkrobust.core.instant import Action, State
from sparkrobust.core.names import (
    PROPERTIES,
    PROPERTIES_BACKUP,
    ROBUST,
    TEMP,
    TIMELINE,
    BaseFileName,
    MarkerType,
    begin_marker,
    joined,
    marker_folder,
)
from sparkrobust.core.write_status import OperationType, WriteStat
from sparkrobust.errors import (
    CommitUnknownError,
    CorruptTableError,
    FencedError,
    TableNotFoundError,
    UnavailableError,
    UnsupportedTableError,
)
from sparkrobust.formats import properties
from sparkrobust.formats.partition_metadata import PartitionMetadata
from sparkrobust.formats.rollback import RollbackMetadata, RollbackPlan
from sparkrobust.options import parse
from sparkrobust.storage.contract import StagedFile, Staging, Storage
from sparkrobust.storage.local import LocalStorage
from sparkrobust.storage.memory import MemoryStorage
from sparkrobust.world import Clock, Ids

SCHEMA = '{"type":"record","name":"t_record","namespace":"hoodie.t","fields":[]}'


class TestClock(Clock):
    """Time stands still, but for sleeping."""

    __test__ = False

    def __init__(self) -> None:
        self.ms = 1_704_067_200_000

    def now_ms(self) -> int:
        return self.ms

    def sleep(self, seconds: float) -> None:
        self.ms += int(seconds * 1000)


@pytest.fixture(params=["memory", "local", "s3"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    if request.param == "s3":
        made: Storage = request.getfixturevalue("s3_table")()
        return made
    if request.param == "memory":
        return MemoryStorage(str(tmp_path))
    return LocalStorage(str(tmp_path / "table"))


@pytest.fixture
def table(storage: Storage) -> HudiTable:
    options = parse(
        {
            "hoodie.table.name": "t",
            "hoodie.datasource.write.recordkey.field": "id",
            "hoodie.datasource.write.partitionpath.field": "p",
        }
    )
    made, new = make_table(storage, options, TestClock(), Ids())
    assert new
    return made


def stage(table: HudiTable, transaction: Transaction, partition: str = "p1") -> tuple[StagedFile, WriteStat]:
    """What a task does: begin marker, staged bytes."""
    name = BaseFileName(file_id=f"{table.ids.uuid()}-0", write_token="0-0-1", instant=transaction.time)
    path = joined(partition, str(name))
    marker = begin_marker(transaction.time, path, MarkerType.CREATE)
    table.storage.make_folder(marker.rpartition("/")[0], under=marker_folder(transaction.time))
    table.storage.put_if_absent(marker, b"")
    with table.storage.stage(transaction.control.staging, f"{name}.x", path) as writer:
        if table.storage.staging is Staging.MULTIPART:
            table.storage.put(marker, writer.token.encode())
        writer.write(b"rows")
        staged = writer.finish()
    stat = WriteStat(file_id=name.file_id, path=path, partition_path=partition, num_writes=1, num_inserts=1)
    return staged, stat


def commit(table: HudiTable, partition: str = "p1") -> Transaction:
    transaction = Transaction(table, Action.COMMIT)
    transaction.begin()
    staged, stat = stage(table, transaction, partition)
    transaction.publish([staged], [stat])
    transaction.complete(OperationType.INSERT, [stat], SCHEMA)
    transaction.clean_up()
    return transaction


def data_files(storage: Storage) -> list[str]:
    return sorted(info.path for info in storage.walk("") if info.path.endswith(".parquet"))


def leftovers(storage: Storage) -> list[str]:
    return [info.path for folder in (ROBUST, TEMP) for info in storage.walk(folder)]


def test_a_commit_leaves_its_three_instant_files_its_data_and_nothing_else(table: HudiTable) -> None:
    transaction = commit(table)
    names = sorted(info.path for info in table.storage.list(TIMELINE)[0])
    time, completion = transaction.time, transaction.completion
    assert names == sorted(
        f"{TIMELINE}/{name}"
        for name in (f"{time}.commit.requested", f"{time}.inflight", f"{time}_{completion}.commit")
    )
    assert len(data_files(table.storage)) == 1
    assert leftovers(table.storage) == []
    made = PartitionMetadata.parse(table.storage.read("p1/.hoodie_partition_metadata"), path="p1")
    assert (made.commit_time, made.partition_depth) == (time, 1)


def test_nothing_of_a_write_is_visible_before_it_publishes(table: HudiTable) -> None:
    transaction = Transaction(table, Action.COMMIT)
    transaction.begin()
    stage(table, transaction)
    assert data_files(table.storage) == []
    assert table.base_files() == []


def test_times_never_collide_and_never_go_back_though_the_clock_stands_still(table: HudiTable) -> None:
    times = []
    for _ in range(3):
        transaction = commit(table)
        times += [transaction.time, transaction.completion]
    assert times == sorted(set(times))


def test_times_go_on_from_the_timeline_when_the_clock_goes_back(table: HudiTable) -> None:
    first = commit(table)
    assert isinstance(table.clock, TestClock)
    table.clock.ms -= 3_600_000
    second = commit(table)
    assert second.time > str(first.completion)


@pytest.mark.parametrize("stop", ["begun", "staged", "published"])
def test_an_aborted_write_leaves_the_table_as_it_was(table: HudiTable, stop: str) -> None:
    commit(table)
    before = data_files(table.storage)
    transaction = Transaction(table, Action.COMMIT)
    transaction.begin()
    if stop != "begun":
        staged, stat = stage(table, transaction)
        if stop == "published":
            transaction.publish([staged], [stat])
            assert data_files(table.storage) != before
    transaction.abort()
    assert data_files(table.storage) == before
    assert leftovers(table.storage) == []
    assert table.timeline.pending == ()


@pytest.mark.parametrize("stop", ["requested", "staged", "published"])
def test_the_next_write_rolls_back_what_a_dead_one_left_as_hudi_does(table: HudiTable, stop: str) -> None:
    commit(table)
    before = data_files(table.storage)
    dead = Transaction(table, Action.COMMIT)
    dead.begin()
    marked = []
    if stop == "requested":
        table.storage.delete(f"{TIMELINE}/{dead.time}.inflight")
    else:
        staged, stat = stage(table, dead)
        marked = [stat.path]
        if stop == "published":
            dead.publish([staged], [stat])
    fresh = HudiTable.open(table.storage, table.clock, table.ids)
    assert [i.time for i in roll_back_failed_writes(fresh)] == [dead.time]
    assert data_files(table.storage) == before
    assert leftovers(table.storage) == []
    (rollback,) = (i for i in fresh.timeline.instants if i.action is Action.ROLLBACK)
    assert rollback.state is State.COMPLETED
    assert fresh.timeline.find(dead.time, Action.COMMIT) is None
    path = f"{TIMELINE}/{rollback.time}.rollback.requested"
    plan = RollbackPlan.from_bytes(table.storage.read(path), path=path)
    assert plan.instant_to_rollback.commit_time == dead.time
    planned = [file for request in plan.rollback_requests for file in request.files_to_be_deleted]
    assert [file.rpartition("/")[2] for file in planned] == [str(p).rpartition("/")[2] for p in marked]
    done = f"{TIMELINE}/{rollback.time}_{rollback.completion}.rollback"
    assert RollbackMetadata.from_bytes(table.storage.read(done), path=done).commits_rollback == (dead.time,)


def test_a_rollback_that_was_cut_off_is_finished_under_its_own_time(table: HudiTable) -> None:
    dead = Transaction(table, Action.COMMIT)
    dead.begin()
    staged, stat = stage(table, dead)
    dead.publish([staged], [stat])
    fresh = HudiTable.open(table.storage, table.clock, table.ids)
    roll_back_failed_writes(fresh)
    (rollback,) = (i for i in fresh.timeline.instants if i.action is Action.ROLLBACK)
    # As if the driver had died before the last step.
    table.storage.delete(f"{TIMELINE}/{rollback.time}_{rollback.completion}.rollback")
    fresh.reload()
    roll_back_failed_writes(fresh)
    (again,) = (i for i in fresh.timeline.instants if i.action is Action.ROLLBACK)
    assert (again.time, again.state) == (rollback.time, State.COMPLETED)
    assert data_files(table.storage) == []


@pytest.mark.parametrize(
    "victim",
    ["/etc/passwd", "{root}/../escape.parquet", "{root}/.hoodie/hoodie.properties", "relative.parquet"],
)
def test_a_rollback_plan_never_deletes_outside_of_the_data(table: HudiTable, victim: str) -> None:
    root = table.storage.url.removeprefix("file://")
    plan = RollbackPlan.from_bytes(_plan_of(victim.format(root=root)), path="x")
    time = "20990101000000000"
    table.storage.put_if_absent(f"{TIMELINE}/{time}.rollback.requested", plan.to_bytes())
    table.reload()
    with pytest.raises(CorruptTableError, match="does not lie in the table"):
        roll_back_failed_writes(table)
    assert table.storage.stat(PROPERTIES) is not None


def _plan_of(victim: str) -> bytes:
    from sparkrobust.formats.rollback import InstantInfo, RollbackRequest

    request = RollbackRequest(partition_path="p", file_id="f", files_to_be_deleted=(victim,))
    info = InstantInfo(commit_time="20240101000000000", action="commit")
    return RollbackPlan(instant_to_rollback=info, rollback_requests=(request,)).to_bytes()


def test_a_marker_that_names_no_base_file_stops_the_rollback_and_deletes_nothing(table: HudiTable) -> None:
    commit(table)
    before = data_files(table.storage)
    dead = Transaction(table, Action.COMMIT)
    dead.begin()
    folder = marker_folder(dead.time)
    table.storage.make_folder(f"{folder}/p1")
    table.storage.put_if_absent(f"{folder}/{before[0]}.marker.CREATE", b"")
    table.reload()
    with pytest.raises(CorruptTableError, match="no base file of"):
        roll_back_failed_writes(table)
    assert data_files(table.storage) == before


def test_a_driver_that_died_between_its_commit_and_its_cleaning_up_is_cleaned_up_after(
    table: HudiTable,
) -> None:
    transaction = Transaction(table, Action.COMMIT)
    transaction.begin()
    staged, stat = stage(table, transaction)
    stage(table, transaction)  # an attempt that lost
    transaction.publish([staged], [stat])
    transaction.complete(OperationType.INSERT, [stat], SCHEMA)
    assert leftovers(table.storage) != []
    assert roll_back_failed_writes(table) == []
    assert leftovers(table.storage) == []
    assert data_files(table.storage) == [stat.path]


def test_a_write_that_another_writer_rolled_back_does_not_commit(table: HudiTable) -> None:
    transaction = Transaction(table, Action.COMMIT)
    transaction.begin()
    _, stat = stage(table, transaction)
    roll_back_failed_writes(HudiTable.open(table.storage, table.clock, table.ids))
    with pytest.raises(FencedError, match="rolled back by another writer"):
        transaction.complete(OperationType.INSERT, [stat], SCHEMA)
    assert HudiTable.open(table.storage, table.clock).timeline.completed_writes == ()


class Lossy:
    """Loses the answer to the commit's put, having carried it out or not."""

    def __init__(self, inner: Storage, *, carried_out: bool, blind: bool = False) -> None:
        self._inner, self._carried_out, self._blind = inner, carried_out, blind
        self._lost = False

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    def put_if_absent(self, path: str, data: bytes) -> None:
        if not path.endswith(".commit"):
            return self._inner.put_if_absent(path, data)
        self._lost = True
        if self._carried_out:
            self._inner.put_if_absent(path, data)
        raise UnavailableError("the connection was cut")

    def stat(self, path: str) -> object:
        if self._blind and self._lost:
            raise UnavailableError("still cut")
        return self._inner.stat(path)


def _staged(table: HudiTable) -> tuple[Transaction, WriteStat]:
    transaction = Transaction(table, Action.COMMIT)
    transaction.begin()
    staged, stat = stage(table, transaction)
    transaction.publish([staged], [stat])
    return transaction, stat


def test_a_commit_whose_answer_was_lost_is_found_by_looking(table: HudiTable) -> None:
    transaction, stat = _staged(table)
    table.storage = Lossy(table.storage, carried_out=True)  # type: ignore[assignment]
    transaction.complete(OperationType.INSERT, [stat], SCHEMA)
    (done,) = table.timeline.completed_writes
    assert table.commit(done).extra_metadata[NONCE] == transaction.control.nonce


def test_a_commit_that_did_not_come_through_is_a_failure_and_rolled_back(table: HudiTable) -> None:
    transaction, stat = _staged(table)
    real = table.storage
    table.storage = Lossy(real, carried_out=False)  # type: ignore[assignment]
    with pytest.raises(UnavailableError):
        transaction.complete(OperationType.INSERT, [stat], SCHEMA)
    table.storage = real
    transaction.abort()
    assert data_files(real) == []


def test_a_commit_that_nobody_can_look_after_is_unknown_and_says_where_to_look(table: HudiTable) -> None:
    transaction, stat = _staged(table)
    table.storage = Lossy(table.storage, carried_out=True, blind=True)  # type: ignore[assignment]
    with pytest.raises(CommitUnknownError, match=r"\.commit exists") as caught:
        transaction.complete(OperationType.INSERT, [stat], SCHEMA)
    assert caught.value.outcome == "Unknown"


def _give_metadata_table(table: HudiTable) -> None:
    table.storage.make_folder(".hoodie/metadata/files")
    table.storage.put_if_absent(".hoodie/metadata/files/x", b"")
    update_properties(
        table.storage, lambda old: {**old, "hoodie.table.metadata.partitions": "files"}, table.clock
    )


def test_a_metadata_table_that_came_up_during_the_write_stops_the_commit(table: HudiTable) -> None:
    transaction, stat = _staged(table)
    _give_metadata_table(table)
    with pytest.raises(UnsupportedTableError, match=r"drop\.metadata\.table=true"):
        transaction.complete(OperationType.INSERT, [stat], SCHEMA)
    transaction.abort()
    assert data_files(table.storage) == []


def test_a_metadata_table_is_dropped_when_the_write_may_and_before_its_commit(table: HudiTable) -> None:
    transaction, stat = _staged(table)
    _give_metadata_table(table)
    transaction.complete(OperationType.INSERT, [stat], SCHEMA, may_drop_metadata_table=True)
    values = read_properties(table.storage, table.clock)
    assert values["hoodie.table.metadata.partitions"] == ""
    assert [*table.storage.walk(".hoodie/metadata")] == []
    assert len(table.timeline.completed_writes) == 1


def test_an_overwrite_that_dies_before_its_commit_gives_the_old_properties_back(table: HudiTable) -> None:
    transaction = Transaction(table, Action.REPLACE_COMMIT)
    transaction.begin()
    _, stat = stage(table, transaction)
    before = read_properties(table.storage, table.clock)
    new = {**before, "hoodie.table.recordkey.fields": "other"}
    real = table.storage

    class Dies(Lossy):
        def put_if_absent(self, path: str, data: bytes) -> None:
            if path.endswith(".replacecommit"):
                raise KeyboardInterrupt
            self._inner.put_if_absent(path, data)

    table.storage = Dies(real, carried_out=False)  # type: ignore[assignment]
    with pytest.raises(KeyboardInterrupt):
        transaction.complete(OperationType.INSERT_OVERWRITE_TABLE, [stat], SCHEMA, new_properties=new)
    assert read_properties(real, table.clock)["hoodie.table.recordkey.fields"] == "other"
    fresh = HudiTable.open(real, table.clock, table.ids)
    roll_back_failed_writes(fresh)
    assert read_properties(real, table.clock) == before
    assert fresh.config.key_fields == ("id",)


@pytest.mark.parametrize("ends", ["cleaned up", "died after its commit"])
@pytest.mark.parametrize("fields", ["p", "q"])
def test_folders_of_a_replaced_table_stay_partitions_only_where_their_paths_mean_the_same(
    table: HudiTable, fields: str, ends: str
) -> None:
    commit(table, "p1")
    commit(table, "p2")
    replaced: dict[str, list[str]] = {}
    for base in table.base_files():
        replaced.setdefault(base.partition, []).append(base.file_id)
    transaction = Transaction(table, Action.REPLACE_COMMIT)
    transaction.begin()
    staged, stat = stage(table, transaction, "p2")
    transaction.publish([staged], [stat])
    transaction.complete(
        OperationType.INSERT_OVERWRITE_TABLE,
        [stat],
        SCHEMA,
        replaced=replaced,
        new_properties={**table.config.values, "hoodie.table.partition.fields": fields},
    )
    if ends == "cleaned up":
        transaction.clean_up()
    else:
        fresh = HudiTable.open(table.storage, table.clock, table.ids)
        assert roll_back_failed_writes(fresh) == []
    assert leftovers(table.storage) == []
    assert table.partitions() == (["p1", "p2"] if fields == "p" else ["p2"])
    assert [base.path for base in table.base_files()] == [stat.path]


# -- properties -------------------------------------------------------------------------------------


def test_an_update_that_died_anywhere_leaves_a_valid_copy_and_the_next_one_goes_on(table: HudiTable) -> None:
    storage, clock = table.storage, table.clock
    whole = storage.read(PROPERTIES)
    for torn in (None, b"", b"#only a comment", whole[: len(whole) // 2]):
        storage.put(PROPERTIES_BACKUP, whole)
        storage.delete(PROPERTIES)
        if torn is not None:
            storage.put(PROPERTIES, torn)
        assert read_properties(storage, clock)["hoodie.table.name"] == "t"
        written = update_properties(storage, lambda old: {**old, "x": "y"}, clock)
        assert written["x"] == "y"
        assert storage.stat(PROPERTIES_BACKUP) is None


def test_a_wrong_checksum_is_named_and_nothing_is_waited_for_in_vain(table: HudiTable) -> None:
    storage, clock = table.storage, table.clock
    values = properties.parse(storage.read(PROPERTIES), path=PROPERTIES)
    wrong = properties.render({**values, "hoodie.table.checksum": "1"}, [])
    storage.put(PROPERTIES, wrong)
    storage.put(PROPERTIES_BACKUP, wrong)
    assert isinstance(clock, TestClock)
    before = clock.ms
    with pytest.raises(CorruptTableError, match=r"hoodie\.properties") as caught:
        read_properties(storage, clock)
    assert caught.value.path == PROPERTIES
    assert clock.ms == before


def test_a_path_without_a_table_says_so(storage: Storage) -> None:
    with pytest.raises(TableNotFoundError, match="no Hudi table"):
        HudiTable.open(storage, TestClock())


def test_two_writers_that_make_the_table_at_once_end_up_in_one(storage: Storage) -> None:
    options = parse({"hoodie.table.name": "t", "hoodie.datasource.write.recordkey.field": "id"})
    first, made = make_table(storage, options, TestClock(), Ids())
    second, made_again = make_table(storage, options, TestClock(), Ids())
    assert (made, made_again) == (True, False)
    assert first.config == second.config


@pytest.mark.parametrize(
    ("file", "kind"),
    [
        ("_delta_log/00000000000000000000.json", "a Delta table"),
        ("metadata/v1.metadata.json", "an Iceberg table"),
        ("part-0.parquet", "plain data files"),
        ("_SUCCESS", "plain data files"),
    ],
)
def test_what_is_no_hudi_table_is_called_by_its_name(storage: Storage, file: str, kind: str) -> None:
    storage.make_folder(file.rpartition("/")[0])
    storage.put_if_absent(file, b"x")
    with pytest.raises(TableNotFoundError, match=kind):
        HudiTable.open(storage, TestClock())
