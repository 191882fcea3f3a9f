"""Real servers for tests: built once into the user's cache, started on loopback, stopped by pid."""

from __future__ import annotations

import base64
import contextlib
import email.utils
import fcntl
import hmac
import http.client
import os
import secrets
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

AZURITE = "azurite@3.35.0"
"""The newest that runs on Node 20."""
VERSITYGW = "github.com/versity/versitygw/cmd/versitygw@v1.8.0"
_BUILD_SECONDS = 1800
_START_SECONDS = 30


class Unavailable(Exception):
    """The server can't be had on this machine; the message says why."""


@dataclass(frozen=True, kw_only=True)
class S3Server:
    """A running server."""

    endpoint: str
    access_key: str
    secret_key: str
    folder: Path
    """Where its buckets are folders."""

    def options(self) -> dict[str, str]:
        """How a pipeline would say where it is."""
        return {
            "fs.s3a.endpoint": self.endpoint,
            "fs.s3a.access.key": self.access_key,
            "fs.s3a.secret.key": self.secret_key,
            "fs.s3a.path.style.access": "true",
            "fs.s3a.endpoint.region": "us-east-1",
        }


@dataclass(frozen=True, kw_only=True)
class AzureServer:
    """A running emulator."""

    port: int
    key: str
    account: ClassVar[str] = "accountfortests"
    container: ClassVar[str] = "tables"

    def url(self, path: str) -> str:
        """Where a table is, as a pipeline spells it."""
        return f"abfss://{self.container}@{self.account}.dfs.core.windows.net/{path}"

    def options(self) -> dict[str, str]:
        """How a pipeline would say where the store is."""
        return {
            "fs.azure.blob.endpoint": f"http://127.0.0.1:{self.port}/{self.account}",
            f"fs.azure.account.key.{self.account}.dfs.core.windows.net": self.key,
        }

    def make_container(self) -> None:
        """By a request that is signed here, since the client has none for it."""
        path, version = f"/{self.account}/{self.container}", "2021-08-06"
        date = email.utils.formatdate(usegmt=True)
        headers = {"x-ms-date": date, "x-ms-version": version}
        signed = "PUT" + "\n" * 12 + "".join(f"{name}:{value}\n" for name, value in headers.items())
        signed += f"/{self.account}{path}\nrestype:container"
        digest = hmac.digest(base64.b64decode(self.key), signed.encode(), "sha256")
        signature = base64.b64encode(digest).decode()
        headers |= {"Authorization": f"SharedKey {self.account}:{signature}", "Content-Length": "0"}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=_START_SECONDS)
        connection.request("PUT", f"{path}?restype=container", headers=headers)
        answer = connection.getresponse()
        if answer.status != http.client.CREATED:
            raise RuntimeError(f"azurite makes no container: {answer.status} {answer.read().decode()}")
        connection.close()


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
        raise Unavailable("no S3 server for the tests: `go`, which builds versitygw, is not installed")
    with tempfile.TemporaryDirectory(dir=binary.parent) as folder:
        print(f"building versitygw (once per machine, some minutes) into {binary.parent}", flush=True)
        environment = {**os.environ, "GOBIN": folder, "CGO_ENABLED": "0"}
        built = subprocess.run(
            [go, "install", "-p", "2", VERSITYGW],
            env=environment,
            cwd=folder,
            capture_output=True,
            text=True,
            timeout=_BUILD_SECONDS,
        )
        if built.returncode:
            raise Unavailable(f"no S3 server for the tests: go install failed:\n{built.stderr[-2000:]}")
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
            if _answers(port, process):
                yield S3Server(**{**vars(server), "endpoint": f"http://127.0.0.1:{port}"})
                return
        finally:
            stop(process)
    raise RuntimeError("the S3 server does not start:\n" + (folder / "s3.log").read_text()[-2000:])


def azurite_folder() -> Path:
    """Where the Azure emulator is installed; the first call on a machine installs it: a minute."""
    cache = cache_folder()
    folder = cache / AZURITE.replace("@", "-")
    with open(cache / "azurite.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            _install_azurite(folder)
    return folder


def _install_azurite(folder: Path) -> None:
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        raise Unavailable("no Azure emulator for the tests: `npm`, which installs azurite, is not installed")
    with tempfile.TemporaryDirectory(dir=folder.parent) as made:
        print(f"installing azurite (once per machine) into {folder.parent}", flush=True)
        command = [npm, "install", "--prefix", ".", "--no-audit", "--no-fund", "--ignore-scripts", AZURITE]
        done = subprocess.run(command, cwd=made, capture_output=True, text=True, timeout=_BUILD_SECONDS)
        if done.returncode:
            raise Unavailable(f"no Azure emulator for the tests: npm install failed:\n{done.stderr[-2000:]}")
        os.rename(Path(made) / "node_modules", Path(made) / "installed")
        folder.mkdir()
        os.rename(Path(made) / "installed", folder / "node_modules")


@contextlib.contextmanager
def azurite(folder: Path) -> Iterator[AzureServer]:
    """An Azure emulator that keeps everything in memory, with one container."""
    program = azurite_folder() / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"
    key = base64.b64encode(secrets.token_bytes(64)).decode()
    environment = {**os.environ, "AZURITE_ACCOUNTS": f"{AzureServer.account}:{key}"}
    for _ in range(5):  # somebody else may take the port before the server does
        port = free_port()
        command = ["node", str(program), "--blobHost", "127.0.0.1", "--blobPort", str(port), "--silent"]
        command += ["--inMemoryPersistence", "--skipApiVersionCheck", "--disableTelemetry"]
        with open(folder / "azurite.log", "ab") as log:
            process = subprocess.Popen(command, env=environment, cwd=folder, stdout=log, stderr=log)
        try:
            if _answers(port, process):
                server = AzureServer(port=port, key=key)
                server.make_container()
                yield server
                return
        finally:
            stop(process)
    raise RuntimeError("azurite does not start:\n" + (folder / "azurite.log").read_text()[-2000:])


def free_port() -> int:
    """A port on loopback that nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _answers(port: int, process: subprocess.Popen[bytes]) -> bool:
    """Whether the process lives to take a connection."""
    deadline = time.monotonic() + _START_SECONDS
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
