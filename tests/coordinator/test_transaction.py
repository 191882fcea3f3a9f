"""A write on the timeline, from its first trace to its end, on a store in memory and on a disk."""

from __future__ import annotations

from typing import Any

import pytest

from sparkrobust.coordinator.create import make_table
from sparkrobust.coordinator.leftovers import begin_markers
from sparkrobust.coordinator.properties import read_properties, update_properties
from sparkrobust.coordinator.rollback import roll_back_failed_writes
from sparkrobust.coordinator.table import HudiTable
from sparkrobust.coordinator.transaction import Transaction
from sparkrobust.core import decision
from sparkrobust.core.instant import Action, State
from sparkrobust.core.markers import CompletionMarker
from sparkrobust.core.names import (
    NONCE,
    PROPERTIES,
    PROPERTIES_BACKUP,
    TIMELINE,
    marker_folder,
)
from sparkrobust.core.written import StagedFile
from sparkrobust.errors import (
    CommitUnknownError,
    CorruptTableError,
    FencedError,
    IndeterminateInputError,
    TableNotFoundError,
    UnavailableError,
    UnsupportedTableError,
)
from sparkrobust.formats import properties
from sparkrobust.formats.partition_metadata import PartitionMetadata
from sparkrobust.formats.rollback import RollbackMetadata, RollbackPlan
from sparkrobust.options import parse
from sparkrobust.storage.contract import Storage
from sparkrobust.world import Ids
from tests.coordinator.writes import (
    STOPS,
    TestClock,
    begun,
    commit,
    data_files,
    leftovers,
    stage,
    stopped,
    terms,
)


def test_a_commit_leaves_its_three_instant_files_its_data_and_nothing_else(table: HudiTable) -> None:
    transaction = commit(table)
    names = sorted(info.path for info in table.storage.list(TIMELINE)[0])
    time, completion = transaction.time, transaction.done.completion
    assert names == sorted(
        f"{TIMELINE}/{name}"
        for name in (f"{time}.commit.requested", f"{time}.inflight", f"{time}_{completion}.commit")
    )
    assert len(data_files(table.storage)) == 1
    assert leftovers(table.storage) == []
    made = PartitionMetadata.parse(table.storage.read("p1/.hoodie_partition_metadata"), path="p1")
    assert (made.commit_time, made.partition_depth) == (time, 1)


@pytest.mark.parametrize("stop", ["begun", "staged", "finalized", "decided"])
def test_nothing_of_a_write_is_visible_before_its_commit_is_decided(table: HudiTable, stop: str) -> None:
    stopped(table, stop)
    assert data_files(table.storage) == []
    assert table.base_files() == []


def test_times_never_collide_and_never_go_back_though_the_clock_stands_still(table: HudiTable) -> None:
    times = []
    for _ in range(3):
        transaction = commit(table)
        assert transaction.done is not None
        times += [transaction.time, transaction.done.completion]
    assert times == sorted(set(times))


def test_times_go_on_from_the_timeline_when_the_clock_goes_back(table: HudiTable) -> None:
    first = commit(table)
    assert isinstance(table.clock, TestClock)
    table.clock.ms -= 3_600_000
    second = commit(table)
    assert first.done is not None and second.time > str(first.done.completion)


@pytest.mark.parametrize("stop", ["begun", "staged", "finalized"])
def test_an_aborted_write_leaves_the_table_as_it_was(table: HudiTable, stop: str) -> None:
    commit(table)
    before = data_files(table.storage)
    stopped(table, stop).abort("of no use")
    assert data_files(table.storage) == before
    assert leftovers(table.storage) == []
    assert table.timeline.pending == ()


@pytest.mark.parametrize("stop", ["requested", "staged", "finalized"])
def test_the_next_write_rolls_back_what_a_dead_one_left_undecided_as_hudi_does(
    table: HudiTable, stop: str
) -> None:
    commit(table)
    before = data_files(table.storage)
    dead = stopped(table, "begun" if stop == "requested" else stop)
    marked = [path for path, _ in begin_markers(table.storage, dead.time)]
    if stop == "requested":
        table.storage.delete(f"{TIMELINE}/{dead.time}.inflight")
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
    names = [path.rpartition("/")[2] for path in marked]
    assert [file.rpartition("/")[2] for file in planned] == names
    done = f"{TIMELINE}/{rollback.time}_{rollback.completion}.rollback"
    assert RollbackMetadata.from_bytes(table.storage.read(done), path=done).commits_rollback == (dead.time,)


