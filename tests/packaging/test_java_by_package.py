"""A machine without Java gets one from the package registry, and Spark runs on it."""

from __future__ import annotations

import sys
from pathlib import Path

import pyspark

from tests.packaging.conftest import run
from tools.docs import ROOT
from tools.java_home import NEEDS, line_of


def test_without_java_on_the_machine_a_packaged_one_runs_a_job_that_sends_rows_through_arrow(
    without_java: dict[str, str],
) -> None:
    home = run([sys.executable, "-m", "tools.in_venv", "sh", "-c", "echo $JAVA_HOME"], without_java).strip()
    package = NEEDS[line_of(pyspark.__version__)].package.replace("==", "-")
    assert Path(home) == ROOT / ".cache" / "java" / package / "home"
    said = run(
        [sys.executable, "-m", "tools.in_venv", "python", "tests/packaging/arrow_job.py"], without_java
    )
    assert "sum 9900" in said
