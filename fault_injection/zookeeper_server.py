"""A real ZooKeeper, from PySpark's jars; on loopback, stopped by pid."""

from __future__ import annotations

import contextlib
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from kazoo.client import KazooClient
from kazoo.handlers.threading import KazooTimeoutError

from fault_injection.pyspark_jars import JAVA_OPTIONS, java, pyspark_jars
from fault_injection.servers import free_port, stop

_SERVER = "org.apache.zookeeper.server.ZooKeeperServerMain"
_START_SECONDS = 60
TICK_MS = 500
"""A session lives for two of them, if its client asks for no more."""


@dataclass(frozen=True, kw_only=True)
class ZooKeeper:
    """A running server."""

    hosts: str
    process: subprocess.Popen[bytes]

    @contextlib.contextmanager
    def client(self) -> Iterator[KazooClient]:
        """A session for the block."""
        client = KazooClient(hosts=self.hosts)
        client.start(timeout=_START_SECONDS)
        try:
            yield client
        finally:
            client.stop()
            client.close()


@contextlib.contextmanager
def zookeeper(folder: Path) -> Iterator[ZooKeeper]:
    """One that keeps everything in a folder."""
    command = [java(), *JAVA_OPTIONS, "-cp", f"{pyspark_jars()}/*", _SERVER, str(folder / "zoo.cfg")]
    for _ in range(5):  # somebody else may take the port before the server does
        port = free_port()
        (folder / "zoo.cfg").write_text(
            f"dataDir={folder / 'data'}\nclientPort={port}\nclientPortAddress=127.0.0.1\n"
            f"tickTime={TICK_MS}\nadmin.enableServer=false\nmaxClientCnxns=0\n"
        )
        with open(folder / "zookeeper.log", "ab") as log:
            process = subprocess.Popen(command, stdout=log, stderr=log, cwd=folder)
        server = ZooKeeper(hosts=f"127.0.0.1:{port}", process=process)
        try:
            if _answers(server):
                yield server
                return
        finally:
            stop(process)
    raise RuntimeError("ZooKeeper does not start:\n" + (folder / "zookeeper.log").read_text()[-2000:])


def _answers(server: ZooKeeper) -> bool:
    """Whether the process lives to give somebody a session."""
    deadline = time.monotonic() + _START_SECONDS
    while time.monotonic() < deadline and server.process.poll() is None:
        client = KazooClient(hosts=server.hosts)
        try:
            client.start(timeout=5)
            return True
        except KazooTimeoutError:
            continue
        finally:
            client.stop()
            client.close()
    return False
