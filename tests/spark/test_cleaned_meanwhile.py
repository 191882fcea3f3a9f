"""While Spark makes the rows of a write, others commit; older files are cleaned away, commits archived."""

from __future__ import annotations

from collections.abc import Callable
from functools import partialmethod

import pytest

import sparkrobust as sr
from fault_injection.histories import Archiver
from sparkrobust import probe
from sparkrobust.coordinator.table import HudiTable
from sparkrobust.errors import ConflictError, FileGoneError
from sparkrobust.probe import Point
from sparkrobust.spark.gathering import Gathered
from sparkrobust.storage.local import LocalStorage
from tests.moments import at
from tests.spark.tables import Subject
from tests.spark.test_many_writers import RETRIES, WAYS, by_way, is_whole, subject

__all__ = ["subject"]


def archive_all_but_the_newest(subject: Subject) -> None:
    storage = LocalStorage(str(subject.path))
    Archiver(storage).archive(*HudiTable.open(storage).timeline.completed_writes[:-1])


def other_writes_and_cleans(subject: Subject) -> None:
    """Another writer has the rows of a region in a newer file, and the older one is gone."""
    (old,) = (path for path in subject.files() if path.startswith("eu/"))
    subject.write("upsert", [(0, "other", 5, "eu")])
    (subject.path / old).unlink()


def while_gathering(monkeypatch: pytest.MonkeyPatch, action: Callable[[], object]) -> None:
    """It happens once, when the rows are there and before anybody has looked for files."""
    todo, real = [action], Gathered.rows

    def rows(gathered: Gathered) -> object:
        if todo:
            todo.pop()()
        return real(gathered)

    monkeypatch.setattr(Gathered, "rows", rows)


LATE = [(0, "late", 9, "eu"), (1, "late", 9, "us")]
WHOLE = {0: "late", 1: "late", 2: "first", 3: "first"}


@pytest.mark.parametrize(
    ("way", "archived"), [*((way, True) for way in WAYS), ("the driver looks the keys up", False)]
)
def test_a_row_is_not_doubled_whose_only_known_file_was_cleaned_while_the_write_was_planned(
    subject: Subject, monkeypatch: pytest.MonkeyPatch, way: str, archived: bool
) -> None:
    options = by_way(way, monkeypatch)
    if archived:
        subject.write("upsert", [(1, "second", 2, "us")])
        archive_all_but_the_newest(subject)
    while_gathering(monkeypatch, lambda: other_writes_and_cleans(subject))
    with pytest.raises(ConflictError, match="eu/") as refused:
        subject.write("upsert", LATE, options)
    assert refused.value.outcome == "Conflicted" and "a retry helps" in str(refused.value)
    assert subject.names()[0] == "other" and is_whole(subject)
    while_gathering(monkeypatch, lambda: other_writes_and_cleans(subject))
    assert subject.write("upsert", LATE, {**options, RETRIES: "1"}).retries == 1
    assert subject.names() == WHOLE and is_whole(subject)


@pytest.mark.parametrize("way", ["the driver writes", "the driver leaves the rows to the tasks"])
def test_a_write_whose_tasks_come_after_the_cleaner_tries_again_as_after_any_conflict(
    subject: Subject, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    options = by_way(way, monkeypatch)

    def write(retries: str) -> sr.WriteResult:
        with probe.listening(at(Point.INFLIGHT, lambda: other_writes_and_cleans(subject))):
            return subject.write("upsert", LATE, {**options, RETRIES: retries})

    with pytest.raises(ConflictError, match="a cleaner was faster"):
        write("0")
    assert subject.names()[0] == "other" and is_whole(subject)
    assert write("1").retries == 1
    assert subject.names() == WHOLE and is_whole(subject)


def test_a_file_that_is_gone_though_nobody_has_written_is_no_conflict(subject: Subject) -> None:
    (old,) = (path for path in subject.files() if path.startswith("eu/"))
    (subject.path / old).unlink()
    with pytest.raises(FileGoneError, match="eu/"):
        subject.write("upsert", LATE, {RETRIES: "1"})


# -- what is archived ----------------------------------------------------------------------------------------


def nobody_has_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in a process that has just begun."""
    monkeypatch.setattr("sparkrobust.coordinator.table._commits.get", lambda place: None)


def others_write_and_archive(subject: Subject) -> None:
    """All that the table had told when somebody last looked is in the history now."""
    subject.write("upsert", [(0, "other", 5, "eu")])
    archive_all_but_the_newest(subject)


# Whoever looks the keys up, it is the driver that reads the commits.
@pytest.mark.parametrize("way", ["the driver writes", "the driver looks the keys up"])
def test_a_write_whose_commits_were_archived_while_it_was_planned_tries_again_as_after_any_conflict(
    subject: Subject, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    options = by_way(way, monkeypatch)
    nobody_has_read(monkeypatch)
    while_gathering(monkeypatch, lambda: others_write_and_archive(subject))
    with pytest.raises(ConflictError, match="archived") as refused:
        subject.write("upsert", LATE, options)
    assert refused.value.outcome == "Conflicted" and "a retry helps" in str(refused.value)
    assert subject.names()[0] == "other" and is_whole(subject)
    while_gathering(monkeypatch, lambda: others_write_and_archive(subject))
    assert subject.write("upsert", LATE, {**options, RETRIES: "1"}).retries == 1
    assert subject.names() == WHOLE and is_whole(subject)


@pytest.mark.parametrize("meanwhile", [others_write_and_archive, other_writes_and_cleans])
@pytest.mark.parametrize("times", [1, 2])
def test_who_reads_while_commits_are_archived_or_files_cleaned_looks_again(
    subject: Subject, monkeypatch: pytest.MonkeyPatch, meanwhile: Callable[[Subject], object], times: int
) -> None:
    todo: list[Callable[[Subject], object]] = []

    def before(table: HudiTable, real: Callable[..., object], *given: object) -> object:
        if todo:
            action, left = todo.pop(), todo.copy()
            todo.clear()  # what others do is not disturbed
            action(subject)
            todo.extend(left)
        return real(table, *given)

    nobody_has_read(monkeypatch)
    for real in (HudiTable.listing, HudiTable.schema):
        monkeypatch.setattr(HudiTable, real.__name__, partialmethod(before, real))
    opened, load = sr.Table(str(subject.path)), sr.read(subject.spark).load
    looks: list[Callable[[], object]] = [
        lambda: sorted(map(str, load(str(subject.path)).collect())),
        lambda: sorted(base.path for base in opened.files()),
        lambda: opened.schema.names,
    ]
    for look in looks:
        todo += [meanwhile] * times
        assert (look(), todo) == (look(), [])
