"""What the timeline says: which instants are pending, which files are part of the table."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sparkrobust.core.instant import Action, InstantTime, State
from sparkrobust.core.names import BaseFileName, parse_instant_file
from sparkrobust.core.timeline import Timeline
from sparkrobust.core.view import latest_base_files


def of(*names: str) -> Timeline:
    return Timeline.of_names(names)


def test_an_instant_is_seen_once_in_its_highest_state() -> None:
    timeline = of("10.commit.requested", "10.inflight", "10_15.commit", "20.commit.requested", "20.inflight")
    assert [(i.time, i.state) for i in timeline.instants] == [("10", State.COMPLETED), ("20", State.INFLIGHT)]
    assert timeline.instants[0].completion == "15"


def test_the_order_of_the_listing_does_not_matter() -> None:
    names = [
        "10.commit.requested",
        "10.inflight",
        "10_15.commit",
        "20.clustering.requested",
        "20_31.replacecommit",
    ]
    assert of(*names) == of(*reversed(names))


@pytest.mark.parametrize("done", ["20_31.commit", "10_15.commit", "30_40.commit", "25_26.replacecommit"])
def test_an_instant_that_is_known_to_have_ended_makes_the_timeline_that_a_listing_would(done: str) -> None:
    names = ["10.commit.requested", "10.inflight", "20.commit.requested", "20.inflight", "20_22.savepoint",
             "25.clustering.requested", "25.clustering.inflight", "30.commit.requested"]  # fmt: skip
    instant = parse_instant_file(done)
    assert instant is not None
    assert of(*names).having(instant) == of(*names, done)


TIMES = [f"{time}" for time in range(100, 106)]
NAMES = [
    f"{time}{rest}"
    for time in TIMES
    for rest in (
        ".commit.requested",
        ".inflight",
        "_110.commit",
        "_111.commit",
        ".clustering.requested",
        ".clustering.inflight",
        "_112.replacecommit",
        ".replacecommit.requested",
        ".savepoint.inflight",
        "_113.savepoint",
        ".rollback.requested",
        "_114.rollback",
    )
] + ["history", "x.commit", "1000.commit.requested", "10_15.commit"]
SOME_NAMES = st.frozensets(st.sampled_from(NAMES))


@given(SOME_NAMES, SOME_NAMES)
def test_a_timeline_is_renewed_to_what_all_names_make(before: frozenset[str], now: frozenset[str]) -> None:
    renewed = Timeline.of_names(before).renewed(now, before ^ now)
    assert renewed == Timeline.of_names(now)
    assert renewed == Timeline.of_names(sorted(now)) == Timeline.of_names(sorted(now, reverse=True))


def test_a_longer_time_that_begins_as_one_that_came_stays_as_it_is() -> None:
    before = ["1000_1001.commit", "1001.commit.requested"]
    assert of(*before).renewed([*before, "100_101.commit"], ["100_101.commit"]) == of(
        *before, "100_101.commit"
    )


def test_a_timeline_of_which_nothing_came_or_went_stays_the_same_one() -> None:
    timeline = of("10.commit.requested")
    assert timeline.renewed(["10.commit.requested", "history"], ["history"]) is timeline


def test_a_timeline_of_which_very_much_came_or_went_is_renewed_too() -> None:
    before = {f"{time}_{time + 5}.commit" for time in range(1000, 1200)}
    now = {f"{time}_{time + 5}.commit" for time in range(1100, 1300)}
    assert of(*before).renewed(now, before ^ now) == of(*now)


def test_what_is_worked_out_before_it_is_asked_says_the_same() -> None:
    names = ["10_15.commit", "20_21.commit", "30.commit.requested"]
    timeline, other = of(*names), of(*names)
    timeline.work_out()
    assert timeline == other
    assert (timeline.start, timeline.newest_time, timeline.pending) == ("10", "30", other.pending)


@given(SOME_NAMES, st.frozensets(st.sampled_from(TIMES)))
def test_the_completed_writes_of_some_times_are_those_in_order(
    names: frozenset[str], times: frozenset[str]
) -> None:
    timeline = of(*names)
    assert timeline.completed_at(times) == [i for i in timeline.completed_writes if i.time in times]
    assert timeline.completed_times == {i.time for i in timeline.completed_writes}
    for time in times:
        for action in Action:
            wanted = [i for i in timeline.instants if i.time == time]
            wanted = [i for i in wanted if i.action.when_complete is action.when_complete]
            assert timeline.find(time, action) == (wanted[0] if wanted else None)
    moments = [moment for i in timeline.instants for moment in (i.time, i.completion or "")]
    assert timeline.newest_time == max(moments, default="")


def test_a_completed_clustering_is_a_replacecommit_and_a_pending_one_is_a_clustering() -> None:
    assert of("20.clustering.requested", "20.clustering.inflight").instants[0].action is Action.CLUSTERING
    done = of("20.clustering.requested", "20.clustering.inflight", "20_25.replacecommit").instants
    assert [(i.action, i.pending) for i in done] == [(Action.REPLACE_COMMIT, False)]


def test_a_savepoint_has_the_time_of_its_commit_and_hides_nothing_of_it() -> None:
    timeline = of("10_15.commit", "10.savepoint.inflight", "10_17.savepoint")
    assert {i.action for i in timeline.instants} == {Action.COMMIT, Action.SAVEPOINT}


def test_a_file_older_than_the_timeline_counts_as_committed_and_a_newer_stray_does_not() -> None:
    timeline = of("20_25.commit", "30.commit.requested", "30.inflight")
    assert timeline.is_committed("10")  # archived
    assert timeline.is_committed("20")
    assert not timeline.is_committed("25")
    assert not timeline.is_committed("30")


def test_on_an_empty_timeline_nothing_is_committed() -> None:
    assert not of().is_committed("10")
    assert of().newest_time == ""
    assert of().latest_write is None


def test_a_commit_held_back_by_a_savepoint_is_not_the_start_of_the_timeline() -> None:
    # Archiving went on past the savepointed commit 10: the hole between 10 and 30 was archived.
    timeline = of("10_15.commit", "10_16.savepoint", "30_35.commit")
    assert timeline.start == "30"
    assert timeline.is_committed("20")


def test_the_newest_time_counts_completions_too() -> None:
    assert of("10_99.commit", "20.commit.requested").newest_time == "99"


def test_cleans_and_rollbacks_are_no_writes() -> None:
    timeline = of("10_15.clean", "11_12.rollback", "20_21.commit")
    assert [i.time for i in timeline.completed_writes] == ["20"]
    assert timeline.find("11", Action.ROLLBACK) is not None
    assert timeline.find("11", Action.COMMIT) is None


def base(file_id: str, instant: str, token: str = "0-0-0") -> str:
    return str(BaseFileName(file_id=file_id, write_token=token, instant=InstantTime(instant)))


def view(
    timeline: Timeline, *files: tuple[str, str], replaced: dict[str, frozenset[str]] | None = None
) -> list[str]:
    found = latest_base_files(((p, n, 1) for p, n in files), timeline, replaced or {})
    return [f"{f.partition}/{f.name.instant}" for f in found]


def test_the_newest_committed_file_of_each_group_is_the_snapshot() -> None:
    timeline = of("10_11.commit", "20_21.commit", "30.commit.requested", "30.inflight")
    files = [("p", base("a", "10")), ("p", base("a", "20")), ("p", base("a", "30")), ("q", base("b", "10"))]
    assert view(timeline, *files) == ["p/20", "q/10"]


def test_a_replaced_group_is_gone_in_its_partition_only() -> None:
    timeline = of("10_11.commit", "20_21.replacecommit")
    files = [("p", base("a", "10")), ("q", base("a", "10"))]
    assert view(timeline, *files, replaced={"p": frozenset({"a"})}) == ["q/10"]


@pytest.mark.parametrize(
    "name", [".hoodie_partition_metadata", ".a_0_10.parquet", "x.parquet", "a_0_10.parquet.tmp"]
)
def test_other_files_in_a_partition_are_no_data(name: str) -> None:
    assert view(of("10_11.commit"), ("p", name)) == []


def test_what_is_no_instant_is_not_on_the_timeline() -> None:
    timeline = of("history", "10.commit.requested", "x.commit", "10_15.commit")
    assert [i.time for i in timeline.instants] == ["10"]


def test_what_is_pending_and_what_was_written_last_are_told() -> None:
    timeline = of(
        "10_11.commit", "20_21.commit", "30.commit.requested", "40_41.clean", "50.rollback.requested"
    )
    assert [i.time for i in timeline.pending] == ["30", "50"]
    assert timeline.latest_write is not None and timeline.latest_write.time == "20"


def test_the_newest_file_of_a_group_stays_in_whatever_order_a_listing_has_them() -> None:
    timeline = of("10_11.commit", "20_21.commit")
    files = [("p", base("a", "20")), ("p", base("a", "10"))]
    assert view(timeline, *files) == view(timeline, *reversed(files)) == ["p/20"]


def test_of_two_files_of_one_group_and_instant_one_is_the_snapshot_whichever_is_listed_first() -> None:
    timeline = of("10_11.commit")
    files = [("p", base("a", "10", "0-0-1")), ("p", base("a", "10", "0-0-2"))]
    for order in (files, files[::-1]):
        (found,) = latest_base_files(((p, n, 1) for p, n in order), timeline, {})
        assert found.name.write_token == "0-0-2" and found.file_id == "a"
        assert found.path == f"p/{base('a', '10', '0-0-2')}"
