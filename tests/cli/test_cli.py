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

from sparkrobust.cli import app
from sparkrobust.coordinator.create import make_table
from sparkrobust.coordinator.table import HudiTable
from sparkrobust.errors import InvalidInputError, InvalidOptionError, TableNotFoundError
from sparkrobust.options import parse
from sparkrobust.storage.local import LocalStorage
from sparkrobust.storage.locks import FileSystemLock
from sparkrobust.storage.storage_lock import StorageLock
from sparkrobust.world import Clock, Ids
from tests.coordinator.writes import begun, commit, leftovers, stage, stopped

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
    table.storage.put(".hoodie/.locks/table_lock.json", b"torn")
    shown = asked("locks", table)
    assert "expected" in shown[1]["problem"] and shown[0]["holder"] == "a writer"
    assert file.is_held() and record is not None


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
