"""The floor: two plain Python processes that read all files and write them again with pyarrow.

No engine that rewrites every file on two cores can be faster than about this; it merges nothing and keeps no
order of steps. The processes stay alive between the rounds, as the engines do.
"""

from __future__ import annotations

import multiprocessing
import shutil
import time
from multiprocessing.synchronize import Barrier
from pathlib import Path
from types import TracebackType

import pyarrow.parquet as pq

from benchmarks.processes import processor_seconds

PROCESSES = 2


class Floor:
    """Two processes that copy parquet files through Arrow."""

    def __init__(self) -> None:
        context = multiprocessing.get_context("spawn")
        both_stand = context.Barrier(PROCESSES + 1)
        self._pool = context.Pool(PROCESSES, _stand, (both_stand,))
        self._pids = [child.pid for child in multiprocessing.active_children() if child.pid]
        both_stand.wait()  # so that no process starts while a clock runs

    def __enter__(self) -> Floor:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pool.close()
        self._pool.join()

    def rewrite(self, files: list[Path], into: Path) -> tuple[dict[str, float], int]:
        """Rewrite ``files``; return the seconds, of the clock and of the processor, and the rows copied."""
        shutil.rmtree(into, ignore_errors=True)
        into.mkdir(parents=True)
        copies = [(file, into / f"{number:05d}.parquet") for number, file in enumerate(files)]
        before, started = self._processor_seconds(), time.perf_counter()
        rows = sum(self._pool.starmap(_rewrite, copies, chunksize=1))
        seconds = time.perf_counter() - started
        return {"seconds": seconds, "processor": self._processor_seconds() - before}, rows

    def _processor_seconds(self) -> float:
        return sum(processor_seconds(pid) for pid in self._pids)


def _stand(both_stand: Barrier) -> None:
    both_stand.wait()


def _rewrite(source: Path, target: Path) -> int:
    # ParquetFile, as read_table would add the columns that it finds in the folders' names
    table = pq.ParquetFile(source).read(use_threads=False)
    pq.write_table(table, target, compression="snappy")
    return int(table.num_rows)
