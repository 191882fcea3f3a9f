"""An Azure emulator for tests: installed once into the user's cache, started on loopback, stopped by pid."""

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
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from fault_injection.s3_server import S3Server as S3Server
from fault_injection.servers import (
    BUILD_SECONDS,
    START_SECONDS,
    answers,
    cache_folder,
    free_port,
    stop,
)
from fault_injection.servers import Unavailable as Unavailable
from fault_injection.servers import versitygw as versitygw

AZURITE = "azurite@3.35.0"
"""The newest that runs on Node 20."""


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
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=START_SECONDS)
        connection.request("PUT", f"{path}?restype=container", headers=headers)
        answer = connection.getresponse()
        if answer.status != http.client.CREATED:
            raise RuntimeError(f"azurite makes no container: {answer.status} {answer.read().decode()}")
        connection.close()


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
        done = subprocess.run(command, cwd=made, capture_output=True, text=True, timeout=BUILD_SECONDS)
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
            if answers(port, process):
                server = AzureServer(port=port, key=key)
                server.make_container()
                yield server
                return
        finally:
            stop(process)
    raise RuntimeError("azurite does not start:\n" + (folder / "azurite.log").read_text()[-2000:])
