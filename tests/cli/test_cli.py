"""The command: what it shows of a table under work, what it ends, and how it says no."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from sparkrobust import probe
from sparkrobust.cli import app
from sparkrobust.coordinator.create import make_table
from sparkrobust.coordinator.properties import update_properties
from sparkrobust.coordinator.rollback import roll_back_failed_writes
from sparkrobust.coordinator.table import HudiTable
from sparkrobust.core.names import HEARTBEATS, heartbeat_file
from sparkrobust.errors import (
    InvalidInputError,
    InvalidOptionError,
    LockError,
    TableNotFoundError,
    UnsupportedTableError,
)
from sparkrobust.options import parse
from sparkrobust.probe import Point
from sparkrobust.storage.local import LocalStorage
from sparkrobust.storage.locks import FileSystemLock
from sparkrobust.storage.storage_lock import StorageLock
from sparkrobust.world import Clock, Ids
from tests.coordinator.writers import clustering, writer
from tests.coordinator.writes import Stop, begun, commit, leftovers, stage, stopped
from tests.moments import at

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def table(tmp_path: Path) -> HudiTable:
    options = {
        "hoodie.table.name": "t",
        "hoodie.datasource.write.recordkey.field": "id",
        "hoodie.datasource.write.partitionpath.field": "p",
    }
    made, _ = make_table(LocalStorage(str(tmp_path / "t")), parse(options), Clock(), Ids())
    return made


def run(*arguments: str, answer: str | None = None) -> Result:
    return CliRunner().invoke(app, list(arguments), input=answer)


def asked(command: str, table: HudiTable, *more: str) -> Any:
    """What the command answers a program."""
    done = run(command, table.storage.url, *more, "--output", "json")
    assert done.exit_code == 0, (done.output, done.exception)
    return json.loads(done.stdout)


def test_the_timeline_shows_what_each_write_did_and_which_one_is_under_way(table: HudiTable) -> None:
    first, second = commit(table), begun(table)
    shown = asked("timeline", table)
    assert [(one["instant"], one["action"], one["state"]) for one in shown] == [
        (first.time, "commit", "completed"),
        (second.time, "commit", "inflight"),
    ]
    assert first.done is not None and shown[0]["completion"] == first.done.completion
    assert (shown[0]["operation"], shown[0]["inserted"], shown[0]["partitions"]) == ("insert", 1, 1)
    text = run("timeline", table.storage.url).stdout
    assert first.time in text and "inflight" in text and "files created" in text


def test_an_instant_is_shown_with_its_files_or_with_how_far_it_is(table: HudiTable) -> None:
    done = commit(table)
    shown = asked("show", table, done.time)
    (file,) = shown["files"]
    assert file["path"].startswith("p1/") and file["rows"] == 1
    assert shown["extra_metadata"] and "schema" not in shown["extra_metadata"]
    writing = begun(table)
    stage(table, writing)
    shown = asked("show", table, writing.time)
    (write,) = shown["writes"]
    assert (write["begin_markers"], write["slots"], write["slots_done"], write["decision"]) == (1, 1, 1, None)
    assert write["tasks_may_write"] is True and shown["heartbeat_seconds"] < 60
    assert "p1/" in run("show", table.storage.url, done.time).stdout


def test_markers_tell_the_writes_that_are_decided_from_those_that_are_not(table: HudiTable) -> None:
    assert asked("markers", table) == []
    decided = stopped(table, "decided")
    (shown,) = asked("markers", table)
    assert (shown["instant"], shown["decision"], shown["tasks_may_write"]) == (decided.time, "COMMIT", False)


def test_heartbeats_say_who_is_alive_by_the_time_that_the_options_give(table: HudiTable) -> None:
    writing = begun(table)
    (shown,) = asked("heartbeats", table)
    assert (shown["instant"], shown["alive"]) == (writing.time, True)
    old = table.storage.stat(f".hoodie/.heartbeat/{writing.time}")
    assert old is not None
    then = old.modified_ms / 1000 - 10
    os.utime(
        Path(table.storage.url.removeprefix("file:")) / ".hoodie/.heartbeat" / writing.time, (then, then)
    )
    impatient = ["-o", "hoodie.client.heartbeat.interval_in_ms=1000"]
    (shown,) = asked("heartbeats", table, *impatient)
    assert shown["alive"] is False and shown["seconds"] >= 10


def test_locks_say_who_has_them(table: HudiTable, tmp_path: Path) -> None:
    assert [one["holder"] for one in asked("locks", table)] == [None, None]
    file = FileSystemLock(table.storage, ".hoodie/lock").acquire("a writer", seconds=0)
    record = StorageLock(table.storage).acquire("another", seconds=0)
    assert [one["holder"] for one in asked("locks", table)] == ["a writer", "another"]
    elsewhere = [
        "-o", "hoodie.write.lock.provider=FileSystemBasedLockProvider",
        "-o", f"hoodie.write.lock.filesystem.path={tmp_path / 'locks'}",
    ]  # fmt: skip
    assert [one["holder"] for one in asked("locks", table, *elsewhere)] == ["a writer", "another", None]
    assert not (tmp_path / "locks").exists(), "who only looks makes nothing"
    table.storage.put(".hoodie/.locks/table_lock.json", b"torn")
    shown = asked("locks", table)
    assert "expected" in shown[1]["problem"] and shown[0]["holder"] == "a writer"
    assert file.is_held() and record is not None


def test_a_lock_is_as_old_as_it_is_by_the_validity_that_the_options_give(table: HudiTable) -> None:
    StorageLock(table.storage, validity_seconds=10, renew_seconds=1).acquire("a writer", seconds=0)
    options = [
        "-o", "hoodie.write.lock.provider=StorageBasedLockProvider",
        "-o", "hoodie.write.lock.storage.validity.timeout.secs=10",
        "-o", "hoodie.write.lock.storage.renew.interval.secs=1",
    ]  # fmt: skip
    shown = asked("locks", table, *options)
    assert [one["holder"] for one in shown] == [None, "a writer"] and shown[1]["seconds"] < 10


def test_recover_ends_dead_writes_and_leaves_living_ones_alone_unless_it_is_told(table: HudiTable) -> None:
    writing = begun(table)
    stage(table, writing)
    assert asked("recover", table) == [{"instant": writing.time, "fate": "alive"}]
    assert asked("recover", table, "--even-alive", "--yes") == [
        {"instant": writing.time, "fate": "committed"}
    ]
    assert leftovers(table.storage) == []


def test_rollback_asks_first_and_does_nothing_if_it_is_told_no(table: HudiTable) -> None:
    failed = stopped(table, "staged")
    done = run("rollback", table.storage.url, answer="n\n")
    assert done.exit_code == 1 and failed.time in done.stderr
    table.reload()
    assert [instant.time for instant in table.timeline.pending] == [failed.time]
    done = run("rollback", table.storage.url, answer="y\n")
    assert done.exit_code == 0 and f"{failed.time}  rolled back" in done.stdout
    assert leftovers(table.storage) == []
    assert run("rollback", table.storage.url).stdout == "none\n", "there is nothing to ask about"


def of_hudi(table: HudiTable, time: str = "20990101000000000") -> str:
    """A write of Hudi's single writer, which has no heartbeat."""
    table.storage.put_if_absent(f".hoodie/timeline/{time}.commit.requested", b"")
    table.storage.put_if_absent(f".hoodie/timeline/{time}.inflight", b"")
    return time


