"""Processes are stopped by their ids, which soon are other processes'."""

from __future__ import annotations

import signal
import subprocess

from fault_injection.spark.places import end_sessions
from fault_injection.spark.processes import Known, children, descendants


def test_nobody_is_killed_who_has_only_the_id_of_a_process_that_has_ended() -> None:
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as other:
        ended = Known(other.pid, "0")
        ended.kill()
        end_sessions([ended])
        assert ended.is_gone and other.poll() is None
        known = Known.now(other.pid)
        assert not known.is_gone
        end_sessions([known])
        assert other.wait(30) == -signal.SIGKILL and known.is_gone


def test_a_process_that_ends_while_it_is_looked_at_has_no_children() -> None:
    looks = 0
    with subprocess.Popen(["sh", "-c", "while :; do true & true & wait; done"]) as shell:
        while looks < 500:
            # Of those that are there some have ended when they are asked themselves.
            looks += len([children(child) for child in descendants(shell.pid)])
        shell.kill()
    assert children(shell.pid) == []


def test_what_a_process_has_started_ends_with_it() -> None:
    command = "sleep 60 & echo $!; wait"
    with subprocess.Popen(["sh", "-c", command], stdout=subprocess.PIPE) as shell:
        assert shell.stdout is not None
        started = Known.now(int(shell.stdout.readline()))
        Known.now(shell.pid).kill()
        assert shell.wait(30) == -signal.SIGKILL and started.is_gone
