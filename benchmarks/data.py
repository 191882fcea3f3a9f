"""The rows that every engine writes: made once from a seed, kept in the cache, and known to the last sum.

Ten columns, about 160 bytes a row in snappy parquet, most of which doesn't compress. Keys stand in random
order over the source files, and each source file holds rows of all partitions, so no engine profits from
an order that happens to be there.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.workload import Workload

Ints = npt.NDArray[np.int64]

SEED = 79
FORMAT = 1
BASE_TS = 1_700_000_000_000
SETS = ("base", "spread", "one_partition", "deleted")
SPARK_SCHEMA = (
    "id string, ts bigint, part string, price double, weight double, score double, "
    "qty bigint, stock bigint, name string, note string"
)


@dataclass(frozen=True, kw_only=True)
class Dataset:
    """Folders of parquet files, one for each set of rows, and the figures of what a table must hold."""

    workload: Workload
    folder: Path

    def rows_of(self, name: str) -> Path:
        """The folder of parquet files that holds one of ``SETS``."""
        return self.folder / name

    def ledger(self) -> Ledger:
        """The figures of each set, for the checks."""
        with np.load(self.folder / "ledger.npz") as arrays:
            sets = {name: RowFigures.of(name, arrays) for name in SETS}
        return Ledger(partitions=self.workload.partitions, sets=sets)


@dataclass(frozen=True, kw_only=True)
class RowFigures:
    """The numbers of one set of rows that a check needs."""

    keys: Ints
    ts: Ints
    qty: Ints

    @classmethod
    def of(cls, name: str, arrays: Mapping[str, Ints]) -> RowFigures:
        """The figures of the set ``name`` among the arrays of a ledger."""
        return cls(keys=arrays[f"{name}_keys"], ts=arrays[f"{name}_ts"], qty=arrays[f"{name}_qty"])


@dataclass(frozen=True, kw_only=True)
class Ledger:
    """What a table must hold after any sequence of steps."""

    partitions: int
    sets: Mapping[str, RowFigures]
    _known: dict[tuple[str, ...], dict[str, tuple[int, int, int]]] = field(default_factory=dict, repr=False)

    def after(self, *steps: str) -> dict[str, tuple[int, int, int]]:
        """Rows, sum of ``qty`` and sum of ``ts`` by partition once these sets were applied in order."""
        if steps not in self._known:
            self._known[steps] = self._apply(steps)
        return self._known[steps]

    def _apply(self, steps: tuple[str, ...]) -> dict[str, tuple[int, int, int]]:
        total = len(self.sets["base"].keys)
        ts, qty, alive = np.zeros(total, np.int64), np.zeros(total, np.int64), np.zeros(total, np.bool_)
        for step in steps:
            rows = self.sets[step]
            ts[rows.keys], qty[rows.keys], alive[rows.keys] = rows.ts, rows.qty, step != "deleted"
        keys = np.flatnonzero(alive)
        found = {}
        for number in range(self.partitions):
            mine = keys[keys % self.partitions == number]
            found[partition_of(number)] = (len(mine), int(qty[mine].sum()), int(ts[mine].sum()))
        return found


def partition_of(number: int) -> str:
    """The partition value that keys congruent to ``number`` have."""
    return f"region-{number:02d}"


def prepare(workload: Workload, cache: Path) -> Dataset:
    """Return the rows of ``workload``, making them if the cache doesn't hold them complete."""
    folder = cache / f"data-{workload.name}"
    dataset = Dataset(workload=workload, folder=folder)
    complete = folder / "complete.json"
    identity = {"format": FORMAT, "seed": SEED, **asdict(workload)}
    if complete.exists() and json.loads(complete.read_text()) == identity:
        return dataset
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    _make(dataset)
    complete.write_text(json.dumps(identity))
    return dataset


def _make(dataset: Dataset) -> None:
    workload, rng = dataset.workload, np.random.default_rng(SEED)
    everything = rng.permutation(workload.rows).astype(np.int64)
    in_first_partition = everything[everything % workload.partitions == 0]
    chosen = {
        "base": everything,
        "spread": rng.choice(everything, int(workload.rows * workload.spread_share), replace=False),
        "one_partition": rng.choice(
            in_first_partition, int(workload.rows * workload.one_partition_share), replace=False
        ),
        "deleted": rng.choice(everything, int(workload.rows * workload.delete_share), replace=False),
    }
    ledger: dict[str, Ints] = {}
    for version, (name, keys) in enumerate(chosen.items()):
        table = rows_for(keys, version=version, partitions=workload.partitions, rng=rng)
        _write(table, dataset.rows_of(name), files=workload.source_files if name == "base" else 2)
        ledger[f"{name}_keys"] = keys
        for column in ("ts", "qty"):
            ledger[f"{name}_{column}"] = table[column].to_numpy()
    np.savez(dataset.folder / "ledger.npz", allow_pickle=False, **ledger)


def rows_for(keys: Ints, *, version: int, partitions: int, rng: np.random.Generator) -> pa.Table:
    """Rows for these key numbers; a higher version has later ordering values and other contents."""
    count = len(keys)
    names = pa.array([partition_of(number) for number in range(partitions)])
    return pa.table(
        {
            "id": pa.array([f"key-{key:012d}" for key in keys.tolist()]),
            "ts": pa.array(rng.integers(0, 1 << 30, count) + BASE_TS + version * (1 << 31)),
            "part": names.take(pa.array(keys % partitions)),
            "price": pa.array(rng.random(count)),
            "weight": pa.array(rng.random(count)),
            "score": pa.array(rng.random(count)),
            "qty": pa.array(rng.integers(0, 1 << 40, count)),
            "stock": pa.array(rng.integers(0, 1 << 60, count)),
            "name": _random_text(count, rng),
            "note": _random_text(count, rng),
        }
    )


def _random_text(count: int, rng: np.random.Generator, width: int = 40) -> pa.Array:
    letters = rng.bytes(count * width // 2).hex().encode()
    offsets = np.arange(0, count * width + 1, width, dtype=np.int32)
    return pa.StringArray.from_buffers(count, pa.py_buffer(offsets), pa.py_buffer(letters))


def _write(table: pa.Table, folder: Path, *, files: int) -> None:
    folder.mkdir(parents=True)
    step = -(-table.num_rows // files)
    for number in range(files):
        part = table.slice(number * step, step)
        pq.write_table(part, folder / f"{number:03d}.parquet", compression="snappy")
