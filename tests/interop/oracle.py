"""Asks the real Hudi, and hudi-rs, what they see; see ``oracle_server.py`` for the other end."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import threading
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

PYTHON = "SPARKROBUST_ORACLE_PYTHON"
JAR = "SPARKROBUST_ORACLE_JAR"
PATIENCE_SECONDS = 180.0

Row = dict[str, Any]


class OracleError(Exception):
    """Hudi refused, or failed; the text is its own."""

    @property
    def causes(self) -> str:
        """The messages without the stack traces."""
        lines = [line for line in str(self).splitlines() if not line.lstrip().startswith("at ")]
        return "\n".join(lines)


def settings_or_reason(environment: Mapping[str, str]) -> tuple[str, str] | str:
    """The oracle's Python and jar, or the sentence that says what is missing."""
    wanted = {name: environment.get(name, "") for name in (PYTHON, JAR)}
    unset = [name for name, value in wanted.items() if not value]
    if unset:
        return f"the real Hudi is needed here, and {' and '.join(unset)} not set: run `make interop`"
    gone = [f"{name}={value}" for name, value in wanted.items() if not Path(value).exists()]
    if gone:
        return f"the real Hudi is needed here, and there is no {' and no '.join(gone)}: run `make interop`"
    return wanted[PYTHON], wanted[JAR]


class Oracle:
    """One running process with the real Hudi; ``close`` ends it."""

    def __init__(self, python: str, jar: str, scratch: Path) -> None:
        self._scratch = scratch
        self._number = 0
        self._log = scratch / "oracle.log"
        environment = {**os.environ, "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": python}
        for name in ("PYTHONPATH", "SPARK_HOME", "PYSPARK_SUBMIT_ARGS"):
            environment.pop(name, None)
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [python, str(Path(__file__).with_name("oracle_server.py")), jar, str(scratch / "warehouse")],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=scratch,
                env=environment,
                text=True,
            )
        self._answers: queue.SimpleQueue[str] = queue.SimpleQueue()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._answers.put(line)
        self._answers.put("")  # the process has ended

    def _ask(self, op: str, **fields: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"op": op, **fields}) + "\n")
        self._process.stdin.flush()
        try:
            line = self._answers.get(timeout=PATIENCE_SECONDS)
        except queue.Empty:
            raise TimeoutError(f"no answer to {op} in {PATIENCE_SECONDS} s; {self._last_words()}") from None
        if not line:
            raise RuntimeError(f"the oracle has died over {op}; {self._last_words()}")
        reply: dict[str, Any] = json.loads(line)
        if not reply["ok"]:
            raise OracleError(reply["error"])
        return reply

    def _last_words(self) -> str:
        return "its log ends with:\n" + self._log.read_text(errors="replace")[-3000:]

    def _out(self) -> Path:
        self._number += 1
        return self._scratch / f"answer-{self._number}"

    # -- questions -------------------------------------------------------------------------------

    def table(self, path: Path | str, **options: str) -> pa.Table:
        """What Hudi's Spark reader returns: snapshot by default, by the options' time otherwise."""
        out = self._out()
        self._ask("read", path=str(path), options={_dotted(k): v for k, v in options.items()}, out=str(out))
        return pq.read_table(out)

    def read(self, path: Path | str, **options: str) -> list[Row]:
        """The rows of :meth:`table`; ``__`` in an option's name stands for a dot."""
        rows: list[Row] = self.table(path, **options).to_pylist()
        return rows

    def schema(self, path: Path | str) -> dict[str, Any]:
        """Spark's schema of the table, as Hudi gives it: column to type, meta columns left out."""
        reply = self._ask("read", path=str(path), options={}, out=str(self._out()))
        fields = reply["schema"]["fields"]
        return {field["name"]: field["type"] for field in fields if not field["name"].startswith("_hoodie")}

    def rust(self, path: Path | str) -> list[Row]:
        """The rows of the latest snapshot as hudi-rs reads them."""
        out = self._out()
        self._ask("rust", path=str(path), out=str(out))
        files = list(out.iterdir())
        rows: list[Row] = pq.read_table(files[0]).to_pylist() if files else []
        return rows

    def rust_files(self, path: Path | str) -> set[str]:
        """The base files that hudi-rs takes for the latest snapshot, relative to the table."""
        return set(self._ask("rust", path=str(path), out=str(self._out()))["files"])

    # -- deeds -----------------------------------------------------------------------------------

    def write(self, path: Path | str, sql: str, options: Mapping[str, str], mode: str = "append") -> None:
        """Hudi's own DataFrame writer over the rows of a query."""
        self._ask("write", path=str(path), sql=sql, options=dict(options), mode=mode)

    def sql(self, statement: str) -> list[Row]:
        """Any Spark SQL statement; its rows."""
        rows: list[Row] = self._ask("sql", sql=statement)["rows"]
        return rows

    def call(self, procedure: str) -> list[Row]:
        """A procedure; one that writes makes no metadata table, which is Hudi's default."""
        self.sql("SET hoodie.metadata.enable=false")
        try:
            return self.sql(f"CALL {procedure}")
        finally:
            self.sql("RESET hoodie.metadata.enable")

    def named(self, path: Path | str) -> str:
        """A name in Hudi's catalog for a table, for the procedures that take no path."""
        self._number += 1
        name = f"table_{self._number}"
        self.sql(f"CREATE TABLE {name} USING hudi LOCATION '{path}'")
        return name

    def hadoop(self, key: str, value: str | None) -> None:
        """Set, or with None remove, one Hadoop setting of the oracle's session."""
        self._ask("hadoop", key=key, value=value)

    def close(self) -> None:
        """End the process: first by asking, then by its own id."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


@pytest.fixture(scope="session")
def hudi(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Oracle]:
    """The real Hudi 1.1.1."""
    found = settings_or_reason(os.environ)
    if isinstance(found, str):
        pytest.fail(found, pytrace=False)
    oracle = Oracle(*found, tmp_path_factory.mktemp("oracle"))
    yield oracle
    oracle.close()


def _dotted(option: str) -> str:
    return option.replace("__", ".")


def without_meta(rows: Iterable[Row]) -> list[Row]:
    """Rows without Hudi's five columns."""
    return [{name: value for name, value in row.items() if not name.startswith("_hoodie_")} for row in rows]
