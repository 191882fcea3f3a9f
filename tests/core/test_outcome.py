"""What a write tells its caller: sums over its files, as a line, and as a table for a notebook."""

from __future__ import annotations

import pickle
import sys

import pytest

from sparkrobust.core.outcome import WriteResult, tell_committed, tell_undone
from sparkrobust.core.write_status import WriteStat
from sparkrobust.errors import (
    CommitOutcome,
    CommitUnknownError,
    ConflictError,
    FencedError,
    HeartbeatLostError,
    InvalidInputError,
    LockError,
    OperationCancelled,
    RobustWriteError,
    StorageFullError,
    TableNotFoundError,
    UnavailableError,
    UnsupportedTableError,
)


def stat(partition: str, *, old: str = "null", **counts: int) -> WriteStat:
    return WriteStat(file_id="f", path="x", partition_path=partition, prev_commit=old, **counts)


STATS = [
    stat("p", num_inserts=3, file_size_in_bytes=100, num_writes=3),
    stat(
        "p", old="1", num_inserts=1, num_update_writes=4, num_deletes=2, file_size_in_bytes=10, num_writes=9
    ),
    stat("q", old="1", num_update_writes=1, num_deletes=5, file_size_in_bytes=1),
]


def test_the_numbers_of_a_result_are_the_sums_over_its_files() -> None:
    result = WriteResult.of_stats(STATS, path="file:///t", operation="upsert", instant="7", slots=9)
    assert result == WriteResult(
        path="file:///t",
        operation="upsert",
        instant="7",
        inserted=4,
        updated=5,
        deleted=7,
        files_created=1,
        files_rewritten=2,
        partitions=2,
        bytes_written=111,
        slots=9,
    )
    assert result.outcome is CommitOutcome.COMMITTED


def test_a_write_of_nothing_has_nothing_but_its_instant() -> None:
    result = WriteResult.of_stats([], path="t", operation="delete", instant="7")
    assert result == WriteResult(path="t", operation="delete", instant="7")
    assert (result.inserted, result.updated, result.deleted, result.files_created) == (0, 0, 0, 0)
    assert (result.files_rewritten, result.partitions, result.bytes_written, result.slots) == (0, 0, 0, 0)
    assert (result.attempts_reused, result.attempts_fenced, result.files_discarded) == (0, 0, 0)
    assert result.rolled_back == ()
    assert (result.total_seconds, result.earlier, result.completion) == (0, False, None)


def test_a_result_is_a_line() -> None:
    made = WriteResult.of_stats(
        STATS, path="t", operation="upsert", instant="7", seconds={"read": 1.25, "write": 0.5}
    )
    assert str(made) == (
        "upsert into t: committed as 7; rows 4 inserted, 5 updated, 7 deleted; "
        "files 1 new, 2 rewritten; 1.75 s"
    )
    assert made.total_seconds == 1.75


@pytest.mark.parametrize(
    ("more", "end"),
    [
        ({"rolled_back": ("1", "2")}, ", 2 failed writes rolled back"),
        ({"attempts_reused": 3}, ", 3 attempts reused, 0 files discarded"),
        ({"slots_redone": 2}, ", 2 slots redone"),
        ({"attempts_fenced": 2}, ", 2 attempts fenced"),
        (
            {"attempts_reused": 1, "attempts_fenced": 3, "slots_redone": 2},
            ", 1 attempts reused, 0 files discarded, 3 attempts fenced, 2 slots redone",
        ),
        ({"files_discarded": 4}, ", 0 attempts reused, 4 files discarded"),
        (
            {"rolled_back": ("1",), "attempts_reused": 1, "files_discarded": 1},
            ", 1 failed writes rolled back, 1 attempts reused, 1 files discarded",
        ),
    ],
)
def test_what_went_wrong_on_the_way_is_at_the_end_of_the_line(more: dict[str, object], end: str) -> None:
    assert str(WriteResult.of_stats([], path="t", operation="o", instant="7", **more)).endswith(
        f"0.00 s{end}"
    )


def test_a_write_in_mode_direct_says_so_in_its_line() -> None:
    shown = str(WriteResult.of_stats([], path="t", operation="o", instant="7", mode="direct"))
    assert shown.endswith("0.00 s, in mode direct")


def test_a_write_that_was_none_says_why() -> None:
    assert str(WriteResult(path="t", operation="insert")) == "insert into t: ignored, there is a table"
    again = WriteResult(path="t", operation="insert", instant="7", earlier=True)
    assert str(again) == "insert into t: an earlier run has committed it as 7"


