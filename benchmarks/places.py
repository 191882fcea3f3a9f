"""Where the benchmark keeps its data, jars and tables."""

from __future__ import annotations

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CACHE = Path(os.environ.get("SPARKROBUST_BENCH_CACHE", ROOT / ".cache" / "bench"))
JARS = Path(os.environ.get("SPARKROBUST_BENCH_JARS", ROOT / ".cache" / "bench-jars"))
VENV = ROOT / ".venv-bench"

PEER_JARS = {
    "hudi": ("org.apache.hudi:hudi-spark3.5-bundle_2.12:1.1.1",),
    "delta": ("io.delta:delta-spark_2.12:3.3.3", "io.delta:delta-storage:3.3.3"),
    "iceberg": ("org.apache.iceberg:iceberg-spark-runtime-3.5_2.12:1.11.0",),
}


def jar_file(coordinates: str) -> Path:
    """The file into which Maven copies an artifact given as ``group:artifact:version``."""
    _, artifact, version = coordinates.split(":")
    return JARS / f"{artifact}-{version}.jar"
