"""A real S3 server: built once into the user's cache, started on loopback, stopped by pid."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from fault_injection.s3_server import S3Server

VERSITYGW = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"
BUILD_SECONDS = 1800
START_SECONDS = 30


class Unavailable(Exception):
    """The server can't be had on this machine; the message says why."""


def cache_folder() -> Path:
    """Where built servers are kept from one run to the next."""
    base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(base) / "sparkrobust" / "servers"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def versitygw_binary() -> Path:
    """The S3 server's program; the first call on a machine builds it, which takes minutes.

    ``SPARKROBUST_VERSITYGW`` names one that is there already.
    """
    given = os.environ.get("SPARKROBUST_VERSITYGW")
    if given:
        return Path(given)
    cache = cache_folder()
    binary = cache / f"versitygw-{VERSITYGW.rpartition('@')[2]}"
    with open(cache / "versitygw.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not binary.exists():
            _build_versitygw(binary)
    return binary


def _build_versitygw(binary: Path) -> None:
    go = shutil.which("go")
    if go is None:
        raise Unavailable("no S3 server: `go`, which builds versitygw, is not installed")
    with tempfile.TemporaryDirectory(dir=binary.parent) as folder:
        print(f"building versitygw (once per machine, some minutes) into {binary.parent}", flush=True)
        environment = {**os.environ, "GOBIN": folder, "CGO_ENABLED": "0"}
        built = subprocess.run(
            [go, "install", "-p", "2", VERSITYGW],
            env=environment,
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=BUILD_SECONDS,
        )
        if built.returncode:
            raise Unavailable(f"no S3 server: go install failed:\n{built.stderr[-2000:]}")
        os.replace(Path(folder) / "versitygw", binary)


def s3(folder: Path) -> contextlib.AbstractContextManager[S3Server]:
    """An S3 server: versitygw, or minio where ``SPARKROBUST_MINIO`` names its program."""
    program = os.environ.get("SPARKROBUST_MINIO")
    return minio(folder, program) if program else versitygw(folder)


def versitygw(folder: Path) -> contextlib.AbstractContextManager[S3Server]:
    """An S3 server that keeps its buckets in a folder, as they are."""
    program = str(versitygw_binary())
    return _running(
        folder,
        lambda address, buckets: [program, "--port", address, "--quiet", "posix", buckets],
        names=("ROOT_ACCESS_KEY", "ROOT_SECRET_KEY"),
    )


def minio(folder: Path, program: str) -> contextlib.AbstractContextManager[S3Server]:
    """An S3 server that keeps its buckets in a folder, in a form of its own."""
    return _running(
        folder,
        lambda address, buckets: [program, "server", "--quiet", "--address", address, buckets],
        names=("MINIO_ROOT_USER", "MINIO_ROOT_PASSWORD"),
    )


@contextlib.contextmanager
def _running(
    folder: Path, command: Callable[[str, str], list[str]], *, names: tuple[str, str]
) -> Iterator[S3Server]:
    """The server of this command, given its address and folder; ``names`` are those of its secrets."""
    buckets = folder / "buckets"
    buckets.mkdir(parents=True, exist_ok=True)
    server = S3Server(
        endpoint="", access_key="access-for-tests", secret_key="secret-for-tests", folder=buckets
    )
    environment = {**os.environ, names[0]: server.access_key, names[1]: server.secret_key}
    for _ in range(5):  # somebody else may take the port before the server does
        port = free_port()
        with open(folder / "s3.log", "ab") as log:
            arguments = command(f"127.0.0.1:{port}", str(buckets))
            process = subprocess.Popen(arguments, env=environment, stdout=log, stderr=log)
        try:
            if answers(port, process):
                yield S3Server(**{**vars(server), "endpoint": f"http://127.0.0.1:{port}"})
                return
        finally:
            stop(process)
    raise RuntimeError("the S3 server does not start:\n" + (folder / "s3.log").read_text()[-2000:])


def free_port() -> int:
    """A port on loopback that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def answers(port: int, process: subprocess.Popen[bytes]) -> bool:
    """Whether the process lives to take a connection."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline and process.poll() is None:
        if listens(port):
            return True
        time.sleep(0.02)
    return False


def listens(port: int) -> bool:
    """Whether anybody takes connections there."""
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), timeout=1):
        return True
    return False


def stop(process: subprocess.Popen[bytes]) -> None:
    """End a process that we started."""
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
