"""However a tester ends, nothing that it has started outlives it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from fault_injection.spark.processes import arguments, is_gone, wait_for
from tests.chaos.conftest import by_turns
from tests.chaos.test_tasks import needs_namespaces

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    ("where", "number"),
    by_turns(
        [
            pytest.param("isolated", signal.SIGINT, marks=needs_namespaces),
            pytest.param("isolated", signal.SIGKILL, marks=needs_namespaces),
            ("plain", signal.SIGKILL),
        ]
    ),
)
def test_a_tester_that_is_stopped_leaves_no_process_namespace_or_mount(
    tmp_path: Path, where: str, number: signal.Signals
) -> None:
    mounts = Path("/proc/self/mountinfo").read_text()
    with (tmp_path / "log").open("w") as log:
        tester = subprocess.Popen(
            [sys.executable, "-m", "tests.chaos.abandoned", str(tmp_path / "cluster"), where],
            stdout=subprocess.PIPE, stderr=log, text=True, cwd=ROOT, start_new_session=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            # A shell that runs tests in the background has them ignore Ctrl-C.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
        )  # fmt: skip
    assert tester.stdout is not None
    said = tester.stdout.readline()
    assert said, (tmp_path / "log").read_text()[-3000:]
    started = json.loads(said)
    assert len(started) >= 7 and not any(map(is_gone, started))
    made = {space for pid in started for space in spaces(pid)} - set(spaces(os.getpid()))
    assert len(made) >= (4 if where == "isolated" else 0)
    tester.send_signal(number)
    tester.wait(timeout=60)
    tester.stdout.close()
    wait_for(lambda: all(map(is_gone, started)), "the end of all that was started", 30)
    mine = str(tmp_path / "cluster")
    wait_for(lambda: not naming(mine), "the end of all that knows of the cluster's folder", 30)
    wait_for(lambda: made.isdisjoint(in_use()), "the end of all namespaces that were made", 30)
    assert Path("/proc/self/mountinfo").read_text() == mounts


def naming(folder: str) -> list[int]:
    """Processes whose command line names the folder."""
    found = (int(name) for name in os.listdir("/proc") if name.isdigit())
    return [pid for pid in found if any(folder in argument for argument in arguments(pid))]


def spaces(pid: int) -> list[str]:
    """The namespaces that a process is in."""
    try:
        return [os.readlink(f"/proc/{pid}/ns/{kind}") for kind in ("mnt", "net", "pid")]
    except OSError:
        return []


def in_use() -> set[str]:
    """The namespaces that anybody is in."""
    return {space for name in os.listdir("/proc") if name.isdigit() for space in spaces(int(name))}
