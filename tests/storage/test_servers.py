"""How the tests come by their servers."""

from __future__ import annotations

import os
import stat
from pathlib import Path

import pytest

from fault_injection import servers
from fault_injection.s3_server import S3Server
from fault_injection.servers import Unavailable
from tests import servers as azure
from tests.servers import AzureServer


@pytest.fixture
def empty_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("SPARKROBUST_VERSITYGW", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    (tmp_path / "bin").mkdir()
    return tmp_path


def fake(folder: Path, name: str, script: str) -> None:
    program = folder / "bin" / name
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(program.stat().st_mode | stat.S_IXUSR)


def test_without_go_the_reason_says_so(empty_cache: Path) -> None:
    with pytest.raises(Unavailable, match="is not installed"):
        servers.versitygw_binary()


def test_a_build_that_fails_leaves_nothing_and_says_why(empty_cache: Path) -> None:
    fake(empty_cache, "go", "echo no such module >&2; exit 1")
    with pytest.raises(Unavailable, match="no such module"):
        servers.versitygw_binary()
    assert [path.name for path in servers.cache_folder().iterdir()] == ["versitygw.lock"]


def test_the_server_is_built_once(empty_cache: Path) -> None:
    fake(empty_cache, "go", 'echo built >> "$XDG_CACHE_HOME/count"; echo program > "$GOBIN/versitygw"')
    assert servers.versitygw_binary() == servers.versitygw_binary()
    assert (empty_cache / "cache" / "count").read_text() == "built\n"


def test_without_npm_the_reason_says_so(empty_cache: Path) -> None:
    with pytest.raises(Unavailable, match="is not installed"):
        azure.azurite_folder()


def test_an_installation_that_fails_leaves_nothing_and_says_why(empty_cache: Path) -> None:
    fake(empty_cache, "node", "exit 0")
    fake(empty_cache, "npm", "echo no such package >&2; exit 1")
    with pytest.raises(Unavailable, match="no such package"):
        azure.azurite_folder()
    assert [path.name for path in servers.cache_folder().iterdir()] == ["azurite.lock"]


def test_the_emulator_listens_on_loopback_and_is_gone_afterwards(
    azure_server: AzureServer, tmp_path: Path
) -> None:
    with azure.azurite(tmp_path) as second:
        assert second.port != azure_server.port
        assert servers.listens(second.port)
    assert not servers.listens(second.port)


def test_the_server_listens_on_loopback_and_is_gone_afterwards(s3_server: S3Server, tmp_path: Path) -> None:
    with servers.versitygw(tmp_path) as second:
        assert second.endpoint.startswith("http://127.0.0.1:")
        assert second.endpoint != s3_server.endpoint
        running = second_pids(tmp_path)
        assert len(running) == 1
    assert second_pids(tmp_path) == []


def second_pids(folder: Path) -> list[str]:
    """Processes that were started with a folder below this one, as Linux tells."""
    if not os.path.isdir("/proc/self"):
        pytest.skip("processes are looked up in /proc")
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            arguments = (process / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if os.fsencode(folder / "buckets") in arguments:
            found.append(process.name)
    return found
