"""Run a command of this virtual environment, with the Java that its Spark runs on and nobody else's settings.

.venv35/bin/python -m tools.in_venv pytest tests/spark
"""

from __future__ import annotations

import os
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from tools.java_home import choose

ROOT = Path(__file__).resolve().parent.parent


def environment(python: str, spark: str | None, given: dict[str, str]) -> dict[str, str]:
    """The environment of the command."""
    wanted = {name: value for name, value in given.items() if not name.startswith(("SPARK_", "PYSPARK_"))}
    folder = str(Path(python).parent)
    wanted["PATH"] = os.pathsep.join([folder, given.get("PATH", os.defpath)])
    wanted["PYTHONPATH"] = str(ROOT)
    wanted["PYSPARK_PYTHON"] = wanted["PYSPARK_DRIVER_PYTHON"] = python
    wanted["SPARK_LOCAL_IP"] = "127.0.0.1"
    if spark is not None:
        wanted["JAVA_HOME"] = choose(spark, given, ROOT / ".cache" / "java", python)
    return wanted


def main(command: list[str]) -> None:
    try:
        spark = version("pyspark")
    except PackageNotFoundError:
        spark = None
    wanted = environment(sys.executable, spark, dict(os.environ))
    beside = Path(sys.executable).parent / command[0]
    os.execvpe(str(beside) if beside.exists() else command[0], command, wanted)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        raise SystemExit("which command?")
    main(sys.argv[1:])
