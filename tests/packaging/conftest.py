"""What the tests of this folder need: processes of their own, with an environment of their own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tools.docs import ROOT


@pytest.fixture(scope="session")
def without_java(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """This environment on a machine that has every command but Java's."""
    folder = tmp_path_factory.mktemp("commands")
    for part in os.environ["PATH"].split(os.pathsep):
        for command in sorted(Path(part).glob("*")) if Path(part).is_dir() else []:
            target = folder / command.name
            if "java" not in command.name and not target.is_symlink() and command.is_file():
                target.symlink_to(command)
    environment = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    environment["PATH"] = str(folder)
    assert shutil.which("java", path=str(folder)) is None and shutil.which("bash", path=str(folder))
    return environment


@pytest.fixture(scope="session")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A Python of this version that has the running PySpark, pyarrow, and what these two bring: no more."""
    folder = tmp_path_factory.mktemp("bare")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    (source,) = {
        Path(str(__import__(name).__file__)).parent.parent for name in ("pyspark", "pyarrow", "py4j")
    }
    for name in ("pyspark", "pyarrow", "py4j"):
        (packages / name).symlink_to(source / name)
    for libraries in source.glob("pyarrow.libs"):
        (packages / libraries.name).symlink_to(libraries)
    python = str(folder / "bin" / "python")
    for name in ("fastavro", "fsspec", "boto3", "pandas", "numpy", "sparkrobust"):
        found = subprocess.run([python, "-c", f"import {name}"], capture_output=True, cwd=folder, env={})
        assert found.returncode, f"{name} can be imported there"
    return python


def run(command: list[str], environment: dict[str, str], seconds: float = 400, folder: Path = ROOT) -> str:
    """What a process said; a failure shows it."""
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment, cwd=folder, timeout=seconds
    )
    assert done.returncode == 0, f"{' '.join(command)}\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}"
    return done.stdout
