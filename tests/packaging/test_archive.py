"""The archive for ``spark-submit --py-files``: what is in it, and that it is all a cluster needs."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from fault_injection.spark.class_archive import settings_folder, small_jvm
from fault_injection.spark.cluster import Cluster
from fault_injection.spark.places import LOOPBACK
from tests.packaging.conftest import run
from tools.docs import ROOT
from tools.make_zip import build
from tools.submit import spark_home


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("zip") / "sparkrobust.zip")


def test_the_archive_is_the_same_bytes_every_time(archive: Path, tmp_path: Path) -> None:
    assert build(tmp_path / "again.zip").read_bytes() == archive.read_bytes()


def test_the_archive_holds_the_package_and_its_data_and_nothing_else(archive: Path) -> None:
    tracked = subprocess.run(["git", "ls-files", "sparkrobust"], cwd=ROOT, capture_output=True, text=True)
    inside = set(zipfile.ZipFile(archive).namelist())
    assert {name.split("/")[0] for name in inside} == {"sparkrobust"}
    assert not [name for name in inside if name.endswith(".pyc")]
    assert "sparkrobust/py.typed" in inside and "sparkrobust/formats/avsc/HoodieCommitMetadata.avsc" in inside
    if tracked.returncode == 0:  # not in an unpacked source archive
        assert set(tracked.stdout.split()) <= inside


def test_the_package_finds_its_data_files_inside_of_the_archive(archive: Path, tmp_path: Path) -> None:
    program = (
        "import sparkrobust\n"
        "from sparkrobust.formats import avro\n"
        "value = {'partitionToWriteStats': {}, 'extraMetadata': {'a': 'b'}, 'operationType': 'UPSERT'}\n"
        "data = avro.encode('HoodieCommitMetadata', value)\n"
        "print(sparkrobust.__file__, avro.decode(data, 'HoodieCommitMetadata', path='x')['extraMetadata'])\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(archive)}
    done = subprocess.run(
        [sys.executable, "-P" if sys.version_info >= (3, 11) else "-s", "-c", program],
        capture_output=True, text=True, env=environment, cwd=tmp_path,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == f"{archive}/sparkrobust/__init__.py {{'a': 'b'}}"


def test_a_job_submitted_with_the_archive_writes_from_workers_that_have_only_pyarrow_and_spark(
    archive: Path, bare_python: str, tmp_path: Path
) -> None:
    # Neither the workers nor the driver may find the package in this folder.
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment |= {"SPARK_HOME": str(spark_home()), "PYSPARK_PYTHON": bare_python}
    environment |= {"PYSPARK_DRIVER_PYTHON": sys.executable, "SPARK_LOCAL_IP": LOOPBACK}
    environment |= {"SPARK_CONF_DIR": str(settings_folder())}
    settings = {
        "spark.driver.host": LOOPBACK,
        "spark.driver.bindAddress": LOOPBACK,
        "spark.ui.enabled": "false",
        "spark.executor.memory": "600m",
        "spark.driver.memory": "600m",
        "spark.sql.shuffle.partitions": "2",
        "spark.driver.extraJavaOptions": small_jvm(),
        "spark.executor.extraJavaOptions": small_jvm(),
    }
    flags = [part for key, value in settings.items() for part in ("--conf", f"{key}={value}")]
    job = tmp_path / "cluster_job.py"
    job.write_text((Path(__file__).parent / "cluster_job.py").read_text())
    place = tmp_path / "cluster"
    with Cluster(place, isolated=False, python=bare_python, environment=environment) as cluster:
        submit = [str(spark_home() / "bin" / "spark-submit"), "--master", cluster.url, *flags]
        command = [*submit, "--py-files", str(archive), str(job), str(tmp_path / "table"), "1000"]
        said = run(command, environment, folder=tmp_path)
    lower = sum(range(500))
    upper = 2 * sum(range(500, 1010))
    assert f"found [(1, 500, {lower}), (2, 510, {upper})]" in said
    (package,) = [line for line in said.splitlines() if line.startswith("package ")]
    assert "sparkrobust.zip" in package and str(ROOT) not in package
