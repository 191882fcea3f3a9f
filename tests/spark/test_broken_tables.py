"""Paths that hold no table, another kind of one, or a broken one: said clearly, and nothing written."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

import sparkrobust as sr
from sparkrobust.errors import CorruptTableError, TableNotFoundError, UnsupportedTableError
from tests.interop.tables import completed, options, pending
from tests.spark.tables import Subject, everything_in, frame, leftovers, refused

GOOD = (1, "a", 5, "eu")
DROP_METADATA = {"hoodie.write.robust.drop.metadata.table": "true"}


@pytest.fixture
def subject(spark: SparkSession, table: Path) -> Subject:
    """A table with one row."""
    subject = Subject(spark, table, options())
    subject.write("upsert", [GOOD])
    return subject


# -- paths that hold something else --------------------------------------------------------------------


def test_a_path_without_a_table_is_said_to_have_none(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "plain").mkdir()
    for path in (tmp_path / "nowhere", tmp_path / "plain"):
        for ask in (sr.read(spark).load, sr.Table):
            with pytest.raises(TableNotFoundError, match=path.name):
                ask(str(path))
    assert set(everything_in(tmp_path)) == {"plain"}
    (tmp_path / "half" / ".hoodie" / "timeline").mkdir(parents=True)
    with pytest.raises(TableNotFoundError, match=r"without .*hoodie\.properties"):
        sr.read(spark).load(str(tmp_path / "half"))


UNSUPPORTED = {
    "cow_autokey": "no record key",
    "cow_cdc": "change log",
    "cow_drop_partition_columns": "partition columns",
    "cow_keygen_custom": "CUSTOM",
    "cow_keygen_timestamp": "TIMESTAMP",
    "cow_no_meta_fields": "meta columns",
}


def test_tables_with_features_that_we_would_write_wrongly_are_refused(
    hudi_tables: Path, spark: SparkSession, tmp_path: Path
) -> None:
    df = frame(spark, [GOOD])
    for name, words in UNSUPPORTED.items():
        path = Path(shutil.copytree(hudi_tables / name, tmp_path / name))
        writer = sr.write(df).options(**DROP_METADATA).mode("append")
        with refused(path, UnsupportedTableError, words):
            writer.save(str(path))


def set_property(table: Path, key: str, value: str) -> None:
    file = table / ".hoodie" / "hoodie.properties"
    lines = [line for line in file.read_text().splitlines() if not line.startswith(key + "=")]
    file.write_text("\n".join([*lines, f"{key}={value}", ""]))


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("hoodie.table.type", "MERGE_ON_READ", "merge-on-read"),
        ("hoodie.table.version", "6", "version 6"),
        ("hoodie.timeline.layout.version", "1", "layout 1"),
        ("hoodie.table.base.file.format", "ORC", "not parquet"),
    ],
)
def test_another_kind_of_hudi_table_is_refused_by_reads_and_writes(
    key: str, value: str, words: str, subject: Subject
) -> None:
    set_property(subject.path, key, value)
    with refused(subject.path, UnsupportedTableError, words):
        subject.write("upsert", [GOOD])
    with pytest.raises(UnsupportedTableError, match=words):
        sr.read(subject.spark).load(str(subject.path))


# -- tables that are broken ----------------------------------------------------------------------------


def test_properties_that_are_torn_or_have_a_wrong_checksum_are_named(
    subject: Subject, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Looking again and again is right while another writer is at work; here is none.
    monkeypatch.setattr("sparkrobust.world.Clock.sleep", lambda self, seconds: None)
    file = subject.path / ".hoodie" / "hoodie.properties"
    whole = file.read_bytes()
    wrong_sum = whole.replace(b"hoodie.table.checksum=", b"hoodie.table.checksum=1")
    for broken in (wrong_sum, b"", b"#only a comment\n", whole[: whole.index(b"hoodie.table.name") + 5]):
        file.write_bytes(broken)
        with refused(subject.path, CorruptTableError, "properties") as error:
            subject.write("upsert", [(2, "b", 5, "eu")])
        assert error.value.path == ".hoodie/hoodie.properties"
        with pytest.raises(CorruptTableError, match=r"hoodie\.properties"):
            sr.read(subject.spark).load(str(subject.path))
    # With the backup that an update leaves for such a moment all is well.
    file.with_name("hoodie.properties.backup").write_bytes(whole)
    assert subject.names() == {1: "a"}
    subject.write("upsert", [(2, "b", 5, "eu")])
    assert subject.names() == {1: "a", 2: "b"}


def test_a_truncated_instant_is_named(subject: Subject) -> None:
    subject.write("upsert", [(2, "b", 5, "eu")])
    file = completed(subject.path, "commit")[-1].file
    whole = file.read_bytes()
    # Another place, since what a process has read of completed instants it remembers.
    copy = subject.path.with_name("copy")
    shutil.copytree(subject.path, copy)
    torn = copy / file.relative_to(subject.path)
    torn.write_bytes(whole[: len(whole) // 2])
    subject.path = copy
    with refused(copy, CorruptTableError, file.name) as error:
        subject.write("upsert", [GOOD])
    assert str(error.value.path).endswith(file.name)
    with pytest.raises(CorruptTableError, match=file.name):
        sr.read(subject.spark).load(str(copy))
    torn.write_bytes(whole)
    subject.write("upsert", [(3, "c", 5, "eu")])
    assert subject.names() == {1: "a", 2: "b", 3: "c"}


def test_a_base_file_that_is_gone_is_named_and_no_older_one_stands_in_for_it(subject: Subject) -> None:
    subject.write("upsert", [(1, "a2", 6, "eu"), (2, "b", 5, "us")])
    for file in subject.files():
        whole = (subject.path / file).read_bytes()
        (subject.path / file).unlink()
        with refused(subject.path, CorruptTableError, file) as error:
            subject.write("upsert", [(1, "a3", 7, "eu"), (2, "b3", 7, "us")])
        assert error.value.path == file
        with pytest.raises(CorruptTableError, match=f"{file} is gone"):
            sr.read(subject.spark).load(str(subject.path))
        (subject.path / file).write_bytes(whole)
    # A partition that has what it should is written all the same.
    (gone,) = [file for file in subject.files() if file.startswith("eu")]
    (subject.path / gone).unlink()
    subject.write("upsert", [(2, "b3", 7, "us")])
    older = list(subject.path.rglob("eu/*.parquet"))
    assert len(older) == 1, "the version that would have stood in"


@pytest.mark.parametrize("left", [0, 3, 0.5, -1])
def test_a_torn_base_file_is_named_by_the_write_that_needs_it(left: float, subject: Subject) -> None:
    subject.write("upsert", [(2, "b", 5, "us")])
    file = next(name for name in subject.files() if name.startswith("eu"))
    whole = (subject.path / file).read_bytes()
    length = len(whole) + left if left < 0 else left if left > 1 else len(whole) * left
    (subject.path / file).write_bytes(whole[: int(length)])
    for operation in ("upsert", "delete", "insert"):
        before = everything_in(subject.path)
        with pytest.raises(CorruptTableError, match=file) as raised:
            subject.write(operation, [(1, "a2", 5, "eu")])
        assert raised.value.path == file
        after = everything_in(subject.path)
        kept = {path: content for path, content in after.items() if ".hoodie" not in path}
        assert kept == {path: content for path, content in before.items() if ".hoodie" not in path}
        assert not pending(subject.path) and not leftovers(subject.path)
    with pytest.raises(Exception, match=file.rpartition("/")[2]):
        sr.read(subject.spark).load(str(subject.path)).collect()
    subject.write("upsert", [(3, "c", 5, "us")])
    (subject.path / file).write_bytes(whole)
    assert subject.names() == {1: "a", 2: "b", 3: "c"}
