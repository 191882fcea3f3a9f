"""What our tasks leave behind in Spark's Python workers."""

from __future__ import annotations

import gc
import os
import socket
import sys
import zipimport

import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from sparkrobust.spark import between_tasks
from sparkrobust.spark.tasks import Batches, Made, Task


class Look(Task):
    """Tells how its worker is."""

    SCHEMA = "process long, early boolean, frozen long, archives long"

    def run(self, batches: Batches) -> Made:
        for _ in batches:
            pass  # a worker whose task leaves some of its input is not used again
        served_by = {
            getattr(sys.modules.get(module), name, None)
            for module, name in (("__main__", "worker_main"), ("pyspark.worker", "main"))
        }
        archives = [one for one in sys.path_importer_cache.values() if isinstance(one, zipimport.zipimporter)]
        columns = (
            os.getpid(),
            "serve_early" in {getattr(one, "__name__", "") for one in served_by},
            gc.get_freeze_count(),
            len(archives),
        )
        names = ("process", "early", "frozen", "archives")
        yield pa.RecordBatch.from_arrays([pa.array([value]) for value in columns], list(names))


def test_a_worker_that_has_run_a_task_of_ours_starts_its_next_one_quickly(spark: SparkSession) -> None:
    seen: set[int] = set()
    for _ in range(20):
        found = spark.range(0, 1, 1, 1).mapInArrow(Look(), Look.SCHEMA).collect()[0]
        if found.process in seen:
            # Only what the imports of PySpark's own start may have brought back.
            assert found.early and found.frozen > 1000 and found.archives <= 1
            return
        seen.add(found.process)
    pytest.fail(f"no worker was used twice: {seen}")


def test_a_task_acknowledges_what_came_whatever_descriptors_its_process_has() -> None:
    listening = socket.create_server(("127.0.0.1", 0))
    ours, theirs = socket.socketpair()
    with listening, ours, theirs, socket.create_connection(listening.getsockname()) as connected:
        if hasattr(socket, "TCP_QUICKACK"):
            connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK, 0)
            assert connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK) == 0
            before = os.listdir("/proc/self/fd")
            between_tasks.acknowledge()
            assert connected.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK) == 1
            assert os.listdir("/proc/self/fd") == before
        else:
            between_tasks.acknowledge()
        accepted, _ = listening.accept()
        with accepted:
            accepted.sendall(b"x")
            assert connected.recv(1) == b"x"
        ours.sendall(b"y")
        assert theirs.recv(1) == b"y"
