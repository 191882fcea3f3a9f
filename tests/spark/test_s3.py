"""A table in a bucket of a real S3 server: written by Spark's tasks, looked at where the server keeps it."""

from __future__ import annotations

import logging
import traceback
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import sparkrobust as sr
from fault_injection.s3_server import S3Server
from fault_injection.servers import versitygw
from fault_injection.spark import plain_reader
from sparkrobust.storage.s3_settings import S3Settings, client_of
from tests.interop.tables import OPERATION, options, pending
from tests.skipping import or_skip
from tests.spark.tables import DRIVER_BYTES, frame

BUCKET = "tables"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """A server with one bucket."""
    pytest.importorskip("botocore", reason="boto3 is not installed")
    with or_skip(lambda: versitygw(tmp_path_factory.mktemp("versitygw"))) as running:
        (running.folder / BUCKET).mkdir()
        yield running


def names(bucket_folder: Path) -> dict[int, str]:
    """By a reader that is not ours, from the server's own disk."""
    rows = plain_reader.snapshot(bucket_folder)
    assert len({row["id"] for row in rows}) == len(rows)
    return {row["id"]: row["name"] for row in rows}


def test_a_table_on_s3_takes_every_operation_and_a_failed_one_leaves_nothing(
    server: S3Server, spark: SparkSession, caplog: pytest.LogCaptureFixture
) -> None:
    name = f"t-{uuid.uuid4().hex[:8]}"
    url, folder = f"s3a://{BUCKET}/{name}", server.folder / BUCKET / name
    caplog.set_level(logging.DEBUG)
    everything_said: list[str] = []

    def write(
        operation: str, rows: list[tuple[object, ...]], mode: str = "append", *, by: str = "tasks"
    ) -> sr.WriteResult:
        most = "0" if by == "tasks" else "4194304"
        chosen = {**options(), OPERATION: operation, DRIVER_BYTES: most, **server.options()}
        result = sr.write(frame(spark, rows)).options(**chosen).mode(mode).save(url)
        everything_said.extend((repr(result), str(result), result._repr_html_()))
        return result

    write("bulk_insert", [(1, "a", 5, "eu"), (2, "b", 5, "us"), (3, "c", 5, "us")])
    result = write("upsert", [(1, "a2", 6, "eu"), (2, "late", 1, "us"), (4, "d", 5, "as")])
    assert (result.updated, result.inserted) == (1, 1)
    result = write("delete", [(3, "c", 5, "us")], by="the driver")
    assert result.deleted == 1
    assert names(folder) == {1: "a2", 2: "b", 4: "d"}
    assert not pending(folder)

    for operation in ("upsert", "bulk_insert"):
        with pytest.raises(sr.errors.InvalidKeyError, match="null or empty") as raised:
            write(operation, [(5, "e", 5, "new"), (None, "no key", 5, "eu")])
        everything_said += traceback.format_exception(raised.value)
    with pytest.raises(sr.errors.RobustWriteError) as refused:
        sr.write(frame(spark, [])).options(**server.options(), **options()).save(
            f"s3a://no-such-bucket-{name}/t"
        )
    everything_said += traceback.format_exception(refused.value)
    assert names(folder) == {1: "a2", 2: "b", 4: "d"}
    assert not pending(folder) and not (folder / "new").exists()
    client = client_of(S3Settings.of(server.options(), BUCKET))
    assert not client.list_multipart_uploads(Bucket=BUCKET).get("Uploads"), "staged files that nobody swept"

    opened = sr.Table(url, server.options())
    assert opened.name == "t" and len(opened.files()) == 3
    everything_said += [repr(opened), caplog.text]
    write("insert", [(9, "new", 1, "eu")], mode="overwrite")
    assert names(folder) == {9: "new"}
    for secret in (server.secret_key, server.access_key):
        assert secret not in "".join(everything_said)
        assert not [
            path for path in folder.rglob("*") if path.is_file() and secret.encode() in path.read_bytes()
        ]