def test_a_notebook_shows_a_table_in_which_nothing_of_the_users_is_markup() -> None:
    result = WriteResult.of_stats(
        STATS,
        path="<t>",
        operation="up&sert",
        instant="7",
        mode="rename",
        slots=5,
        attempts_reused=6,
        files_discarded=8,
        seconds={"re<ad": 1.25},
    )
    assert result._repr_html_() == (
        "<table><caption>up&amp;sert into &lt;t&gt;</caption>"
        "<tr><th>outcome</th><td>Committed</td></tr>"
        "<tr><th>instant</th><td>7</td></tr>"
        "<tr><th>rows inserted / updated / deleted</th><td>4 / 5 / 7</td></tr>"
        "<tr><th>files new / rewritten</th><td>1 / 2</td></tr>"
        "<tr><th>bytes</th><td>111</td></tr>"
        "<tr><th>mode</th><td>rename</td></tr>"
        "<tr><th>slots / attempts reused / files discarded</th><td>5 / 6 / 8</td></tr>"
        "<tr><th>seconds: re&lt;ad</th><td>1.250</td></tr></table>"
    )
    again = WriteResult.of_stats(STATS, path="t", operation="o", instant="7", slots_redone=2)._repr_html_()
    assert "<tr><th>slots redone</th><td>2</td></tr>" in again
    late = WriteResult.of_stats(STATS, path="t", operation="o", instant="7", attempts_fenced=3)._repr_html_()
    assert "<tr><th>attempts fenced</th><td>3</td></tr>" in late
    ignored = WriteResult(path="t", operation="insert")._repr_html_()
    assert "<tr><th>outcome</th><td>ignored, there is a table</td></tr>" in ignored


# -- what errors say -------------------------------------------------------------------------------------


def test_the_four_outcomes_are_texts_too_and_shown_as_such() -> None:
    assert [one.value for one in CommitOutcome] == ["Committed", "Conflicted", "Retryable", "Unknown"]
    assert CommitOutcome.UNKNOWN == "Unknown"
    assert f"{CommitOutcome.UNKNOWN} {CommitOutcome.UNKNOWN!s}" == "Unknown Unknown"


def all_errors() -> list[type[RobustWriteError]]:
    found, left = [], [RobustWriteError]
    while left:
        found.append(left.pop())
        left += found[-1].__subclasses__()
    return [kind for kind in found if kind.__module__.startswith("sparkrobust.")]


ALREADY_SAID = {
    ConflictError: CommitOutcome.CONFLICTED,
    OperationCancelled: CommitOutcome.RETRYABLE,
    CommitUnknownError: CommitOutcome.UNKNOWN,
}
"""What can only be raised when so much is known."""
TO_CHANGE_FIRST = (InvalidInputError, TableNotFoundError, UnsupportedTableError)
PASSING = (FencedError, LockError, HeartbeatLostError, UnavailableError)
assert StorageFullError in all_errors(), "those of the stores are among them"
every_error = pytest.mark.parametrize("kind", all_errors(), ids=lambda kind: kind.__name__)


@every_error
def test_an_error_says_of_itself_no_more_of_the_write_than_its_class_can_know(
    kind: type[RobustWriteError],
) -> None:
    assert kind("it failed").outcome is ALREADY_SAID.get(kind)
    for outcome in CommitOutcome:
        assert kind("it failed", outcome=outcome).outcome is outcome


@every_error
@pytest.mark.parametrize("begun", [True, False], ids=["begun", "not begun"])
def test_an_error_of_a_write_that_was_undone_says_so_and_a_refusal_that_trying_again_is_in_vain(
    kind: type[RobustWriteError], *, begun: bool
) -> None:
    error = kind("it failed")
    tell_undone(error, path="t", instant="7" if begun else None)
    wanted = ALREADY_SAID.get(kind)
    if wanted is None and not issubclass(kind, TO_CHANGE_FIRST) and (begun or issubclass(kind, PASSING)):
        wanted = CommitOutcome.RETRYABLE
    assert (error.outcome, error.path, error.instant) == (wanted, "t", "7" if begun else None)
    assert error.outcome is None or isinstance(error.outcome, CommitOutcome)
    copy = pickle.loads(pickle.dumps(error))
    assert type(copy) is kind and vars(copy) == vars(error) and str(copy) == str(error) == "it failed"


def test_what_an_error_says_already_of_the_write_stays() -> None:
    known = LockError("m", path="lock", instant="6", outcome=CommitOutcome.UNKNOWN)
    tell_undone(known, path="t", instant="7")
    assert (known.outcome, known.path, known.instant) == (CommitOutcome.UNKNOWN, "lock", "6")


@every_error
def test_an_error_of_a_write_that_is_durable_all_the_same_says_that_whatever_it_said_before(
    kind: type[RobustWriteError],
) -> None:
    error = kind("it failed", path="lock")
    tell_committed(error, path="t", instant="8")
    assert (error.outcome, error.path, error.instant) == (CommitOutcome.COMMITTED, "lock", "8")


@pytest.mark.parametrize("kind", [ValueError, OSError, KeyboardInterrupt, SystemExit])
def test_an_error_that_is_not_ours_gets_the_same_attributes_once_and_a_note(
    kind: type[BaseException],
) -> None:
    undone, committed, before = kind("x"), kind("x"), kind("x")
    tell_undone(undone, path="t", instant="7")
    tell_undone(undone, path="t", instant="8")
    tell_committed(committed, path="t")
    tell_undone(before, path="t")
    told = [{name: vars(one)[name] for name in ("outcome", "path", "instant")} for one in (undone, committed)]
    assert told == [
        {"outcome": CommitOutcome.RETRYABLE, "path": "t", "instant": "7"},
        {"outcome": CommitOutcome.COMMITTED, "path": "t", "instant": None},
    ]
    assert vars(before)["outcome"] is None
    if sys.version_info >= (3, 11):
        notes = [note for one in (undone, committed) for note in one.__notes__]
        assert notes == [
            "sparkrobust: the write 7 into t is undone: nothing of it is part of the table",
            "sparkrobust: the write into t is durable",
        ]
