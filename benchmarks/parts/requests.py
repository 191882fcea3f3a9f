"""The requests that a write on S3 takes, counted by a proxy before a real server.

Each write is done twice, with few files and with more: by kind of request, what the larger one takes more
is what a file costs, and the rest is what a write costs.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.conductor import Bench, EngineError, WrongResultError
from benchmarks.parts.one_row import ONE_PARTITION, OURS
from fault_injection.proxy import Proxy, Request, proxy_before
from tests.servers import S3Server, Unavailable, versitygw

BULK = "bulk insert of new files, 8 to a task"
UPSERT = "upsert that rewrites files, one to a task"
SMALL = "small requests for each data file"
OWN = "upload of a data file"
READS = "reading of a data file"

_BUCKET = "bench"
_PARTITIONS = 8
_FEW_TASKS, _MANY_TASKS = 2, 6
_FEW_FILES, _MANY_FILES = 3, 7
"""As many slots have a task each."""
_ROWS_OF_A_FILE = 50

_KINDS = (
    (r"\.hoodie/\.temp/.+", "begin marker"),
    (r"\.hoodie/\.robust/[^/]+/cm/.+", "completion marker"),
    (r"\.hoodie/\.robust/[^/]+/rows/.+", "rows left for a task"),
    (r"\.hoodie/\.robust/[^/]+/([a-z]+)", r"\1"),
    (r"\.hoodie/timeline/.+", "timeline"),
    (r"\.hoodie/hoodie\.properties.*", "properties"),
    (r"(?:.*/)?\.hoodie_partition_metadata", "partition file"),
    (r".+\.parquet", "data file"),
    (r".*", "other"),
)


def run(bench: Bench) -> None:
    """Count a bulk insert and an upsert."""
    with TemporaryDirectory() as folder:
        try:
            with versitygw(Path(folder)) as server, proxy_before(server.endpoint) as proxy:
                (server.folder / _BUCKET).mkdir()
                _count(bench, server, proxy)
        except Unavailable as error:
            raise EngineError(str(error)) from error


def _count(bench: Bench, server: S3Server, proxy: Proxy) -> None:
    tables = _Tables(bench, replace(server, endpoint=proxy.endpoint), server.folder / _BUCKET)
    found, files = {}, {}
    for tasks in (_FEW_TASKS, _MANY_TASKS):
        name, count = f"bulk_{tasks}", tasks * _PARTITIONS
        part = f"format_string('region-%02d', id % {_PARTITIONS})"
        tables.write("bulk_insert", name, count, part, tasks)  # makes the table
        proxy.take()
        tables.write("bulk_insert", name, count, part, tasks, version=1)
        found[tasks], files[tasks] = Counter(map(kind_of, proxy.take())), count
        tables.check(name, 2 * count)
    _tell(bench, BULK, found, files)
    found, files = {}, {}
    for count in (_FEW_FILES, _MANY_FILES):
        name = f"upsert_{count}"
        tables.write("bulk_insert", name, count, ONE_PARTITION, count)
        proxy.take()
        tables.write("upsert", name, count, ONE_PARTITION, count, version=1)
        found[count], files[count] = Counter(map(kind_of, proxy.take())), count
        tables.check(name, count)
    _tell(bench, UPSERT, found, files)


class _Tables:
    """Tables in the bucket, which is a folder of the server's too."""

    def __init__(self, bench: Bench, server: S3Server, folder: Path) -> None:
        self._worker, self._folder = bench.worker(OURS), folder
        # The driver writes nothing itself, however little there is.
        self._options = {**server.options(), "hoodie.write.robust.driver.max.bytes": "0"}

    def write(
        self, operation: str, name: str, files: int, part: str, tasks: int, *, version: int = 0
    ) -> dict[str, Any]:
        rows = {
            "keys": [0, files * _ROWS_OF_A_FILE],
            "part": part,
            "tasks": tasks,
            "version": version,
        }
        table = f"s3a://{_BUCKET}/{name}"
        return self._worker.ask(operation, table=table, rows=rows, options=self._options)

    def check(self, name: str, files: int) -> None:
        """The table has the rows of so many files, seen past the server."""
        rows = self._worker.ask("all_rows", table=f"file://{self._folder / name}")["rows"]
        if rows != files * _ROWS_OF_A_FILE:
            raise WrongResultError(f"{name} holds {rows} rows and must hold {files * _ROWS_OF_A_FILE}")


def kind_of(request: Request) -> str:
    """What a request is for."""
    key, asked = request.key.partition("/")[2], request.parameters
    if "list-type" in asked:
        key = asked.get("prefix", "").partition("/")[2]
        return f"LIST {'metadata' if key.startswith('.hoodie') else 'a folder'}"
    if request.method == "POST" and "delete" in asked:
        return "DELETE many"
    kind = next(
        match.expand(name) for pattern, name in _KINDS if (match := re.fullmatch(pattern, key)) is not None
    )
    if "uploads" in asked or "uploadId" in asked:
        if kind != "data file":
            return f"upload of the {kind}"
        return "ABORT of an upload" if request.method == "DELETE" else OWN
    if kind == "data file" and request.method == "GET":
        return READS
    return f"{request.method} {kind}"


def _tell(bench: Bench, write: str, found: dict[int, Counter[str]], files: dict[int, int]) -> None:
    few, many = sorted(files)
    told = bench.requests.setdefault(write, {})
    small = fixed = 0.0
    for kind in sorted(found[few] | found[many]):
        per_file = (found[many][kind] - found[few][kind]) / (files[many] - files[few])
        per_write = found[few][kind] - per_file * files[few]
        if per_file:
            told[f"{kind}, for each file"] = per_file
        if abs(per_write) > 1e-6:
            told[f"{kind}, for each write"] = per_write
        if kind not in (OWN, READS):
            small, fixed = small + per_file, fixed + per_write
    told[SMALL] = small
    told["small requests for each write besides"] = fixed
    bench.say(f"  {write}: {small:.2f} small requests for each file, and {fixed:.1f} for each write")
