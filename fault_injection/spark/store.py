"""A real S3 server for a cluster: on the driver's host, within reach of a host that is cut off too.

>>> with Cluster(folder) as cluster, Chaos(cluster, store=Store(cluster, versitygw)) as chaos:
...     url = chaos.store.bucket().url("table")
...     busy = Fault("busy", request("PUT", "*/table/*", nth=2, times=3), Answer(503))
...     report = chaos.run("my.jobs:load", url, faults=[busy])
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

from fault_injection.s3_server import S3Server
from fault_injection.servers import Unavailable, versitygw_binary
from fault_injection.spark.cluster import Cluster, python_path
from fault_injection.spark.exchange import ROOM
from fault_injection.spark.processes import Known, is_gone, listening_ports, wait_for

_START_SECONDS = 60


@dataclass(frozen=True, kw_only=True)
class Upload:
    """A multipart upload that was begun and neither completed nor aborted."""

    id: str
    object: str
    """What it would become, in its bucket."""
    parts: int
    """So many have been uploaded."""

    def __str__(self) -> str:
        return f"{self.id} of {self.object}, parts: {self.parts}"


@dataclass(frozen=True, kw_only=True)
class Bucket:
    """A bucket, whose objects are files."""

    name: str
    folder: Path

    def url(self, path: str) -> str:
        """How a pipeline names what lies there."""
        return f"s3a://{self.name}/{path}"

    def uploads(self) -> list[Upload]:
        """Those that nobody has ended."""
        # Where versitygw keeps them: a folder for each object's name, and in it one for each upload.
        found = [folder for folder in self.folder.glob(".sgwtmp/multipart/*/*") if folder.is_dir()]
        return sorted(map(_upload_in, found), key=str)


def _upload_in(folder: Path) -> Upload:
    name = os.getxattr(folder.parent, "user.objname").decode()
    return Upload(id=folder.name, object=name, parts=sum(1 for _ in folder.iterdir()))


def store_beside(cluster: Cluster) -> Store:
    """A store for a running cluster, whose server is built first where need be.

    Raises
    ------
    Unavailable
        It can't be had here, or nobody could ask it; the text says why.
    """
    if importlib.util.find_spec("boto3") is None:
        raise Unavailable("no S3 server: boto3, which asks it, is not installed")
    return Store(cluster, versitygw_binary())


class Store:
    """An S3 server, versitygw, which ends with its cluster.

    Parameters
    ----------
    cluster
        A running one.
    program
        Versitygw's.
    """

    def __init__(self, cluster: Cluster, program: Path) -> None:
        self._cluster = cluster
        buckets = cluster.folder / "store" / "buckets"
        buckets.mkdir(parents=True)
        self.server = S3Server(
            endpoint="", access_key="access-for-tests", secret_key="secret-for-tests", folder=buckets
        )
        address = cluster.places.store
        pid = cluster.serve(
            "store",
            cluster.places.driver,
            [str(program), "--port", f"{address}:0", "--quiet", "posix", str(buckets)],
            {"ROOT_ACCESS_KEY": self.server.access_key, "ROOT_SECRET_KEY": self.server.secret_key},
        )

        def look() -> int:
            if is_gone(pid):
                raise RuntimeError(f"the S3 server has ended: {(cluster.folder / 'store.log').read_text()}")
            return next(iter(listening_ports(pid)), 0)

        port = wait_for(look, "an S3 server that listens", _START_SECONDS)
        self.server = replace(self.server, endpoint=f"http://{address}:{port}")

    def bucket(self) -> Bucket:
        """A new bucket."""
        folder = self.server.folder / f"bucket-{next(self._cluster.numbers)}"
        folder.mkdir()
        return Bucket(name=folder.name, folder=folder)

    def proxy(self, room: Path) -> StoreProxy:
        """A proxy before the server, where the rules of the session with this folder are in force."""
        return StoreProxy(self._cluster, self.server, room)


class StoreProxy:
    """A running :mod:`fault_injection.spark.store_proxy`."""

    def __init__(self, cluster: Cluster, server: S3Server, room: Path) -> None:
        command = [sys.executable, "-m", "fault_injection.spark.store_proxy"]
        with (room / "proxy.log").open("wb") as log:
            self._process, pid = cluster.start(
                cluster.places.driver,
                [*command, cluster.places.store, server.endpoint],
                {ROOM: str(room), "PYTHONPATH": python_path()},
                stdout=subprocess.PIPE,
                stderr=log,
            )
        self._known = Known.now(pid)
        assert self._process.stdout is not None
        endpoint = self._process.stdout.readline().decode().strip()
        if not endpoint:
            raise RuntimeError(f"a proxy has ended before it began: {(room / 'proxy.log').read_text()}")
        self.server = replace(server, endpoint=endpoint)
        """The server, as it is reached through the proxy."""

    def settings(self) -> dict[str, str]:
        """How the server is reached, as Spark's settings."""
        return {f"spark.hadoop.{name}": value for name, value in self.server.options().items()}

    def close(self) -> None:
        self._known.kill()
        self._process.wait()