@pytest.mark.parametrize("stop", ["decided", "published"])
def test_the_next_write_finishes_what_a_dead_one_had_decided_to_commit(table: HudiTable, stop: str) -> None:
    commit(table)
    before = table.base_files()
    dead = stopped(table, stop)
    assert table.base_files() == before
    fresh = HudiTable.open(table.storage, table.clock, table.ids)
    assert roll_back_failed_writes(fresh) == []
    done = fresh.timeline.find(dead.time, Action.COMMIT)
    assert done is not None and done.completion == dead._decided.completion
    assert len(fresh.base_files()) == len(before) + 1
    assert leftovers(table.storage) == []
    # Its own driver, if it was only asleep, finds that, and changes nothing.
    dead._finish()
    assert len(data_files(table.storage)) == len(before) + 1


def test_two_writers_that_begin_in_the_same_millisecond_get_instants_of_their_own(table: HudiTable) -> None:
    other = HudiTable.open(table.storage, table.clock, table.ids)
    first, second = Transaction(table, terms()), Transaction(other, terms())
    assert first.time == second.time
    first.begin(slots=1)
    second.begin(slots=1)
    assert first.time < second.time
    path = stage(table, first)
    assert second.abort("of no use") is True
    first.commit(first.finalize(1))
    first.clean_up()
    assert data_files(table.storage) == [path] and leftovers(table.storage) == []


def test_a_sleeping_driver_commits_nothing_after_it_was_rolled_back(table: HudiTable) -> None:
    asleep = stopped(table, "staged")
    roll_back_failed_writes(HudiTable.open(table.storage, table.clock, table.ids))
    with pytest.raises((FencedError, IndeterminateInputError)):
        asleep.commit(asleep.finalize(1))
    assert data_files(table.storage) == []
    assert HudiTable.open(table.storage, table.clock).timeline.completed_writes == ()


def test_a_rollback_that_was_cut_off_is_finished_under_its_own_time(table: HudiTable) -> None:
    stopped(table, "finalized")
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
    dead = begun(table)
    folder = marker_folder(dead.time)
    table.storage.make_folder(f"{folder}/p1")
    table.storage.put_if_absent(f"{folder}/{before[0]}.marker.CREATE", b"")
    table.reload()
    with pytest.raises(CorruptTableError, match="no base file of"):
        roll_back_failed_writes(table)
    assert data_files(table.storage) == before


def test_who_gives_up_a_write_that_others_have_given_up_is_told_so(table: HudiTable) -> None:
    commit(table)
    own = begun(table)
    assert own.abort("changed my mind") and own.fenced is None
    mine = begun(table)
    assert roll_back_failed_writes(HudiTable.open(table.storage, table.clock, table.ids))
    assert mine.abort("its tasks failed") and isinstance(mine.fenced, FencedError)
    assert leftovers(table.storage) == []


def test_a_driver_that_died_between_its_commit_and_its_cleaning_up_is_cleaned_up_after(
    table: HudiTable,
) -> None:
    transaction = begun(table)
    path = stage(table, transaction)
    stage(table, transaction, token="0-0-2")  # an attempt that lost
    transaction.commit(transaction.finalize(1))
    assert leftovers(table.storage) != []
    assert roll_back_failed_writes(table) == []
    assert leftovers(table.storage) == []
    assert data_files(table.storage) == [path]


def test_a_write_that_another_writer_rolled_back_does_not_commit(table: HudiTable) -> None:
    transaction = begun(table)
    stage(table, transaction)
    markers = transaction.finalize(1)
    roll_back_failed_writes(HudiTable.open(table.storage, table.clock, table.ids))
    with pytest.raises(FencedError, match="rolled back by another writer"):
        transaction.commit(markers)
    assert HudiTable.open(table.storage, table.clock).timeline.completed_writes == ()


class Lossy:
    """Loses the answers to one call on one kind of file, having carried it out or not."""

    def __init__(self, inner: Storage, call: str, end: str, *, carried_out: bool, times: int = 1) -> None:
        self._inner, self._calls, self._end = inner, call.split(), end
        self._carried_out, self._times = carried_out, times

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._inner, name)
        if name not in self._calls:
            return real

        def lossy(what: Any, *rest: Any, **more: Any) -> Any:
            first = what[0] if isinstance(what, tuple) else what
            path = first.final_path if isinstance(first, StagedFile) else first
            if not path.endswith(self._end) or not self._times:
                return real(what, *rest, **more)
            self._times -= 1
            if self._carried_out:
                real(what, *rest, **more)
            raise UnavailableError("the connection was cut")

        return lossy


