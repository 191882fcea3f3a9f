"""The same pipeline over Spark Connect, where there is no JVM and no RDD to reach for."""

from __future__ import annotations

import contextlib
import importlib.util
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pyspark
import pytest

from fault_injection.servers import free_port, stop
from fault_injection.spark import plain_reader
from tests.interop.tables import pending

ROOT = Path(__file__).resolve().parents[2]
START_SECONDS = 300
SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"

if int(pyspark.__version__.partition(".")[0]) < 4:
    pytest.skip(f"Spark Connect is tested on Spark 4, this is {pyspark.__version__}", allow_module_level=True)
if importlib.util.find_spec("grpc") is None:
    pytest.skip("Spark Connect needs grpcio, which is not installed", allow_module_level=True)


@contextlib.contextmanager
def connect_server(folder: Path) -> Iterator[str]:
    """A server of Spark Connect in a process of its own, on a free port of loopback."""
    home = Path(str(pyspark.__file__)).parent
    port = free_port()
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": str(port),
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Duser.timezone=UTC",
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.ui.enabled": "false",
    }
    command = [str(home / "bin" / "spark-submit"), "--master", "local[2]", "--class", SERVER]
    for name, value in settings.items():
        command += ["--conf", f"{name}={value}"]
    environment = {
        **os.environ,
        "SPARK_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PYSPARK_PYTHON": sys.executable,
        "PYTHONPATH": str(ROOT),
    }
    log = folder / "connect.log"
    with log.open("w") as out:
        process = subprocess.Popen(
            [*command, "spark-internal"], stdout=out, stderr=out, env=environment, cwd=folder
        )
    try:
        deadline = time.monotonic() + START_SECONDS
        while not answers(port):
            assert process.poll() is None and time.monotonic() < deadline, log.read_text()[-3000:]
            time.sleep(0.1)
        yield f"sc://127.0.0.1:{port}"
    finally:
        stop(process)


def answers(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def test_a_pipeline_writes_and_reads_over_spark_connect(tmp_path: Path) -> None:
    table = tmp_path / "t"
    with connect_server(tmp_path) as url:
        done = subprocess.run(
            [sys.executable, "-m", "tests.spark.connect_client", url, str(table)],
            capture_output=True, text=True, timeout=START_SECONDS, cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT), "SPARK_CONNECT_MODE_ENABLED": "1"},
        )  # fmt: skip
    assert done.returncode == 0, done.stderr[-4000:]
    answer = json.loads(done.stdout.splitlines()[-1])
    assert answer["module"].startswith("pyspark.sql.connect")
    assert answer["rows"] == [
        [1, "up", "b"], [2, "n2", "a"], [3, "n3", "b"], [4, "n4", "a"], [5, "n5", "b"], [6, "new", "c"],
    ]  # fmt: skip
    assert (answer["updated"], answer["inserted"], answer["one partition"]) == (1, 1, [6])
    assert "null or empty" in answer["refused"]
    assert answer["tags"] == [], "the tag that cancels a write's jobs is taken off again"
    assert answer["redone"] == [1, 0, "later", "later", "early"]
    assert answer["overwritten"] == [[9, "all new"]]
    assert [row["name"] for row in plain_reader.snapshot(table)] == ["all new"]
    assert not pending(table)
