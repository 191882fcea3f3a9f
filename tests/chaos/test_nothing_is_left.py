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
def test_a_tester_that_is_stopped_leaves_no_process(
    tmp_path: Path, where: str, number: signal.Signals
) -> None:
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
    tester.send_signal(number)
    tester.wait(timeout=60)
    tester.stdout.close()
    wait_for(lambda: all(map(is_gone, started)), "the end of all that was started", 30)
    mine = str(tmp_path / "cluster")
    wait_for(lambda: not naming(mine), "the end of all that knows of the cluster's folder", 30)


def naming(folder: str) -> list[int]:
    """Processes whose command line names the folder."""
    found = (int(name) for name in os.listdir("/proc") if name.isdigit())
    return [pid for pid in found if any(folder in argument for argument in arguments(pid))]