def _lossy(table: HudiTable, call: str, end: str, **how: Any) -> tuple[Transaction, list[CompletionMarker]]:
    """A write that is ready to commit, on a store that then loses answers."""
    transaction = begun(table)
    stage(table, transaction)
    markers = transaction.finalize(1)
    table.storage = Lossy(table.storage, call, end, **how)  # type: ignore[assignment]
    return transaction, markers


@pytest.mark.parametrize("carried_out", [True, False])
def test_a_decision_whose_answer_was_lost_is_found_by_looking(table: HudiTable, carried_out: bool) -> None:
    transaction, markers = _lossy(table, "put_if_absent", "/decision", carried_out=carried_out)
    transaction.commit(markers)
    (done,) = table.timeline.completed_writes
    assert table.commit(done).extra_metadata[NONCE] == transaction.folder.nonce


def test_a_decision_that_was_put_plainly_is_not_read_again(
    table: HudiTable, monkeypatch: pytest.MonkeyPatch
) -> None:
    def parsed(*anything: object) -> None:
        raise AssertionError("the decision was read")

    monkeypatch.setattr(decision, "parse", parsed)
    commit(table)
    assert [instant.state for instant in table.timeline.instants] == [State.COMPLETED]


@pytest.mark.parametrize("carried_out", [True, False])
def test_a_decision_that_nobody_can_look_after_is_unknown_and_the_table_says_later(
    table: HudiTable, carried_out: bool
) -> None:
    real = table.storage
    calls = "put_if_absent read"
    transaction, markers = _lossy(table, calls, "/decision", carried_out=carried_out, times=99)
    with pytest.raises(CommitUnknownError, match="the timeline has a completed") as caught:
        transaction.commit(markers)
    assert caught.value.outcome == "Unknown"
    fresh = HudiTable.open(real, table.clock, table.ids)
    undone = roll_back_failed_writes(fresh)
    assert [i.time for i in undone] == ([] if carried_out else [transaction.time])
    assert len(fresh.base_files()) == len(data_files(real)) == int(carried_out)
    assert leftovers(real) == []


@pytest.mark.parametrize("end", [".parquet", ".commit"])
@pytest.mark.parametrize("carried_out", [True, False])
@pytest.mark.parametrize("times", [1, 99])
def test_a_publish_whose_answer_was_lost_is_tried_again_and_else_left_to_the_next_write(
    table: HudiTable, end: str, carried_out: bool, times: int
) -> None:
    real = table.storage
    call = "publish_last" if end == ".commit" else "publish_all"
    transaction, markers = _lossy(table, call, end, carried_out=carried_out, times=times)
    if times == 1 or (carried_out and end == ".commit"):
        transaction.commit(markers)
    else:
        with pytest.raises(CommitUnknownError, match="is decided, and not finished"):
            transaction.commit(markers)
    fresh = HudiTable.open(real, table.clock, table.ids)
    assert roll_back_failed_writes(fresh) == []
    assert [i.time for i in fresh.timeline.completed_writes] == [transaction.time]
    assert len(fresh.base_files()) == 1 and leftovers(real) == []


def _give_metadata_table(table: HudiTable) -> None:
    table.storage.make_folder(".hoodie/metadata/files")
    table.storage.put_if_absent(".hoodie/metadata/files/x", b"")
    update_properties(
        table.storage, lambda old: {**old, "hoodie.table.metadata.partitions": "files"}, table.clock
    )


def test_a_metadata_table_that_came_up_during_the_write_stops_the_commit(table: HudiTable) -> None:
    transaction = stopped(table, "staged")
    markers = transaction.finalize(1)
    _give_metadata_table(table)
    with pytest.raises(UnsupportedTableError, match=r"drop\.metadata\.table=true"):
        transaction.commit(markers)
    transaction.abort("refused")
    assert data_files(table.storage) == [] and leftovers(table.storage) == []


def test_a_metadata_table_is_dropped_when_the_write_may_and_before_its_commit(table: HudiTable) -> None:
    transaction = stopped(table, "staged", may_drop_metadata_table=True)
    markers = transaction.finalize(1)
    _give_metadata_table(table)
    transaction.commit(markers)
    values = read_properties(table.storage, table.clock)
    assert values["hoodie.table.metadata.partitions"] == ""
    assert [*table.storage.walk(".hoodie/metadata")] == []
    assert len(table.timeline.completed_writes) == 1


class FailsToDelete:
    """A store that refuses the first deletion of a tree when it has deleted a part of it."""

    def __init__(self, inner: Storage) -> None:
        self._inner, self.trees = inner, list[str]()

    def __getattr__(self, name: str) -> object:
        return getattr(self._inner, name)

    def delete_tree(self, folder: str) -> None:
        self.trees.append(folder)
        if len(self.trees) == 1:
            self._inner.delete(min(info.path for info in self._inner.walk(folder)))
            raise UnavailableError("503 SlowDown", path=folder)
        self._inner.delete_tree(folder)


