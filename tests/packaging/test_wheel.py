"""The wheel builds, has everything, and works where nothing else of ours is."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import sparkrobust
from tests.packaging.conftest import run
from tools.docs import ROOT
from tools.make_zip import members


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from a copy, so that nothing is left in this folder."""
    source = tmp_path_factory.mktemp("source")
    for name in ("setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    for name in ("sparkrobust", "fault_injection"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    target = tmp_path_factory.mktemp("wheel")
    # The build tools are installed beside pytest, so that no index is asked for them again.
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    run([*build, "--wheel-dir", str(target), str(source)], dict(os.environ))
    (built,) = target.glob("*.whl")
    return built


def test_the_wheel_is_named_after_the_one_version(wheel: Path) -> None:
    assert wheel.name == f"sparkrobust-{sparkrobust.__version__}-py3-none-any.whl"


def test_the_wheel_holds_every_file_of_the_packages_and_the_licence(wheel: Path) -> None:
    inside = zipfile.ZipFile(wheel).namelist()
    kit = (ROOT / "fault_injection").rglob("*.py")
    packages = {path.relative_to(ROOT).as_posix() for path in [*members(ROOT), *kit]}
    assert {name for name in inside if ".dist-info/" not in name} == packages
    assert [name for name in inside if name.endswith("LICENSE")]


def test_the_wheel_says_what_it_needs_and_which_extras_there_are(wheel: Path) -> None:
    archive = zipfile.ZipFile(wheel)
    (metadata,) = [name for name in archive.namelist() if name.endswith("METADATA")]
    lines = archive.read(metadata).decode().splitlines()
    extras = {line.split(": ")[1] for line in lines if line.startswith("Provides-Extra")}
    assert {"spark", "spark35", "spark4", "s3", "chaos", "dev"} <= extras
    plain = [
        line.split(": ")[1] for line in lines if line.startswith("Requires-Dist") and "extra" not in line
    ]
    assert sorted(need.split(">")[0].split(" ")[0] for need in plain) == ["fastavro", "pyarrow"]


def test_the_wheel_installs_in_an_empty_environment_and_its_types_and_data_come_along(
    wheel: Path, tmp_path: Path
) -> None:
    run([sys.executable, "-m", "venv", str(tmp_path / "venv")], dict(os.environ))
    python = str(tmp_path / "venv" / "bin" / "python")
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(wheel)], clean)
    program = (
        "import importlib.resources as r, sparkrobust as sr, sparkrobust.formats.avro as avro, sys\n"
        "from sparkrobust.options import parse\n"
        "assert r.files('sparkrobust').joinpath('py.typed').is_file()\n"
        "avro.encode('HoodieCommitMetadata', {'partitionToWriteStats': {}})\n"
        "try:\n    parse({'hoodie.tabel.name': 't'})\n"
        "except sr.errors.InvalidOptionError as error:\n    print(error)\n"
        "assert sys.prefix in sr.__file__, sr.__file__\n"
    )
    done = subprocess.run([python, "-c", program], capture_output=True, text=True, env=clean, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "did you mean hoodie.table.name" in done.stdout
