"""A table in a container of a real Azure emulator: written by tasks, read by a reader that is not ours."""

from __future__ import annotations

import logging
import re
import uuid
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import sparkrobust as sr
from fault_injection.spark import plain_reader
from sparkrobust.storage.object_store import ObjectStorage
from tests.interop.driver import Driver, patched
from tests.interop.tables import OPERATION, options
from tests.servers import AzureServer, azurite
from tests.skipping import or_skip
from tests.spark.tables import DRIVER_BYTES, frame


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[AzureServer]:
    """An emulator with one container."""
    pytest.importorskip("obstore", reason="obstore is not installed")
    with or_skip(lambda: azurite(tmp_path_factory.mktemp("azurite"))) as running:
        yield running


Fetch = Callable[[], Path]


@pytest.fixture
def name() -> str:
    return f"t-{uuid.uuid4().hex[:8]}"


@pytest.fixture
def fetch(server: AzureServer, name: str, tmp_path: Path) -> Fetch:
    """Brings the whole table to the local disk, by calls of the client that are not ours."""
    import obstore
    from obstore.store import AzureStore

    where = server.options()
    store = AzureStore(
        server.container,
        account_name=server.account,
        account_key=server.key,
        endpoint=where["fs.azure.blob.endpoint"],
        client_options={"allow_http": True, "timeout": timedelta(seconds=60)},
    )

    def bring() -> Path:
        folder = tmp_path / uuid.uuid4().hex
        for page in obstore.list(store, prefix=name):
            for one in page:
                file = folder / one["path"]
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(bytes(obstore.get(store, one["path"]).bytes()))
        return folder / name

    return bring


Write = Callable[..., sr.WriteResult]


@pytest.fixture
def write(server: AzureServer, spark: SparkSession, name: str) -> Write:
    """Writes rows by tasks, and never by the driver's own hands."""

    def run(operation: str, rows: list[tuple[object, ...]], mode: str = "append") -> sr.WriteResult:
        chosen = {**options(), OPERATION: operation, DRIVER_BYTES: "0", **server.options()}
        return sr.write(frame(spark, rows)).options(**chosen).mode(mode).save(server.url(name))

    return run


def names(table: Path) -> dict[int, str]:
    rows = plain_reader.snapshot(table)
    assert len({row["id"] for row in rows}) == len(rows)
    return {row["id"]: row["name"] for row in rows}


def uncommitted(table: Path) -> list[str]:
    """Data files that no completed write has made, and what writes leave while they run."""
    completed = {re.split("[_.]", file.name)[0] for file in table.glob(".hoodie/timeline/*_*.*commit")}
    spurious = [file.name for file in table.rglob("*.parquet") if file.stem.split("_")[-1] not in completed]
    return spurious + [
        str(file) for part in (".robust", ".temp") for file in table.glob(f".hoodie/{part}/**/*")
    ]


def test_a_table_on_azure_takes_every_operation_and_a_failed_one_leaves_nothing(
    server: AzureServer, write: Write, fetch: Fetch, name: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    results = [write("bulk_insert", [(1, "a", 5, "eu"), (2, "b", 5, "us"), (3, "c", 5, "us")])]
    results.append(write("upsert", [(1, "a2", 6, "eu"), (2, "late", 1, "us"), (4, "d", 5, "as")]))
    assert (results[1].updated, results[1].inserted) == (1, 1)
    results.append(write("delete", [(3, "c", 5, "us")]))
    assert results[2].deleted == 1
    table = fetch()
    assert names(table) == {1: "a2", 2: "b", 4: "d"}
    assert uncommitted(table) == []

    with pytest.raises(sr.errors.InvalidKeyError, match="null or empty") as raised:
        write("upsert", [(5, "e", 5, "new"), (None, "no key", 5, "eu")])
    table = fetch()
    assert names(table) == {1: "a2", 2: "b", 4: "d"}
    assert uncommitted(table) == [] and not (table / "new").exists()
    write("insert", [(9, "new", 1, "eu")], mode="overwrite")
    table = fetch()
    assert names(table) == {9: "new"}

    opened = sr.Table(server.url(name), server.options())
    assert opened.guarantees().mode == "copy" and len(opened.files()) == 1
    said = caplog.text + repr(raised.value) + repr(opened) + "".join(map(repr, results))
    assert server.key not in said
    assert not [
        file for file in table.rglob("*") if file.is_file() and server.key.encode() in file.read_bytes()
    ]


DIES = {
    "before it closes the gate": ("put_if_absent", "/finalize$", "undone"),
    "before it decides": ("put_if_absent", "/decision$", "undone"),
    "before it publishes": ("publish_all", "", "done"),
    "before it deletes what it has copied": ("delete", "/staging/", "done"),
    "before its commit file": ("publish_last", "", "done"),
    "before it deletes what its commit file was copied from": ("delete", "/commit-", "done"),
}


@pytest.mark.parametrize("when", DIES)
def test_the_next_write_ends_what_a_dead_driver_has_begun(
    write: Write, fetch: Fetch, monkeypatch: pytest.MonkeyPatch, when: str
) -> None:
    driver: Driver = patched(monkeypatch, ObjectStorage)
    write("upsert", [(1, "a", 5, "eu"), (2, "b", 5, "us")])
    call, path, end = DIES[when]
    with driver.dies_before(call, path):
        write("upsert", [(1, "a2", 6, "eu"), (3, "c", 5, "as")])
    published = when == "before it deletes what its commit file was copied from"
    assert names(fetch()) == ({1: "a2", 2: "b", 3: "c"} if published else {1: "a", 2: "b"})
    result = write("upsert", [(2, "b2", 6, "us")])
    assert len(result.rolled_back) == (end == "undone")
    table = fetch()
    expected = {1: "a", 2: "b2"} if end == "undone" else {1: "a2", 2: "b2", 3: "c"}
    assert names(table) == expected
    assert uncommitted(table) == []


def test_reading_by_spark_says_what_it_lacks(
    server: AzureServer, spark: SparkSession, write: Write, name: str
) -> None:
    write("upsert", [(1, "a", 5, "eu")])
    with pytest.raises(sr.errors.UnsupportedTableError, match="no file system for abfss://") as raised:
        sr.read(spark).options(**server.options()).load(server.url(name))
    assert "hadoop-azure" in str(raised.value)