def _partly_dropped(table: HudiTable) -> Storage:
    """The store of a table whose metadata table is no more, but for files that lie there still."""
    storage = table.storage
    transaction = stopped(table, "staged", may_drop_metadata_table=True)
    markers = transaction.finalize(1)
    _give_metadata_table(table)
    storage.put_if_absent(".hoodie/metadata/files/y", b"")
    table.storage = FailsToDelete(storage)  # type: ignore[assignment]
    with pytest.raises(UnavailableError, match="503"):
        transaction.commit(markers)
    assert transaction.abort("the store was away")
    table.storage = storage
    assert read_properties(storage, table.clock)["hoodie.table.metadata.partitions"] == ""
    assert [info.path for info in storage.walk(".hoodie/metadata")] == [".hoodie/metadata/files/y"]
    return storage


def _write(table: HudiTable, **more: Any) -> None:
    transaction = begun(table, **more)
    stage(table, transaction)
    transaction.commit(transaction.finalize(1))
    transaction.clean_up()


def test_of_a_metadata_table_that_was_dropped_in_part_the_next_write_that_may_drops_the_rest(
    table: HudiTable,
) -> None:
    storage = _partly_dropped(table)
    _write(table)
    assert [*storage.walk(".hoodie/metadata")] != [], "it was not told that it may"
    _write(table, may_drop_metadata_table=True)
    assert [*storage.walk(".hoodie/metadata")] == []


def test_a_write_that_may_not_drop_a_metadata_table_does_not_look_for_one(table: HudiTable) -> None:
    table.storage = FailsToDelete(table.storage)  # type: ignore[assignment]
    table.storage.trees.append("so that none fails")  # type: ignore[attr-defined]
    _write(table)
    assert ".hoodie/metadata" not in table.storage.trees  # type: ignore[attr-defined]


@pytest.mark.parametrize("stop", STOPS)
def test_the_properties_change_with_the_commit_of_an_overwrite_and_with_nothing_less(
    table: HudiTable, stop: str
) -> None:
    before = read_properties(table.storage, table.clock)
    new = {**before, "hoodie.table.recordkey.fields": "other"}
    stopped(table, stop, Action.REPLACE_COMMIT, new_properties=new)
    decided = stop in ("decided", "published")
    assert (read_properties(table.storage, table.clock) == before) is not decided
    fresh = HudiTable.open(table.storage, table.clock, table.ids)
    roll_back_failed_writes(fresh)
    assert fresh.config.key_fields == (("other",) if decided else ("id",))
    assert len(fresh.timeline.completed_writes) == int(decided)


def test_an_overwrite_that_hudi_rolls_back_in_its_commit_gives_the_old_properties_back(
    table: HudiTable,
) -> None:
    before = read_properties(table.storage, table.clock)
    new = {**before, "hoodie.table.recordkey.fields": "other"}
    dead = stopped(table, "published", Action.REPLACE_COMMIT, new_properties=new)
    assert len(data_files(table.storage)) == 1
    # As Hudi leaves it, which knows nothing of decisions; it may have seen no marker either.
    for state in ("inflight", "requested"):
        table.storage.delete(f"{TIMELINE}/{dead.time}.replacecommit.{state}")
    table.storage.delete_tree(marker_folder(dead.time))
    fresh = HudiTable.open(table.storage, table.clock, table.ids)
    roll_back_failed_writes(fresh)
    assert read_properties(table.storage, table.clock) == before
    assert data_files(table.storage) == [] and leftovers(table.storage) == []


@pytest.mark.parametrize("ends", ["cleaned up", "died after its commit"])
@pytest.mark.parametrize("fields", ["p", "q"])
def test_folders_of_a_replaced_table_stay_partitions_only_where_their_paths_mean_the_same(
    table: HudiTable, fields: str, ends: str
) -> None:
    commit(table, "p1")
    commit(table, "p2")
    fields_now = {**table.config.values, "hoodie.table.partition.fields": fields}
    transaction = begun(table, Action.REPLACE_COMMIT, new_properties=fields_now)
    path = stage(table, transaction, "p2")
    transaction.commit(transaction.finalize(1))
    if ends == "cleaned up":
        transaction.clean_up()
    else:
        fresh = HudiTable.open(table.storage, table.clock, table.ids)
        assert roll_back_failed_writes(fresh) == []
    assert leftovers(table.storage) == []
    assert table.partitions() == (["p1", "p2"] if fields == "p" else ["p2"])
    assert [base.path for base in table.base_files()] == [path]


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