def test_recover_leaves_a_write_of_hudis_alone_that_has_no_heartbeat_and_says_why(table: HudiTable) -> None:
    time = of_hudi(table)
    done = run("recover", table.storage.url)
    assert f"{time}  unknown" in done.stdout and "--even-alive" in done.stderr
    table.storage.make_folder(HEARTBEATS)
    table.storage.put(heartbeat_file(time), b"")
    assert asked("recover", table) == [{"instant": time, "fate": "alive"}]
    table.storage.delete(heartbeat_file(time))
    assert asked("recover", table, "--even-alive", "--yes") == [{"instant": time, "fate": "rolled back"}]


def test_a_dead_write_of_hudis_is_rolled_back_once_its_heartbeat_has_expired(table: HudiTable) -> None:
    time = of_hudi(table)
    table.storage.make_folder(HEARTBEATS)
    table.storage.put(heartbeat_file(time), b"")
    os.utime(Path(table.storage.url.removeprefix("file:")) / heartbeat_file(time), (1, 1))
    assert asked("recover", table) == [{"instant": time, "fate": "rolled back"}]


def test_recover_finishes_the_rollback_that_somebody_began_of_a_write_of_hudis(table: HudiTable) -> None:
    time = of_hudi(table)

    def dies() -> None:
        raise Stop

    table.reload()
    with probe.listening(at(Point.ROLLBACK_PLANNED, dies)), pytest.raises(Stop):
        roll_back_failed_writes(table)
    assert asked("recover", table) == [{"instant": time, "fate": "rolled back"}]


