"""The engines that are compared, each behind the same few operations."""

from __future__ import annotations

from pathlib import Path

from benchmarks.engines.base import Engine
from benchmarks.engines.delta import Delta
from benchmarks.engines.hudi import Hudi
from benchmarks.engines.iceberg import Iceberg
from benchmarks.engines.ours import SparkRobust
from benchmarks.engines.plain import PlainParquet

ENGINES: dict[str, type[Engine]] = {
    engine.name: engine for engine in (PlainParquet, Hudi, Delta, Iceberg, SparkRobust)
}


def make(name: str, tables: Path) -> Engine:
    """The engine of this name, with its tables under ``tables``."""
    return ENGINES[name](tables / name)
