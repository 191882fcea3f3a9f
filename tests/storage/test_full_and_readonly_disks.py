"""Disks that are full or read-only: real ones, mounted in a namespace of their own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from sparkrobust.errors import PermissionDeniedError
from sparkrobust.storage.local import LocalStorage

HERE = Path(__file__).parent


def in_a_mount_namespace(program: str, folder: Path) -> None:
    """Run one of our programs where it may mount what it wants and nobody else sees it."""
    if os.geteuid() != 0 or shutil.which("unshare") is None:
        pytest.skip("mounting a disk for the test needs root and `unshare`")
    probe = ["unshare", "--mount", "--propagation", "private"]
    if subprocess.run([*probe, "mount", "-t", "tmpfs", "none", str(folder)], capture_output=True).returncode:
        pytest.skip("this machine lets nobody mount a tmpfs in a namespace")
    done = subprocess.run(
        [*probe, sys.executable, str(HERE / "on_a_small_disk.py"), program, str(folder)],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "PYTHONPATH": str(HERE.parents[1])},
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines()[-1:] == ["passed"]


@pytest.mark.parametrize("program", ["full_disk", "full_disk_without_nameless_files", "read_only_disk"])
def test_a_disk_that_takes_nothing_more_is_an_error_and_changes_nothing(program: str, tmp_path: Path) -> None:
    in_a_mount_namespace(program, tmp_path)


def test_a_folder_without_write_permission_is_an_error_that_names_the_path(tmp_path: Path) -> None:
    if os.geteuid() == 0:
        pytest.skip("root may write everywhere; the read-only disk stands for it")
    storage = LocalStorage(str(tmp_path / "table"))
    storage.make_folder("a")
    (tmp_path / "table" / "a").chmod(0o555)
    for write in (storage.put, storage.put_if_absent):
        with pytest.raises(PermissionDeniedError, match="a/one"):
            write("a/one", b"1")