@pytest.mark.parametrize("command", ["recover", "rollback"])
@pytest.mark.parametrize(
    ("properties", "why"),
    [
        ({"hoodie.table.metadata.partitions": "files"}, "metadata table"),
        ({"hoodie.table.cdc.enabled": "true"}, "change log"),
    ],
)
def test_what_a_write_would_refuse_is_neither_recovered_nor_rolled_back(
    table: HudiTable, command: str, properties: dict[str, str], why: str
) -> None:
    failed = stopped(table, "staged")
    update_properties(table.storage, lambda values: values | properties, table.clock)
    done = run(command, table.storage.url, "--yes")
    assert isinstance(done.exception, UnsupportedTableError) and why in str(done.exception)
    table.reload()
    assert [instant.time for instant in table.timeline.pending] == [failed.time]


def test_a_write_that_is_all_there_is_recovered_under_its_own_lock_only(table: HudiTable) -> None:
    failed = stopped(writer(table), "staged")
    assert isinstance(run("recover", table.storage.url).exception, LockError)
    lock = ("-o", "hoodie.write.lock.provider=FileSystemBasedLockProvider")
    assert asked("recover", table, *lock) == [{"instant": failed.time, "fate": "committed"}]


def test_rollback_asks_about_those_writes_that_it_rolls_back_and_about_nothing_else(table: HudiTable) -> None:
    plan = clustering(table)
    clean = ".hoodie/timeline/20990101000000001.clean.requested"
    table.storage.put_if_absent(clean, b"")
    assert run("rollback", table.storage.url).stdout == "none\n"
    failed = stopped(table, "staged")
    done = run("rollback", table.storage.url, answer="y\n")
    assert failed.time in done.stderr and plan.time not in done.stderr and "clean" not in done.stderr
    assert plan.time not in done.stdout and table.storage.stat(clean) is not None


def test_rollback_ends_living_writes_too_whatever_the_options_say_of_other_writers(table: HudiTable) -> None:
    several = [
        "-o", "hoodie.write.concurrency.mode=optimistic_concurrency_control",
        "-o", "hoodie.write.lock.provider=FileSystemBasedLockProvider",
    ]  # fmt: skip
    first, second = begun(writer(table)), begun(table)
    found = asked("rollback", table, "--yes", *several)
    assert found == [{"instant": one.time, "fate": "rolled back"} for one in (first, second)]
    table.reload()
    assert not table.timeline.pending


def test_rollback_tells_which_write_was_decided_and_so_is_committed(table: HudiTable) -> None:
    decided, failed = stopped(table, "decided"), stopped(table, "begun")
    assert asked("rollback", table, "--yes") == [
        {"instant": decided.time, "fate": "committed"},
        {"instant": failed.time, "fate": "rolled back"},
    ]


@pytest.mark.parametrize("partition", ["p[/b]", "[b]p[/b]", "x=[de]", "[/]"])
def test_names_are_shown_as_they_are(table: HudiTable, partition: str) -> None:
    done = begun(table)
    stage(table, done, partition)
    done.commit(done.finalize(1))
    shown = run("show", table.storage.url, done.time)
    assert shown.exit_code == 0 and f"{partition}/" in shown.stdout


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (["timeline", "/nowhere/at/all"], TableNotFoundError),
        (["show", "TABLE", "20200101000000000"], InvalidInputError),
        (["timeline", "TABLE", "-o", "nothing"], InvalidOptionError),
        (["timeline", "TABLE", "-o", "hoodie.write.lock.provder=x"], InvalidOptionError),
    ],
)
def test_what_can_not_be_done_is_an_error_of_ours(
    table: HudiTable, arguments: list[str], error: type[Exception]
) -> None:
    done = run(*(table.storage.url if text == "TABLE" else text for text in arguments))
    assert isinstance(done.exception, error)


def test_an_error_is_one_sentence_on_standard_error_and_a_status() -> None:
    command = [sys.executable, "-m", "sparkrobust", "timeline", "/nowhere/at/all"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=120)
    assert (done.returncode, done.stdout) == (1, "")
    assert (
        done.stderr.startswith("TableNotFoundError: there is no Hudi table at")
        and done.stderr.count("\n") == 1
    )


def test_without_the_packages_for_it_the_command_says_which_ones() -> None:
    program = "import sys; sys.modules['typer'] = None; from sparkrobust.__main__ import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, cwd=ROOT, timeout=120
    )
    assert done.returncode == 1 and "sparkrobust[cli]" in done.stderr


def test_help_names_every_command() -> None:
    text = run("--help").stdout
    for name in ("timeline", "show", "locks", "heartbeats", "markers", "rollback", "recover"):
        assert name in text
