"""What a writer of Hudi's format gets wrong unnoticed: each trap, and the test that would notice it.

A line names the module and a piece of the test's name; the first test below sees that it is there.

Properties and timeline

* no partition fields in the properties: Hudi reads no row, no error -> operations: after_each_operation
* no ordering fields there: late rows win unnoticed -> operations: after_each_operation
* no merge mode there: Hudi's upsert dies -> operations: after_each_operation
* another property, or another checksum, than Hudi would write -> traps: properties_are_those
* instants in another time zone than the table's -> traps: properties_are_those
* a stale .crc beside hoodie.properties: Hudi can't load it -> traps: stale_checksum_files
* a last commit without a schema: Hudi can't delete -> traps: hudi_deletes_after_our_delete
* schema names in the commit that are not Hudi's -> types: our_commit_describes_every_type
* wrong sizes in the stats: incremental queries break -> operations: files_that_are_there_and_their_sizes
* wrong numbers and chains in the stats -> operations: stats_count_what_hudis_count
* completion times that don't grow: increments lose commits -> alternating: ten_alternating_commits
* an instant file under a temporary name -> traps: names_that_are_no_instants
* a completed file of no bytes -> traps: completed_file_of_no_bytes
* a timeline whose start is archived -> services: archives_our_instants

Files and rows

* no .hoodie_partition_metadata: no row, and upserts insert twice -> operations: after_each_operation
* record keys that are not Hudi's text -> types: record_keys_of_every_type
* partition paths that are not Hudi's text -> types: partition_columns_of_every_type
* null and empty parts of keys and partitions; one complex key -> operations: after_each_operation
* partition values that leave their place -> traps: values_that_hudi_loses
* null elements in two-level lists -> types: refuses_null_elements
* old dates without the mark of the proleptic calendar -> types: every_type_as_plain_spark_does
* hudi-rs and timestamps without a zone -> types: every_type_but_timestamp_ntz
* names and map keys that Avro does not take -> types: avro_does_not_take
* an index that needs bloom filters meets files without -> traps: bloom_index
* stray files older than the timeline's start are rows -> traps: stray_files
* file groups that a replacecommit took out take rows again -> services: overwrites_and_drops
* folders of the old partitions after an overwrite -> services: new_table_in_place

Failures and neighbours

* data files without markers: a rollback leaves them -> dead_drivers: dead_driver_left_is_rolled_back
* a failed write that only got requested -> dead_drivers: dead_driver_left_is_rolled_back
* the wrong order or paths in a rollback -> failures: finishes_a_rollback_that_we_began
* a pending instant stops time travel -> traps: blocks_time_travel
* Hudi rolls back whatever is pending, alive or not -> failures: gives_up_when_hudi_rolled_it_back
* a commit beside a metadata table is invisible -> alternating: would_be_invisible
* a metadata table appears while we write -> alternating: seen_before_the_commit
* a pending clustering loses what is written into its groups -> services: about_to_cluster
* tables of version 8 are upgraded by Hudi's next write -> traps: that_hudi_made_is_written_on
"""

from __future__ import annotations

import datetime
import re
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import sparkrobust as sr
from tests.interop.driver import patched
from tests.interop.oracle import Oracle, OracleError
from tests.interop.tables import (
    HIVE_STYLE,
    META,
    METADATA,
    OPERATION,
    URL_ENCODE,
    Row,
    completed,
    options,
    ordered,
    properties,
    query,
    row,
)

UPSERT = options(**{OPERATION: "upsert"})

LATEST_WINS = "org.apache.hudi.common.model.OverwriteWithLatestAvroPayload"
NAMED = {"hoodie.database.name": "shop", "hoodie.table.timeline.timezone": "UTC"}
TABLES = {
    "simple": options(),
    "complex, hive style, url encoded": options(
        "id,part", "region,day", **{HIVE_STYLE: "true", URL_ENCODE: "true"}
    ),
    "not partitioned, no ordering, in a database": options("id", "", None, **NAMED),
    "an old payload class": options(**{"hoodie.datasource.write.payload.class": LATEST_WINS}),
}


def test_every_trap_of_the_list_has_its_test() -> None:
    listed = re.findall(r"^\* .* -> (\w+): (\w+)$", __doc__, re.MULTILINE)
    assert len(listed) == __doc__.count("->") > 30
    for module, piece in listed:
        source = Path(__file__).with_name(f"test_{module}.py").read_text()
        assert re.search(rf"^def test_\w*{piece}", source, re.MULTILINE), f"{module}: {piece}"


@pytest.mark.parametrize("name", TABLES)
def test_our_properties_are_those_that_hudi_writes(
    name: str, hudi: Oracle, ours: Any, tmp_path: Path
) -> None:
    hudi.write(tmp_path / "hudis", query([]), TABLES[name])
    ours.write(tmp_path / "ours", query([]), TABLES[name])
    mine, its = properties(tmp_path / "ours"), properties(tmp_path / "hudis")
    zone = "hoodie.table.timeline.timezone"
    assert mine.pop(zone) == "UTC"
    its.pop(zone)
    assert mine == its
    full_name = f"{its.get('hoodie.database.name', '')}.{its['hoodie.table.name']}"
    assert mine["hoodie.table.checksum"] == str(zlib.crc32(full_name.encode()))
    (done,) = completed(tmp_path / "ours")
    requested = datetime.datetime.strptime(done.requested + "000", "%Y%m%d%H%M%S%f")
    now = datetime.datetime.now(datetime.timezone.utc).replace(tzinfo=None)
    assert abs(now - requested) < datetime.timedelta(minutes=10)


def test_stale_checksum_files_of_hadoop_go_with_what_they_belong_to(
    hudi: Oracle, ours: Any, table: Path
) -> None:
    hudi.write(table, query([row(1)]), options(**{METADATA: "true"}))
    beside = table / ".hoodie" / ".hoodie.properties.crc"
    assert beside.exists()
    ours.write(table, query([row(2)]), {**UPSERT, "hoodie.write.robust.drop.metadata.table": "true"})
    assert not beside.exists()
    assert ordered(hudi.read(table)) == ordered([row(1), row(2)])


def test_hudi_deletes_after_our_delete(hudi: Oracle, ours: Any, table: Path) -> None:
    delete = {**UPSERT, OPERATION: "delete"}
    ours.write(table, query([row(1), row(2), row(3)]), UPSERT)
    ours.write(table, query([row(1)]), delete)
    hudi.write(table, query([row(2)]), delete)
    ours.write(table, query([row(777)]), delete)
    hudi.write(table, query([row(778)]), delete)
    assert ordered(hudi.read(table)) == ordered(ours.read(table)) == ordered([row(3)])


def test_partition_values_that_hudi_loses_are_refused_by_us(hudi: Oracle, ours: Any, tmp_path: Path) -> None:
    hudi.write(tmp_path / "hudis", query([row(1, ".."), row(2)]), UPSERT)
    assert ordered(hudi.read(tmp_path / "hudis")) == ordered([row(2)]), "Hudi commits, and the row is gone"
    for value in ("..", "a/", "x/../y", "."):
        with pytest.raises(sr.errors.UnsafePathError):
            ours.write(tmp_path / "ours", query([row(1, value), row(2)]), UPSERT)
        assert not (tmp_path / "ours" / ".hoodie" / "hoodie.properties").exists()


def test_hudis_bloom_index_needs_filters_that_our_files_lack_and_its_others_do_not(
    hudi: Oracle, ours: Any, table: Path
) -> None:
    """A limit that README names: with hoodie.index.type=BLOOM Hudi fails, and changes nothing."""
    ours.write(table, query([row(1), row(2)]), UPSERT)
    with pytest.raises(OracleError):
        hudi.write(table, query([row(1, ts=20)]), {**UPSERT, "hoodie.index.type": "BLOOM"})
    assert ordered(hudi.read(table)) == ordered([row(1), row(2)])
    hudi.write(table, query([row(1, ts=30)]), {**UPSERT, "hoodie.index.type": "SIMPLE"})
    moved = {"hoodie.index.type": "GLOBAL_SIMPLE", "hoodie.simple.index.update.partition.path": "true"}
    hudi.write(table, query([row(2, "us", ts=30)]), {**UPSERT, **moved})
    expected = ordered([row(1, ts=30), row(2, "us", ts=30)])
    assert ordered(hudi.read(table)) == ordered(ours.read(table)) == expected
    record_index = {
        METADATA: "true",
        "hoodie.metadata.record.index.enable": "true",
        "hoodie.index.type": "RECORD_INDEX",
    }
    ours.write(table, query([row(3)]), UPSERT)
    hudi.write(table, query([row(3, ts=40)]), {**UPSERT, **record_index})
    assert ordered(hudi.read(table)) == ordered([row(1, ts=30), row(2, "us", ts=30), row(3, ts=40)])


def test_stray_files_are_rows_just_when_they_are_older_than_the_timeline(
    hudi: Oracle, ours: Any, table: Path
) -> None:
    """Hudi takes them for files of archived commits, and so must every reader."""
    ours.write(table, query([row(1)]), UPSERT)
    (file,) = table.glob("eu/*.parquet")
    another = re.sub(r"^[0-9a-f]{8}", "0badcafe", file.name)
    newer = file.with_name(re.sub(r"_\d{17}\.", "_99990101000000000.", another))
    shutil.copy(file, newer)
    assert (
        ordered(hudi.read(table))
        == ordered(hudi.rust(table))
        == ordered(ours.read(table))
        == ordered([row(1)])
    )
    newer.rename(file.with_name(re.sub(r"_\d{17}\.", "_20200101000000000.", another)))
    twice = ordered([row(1), row(1)])
    assert ordered(hudi.read(table)) == ordered(hudi.rust(table)) == ordered(ours.read(table)) == twice


def test_our_failed_write_blocks_time_travel_until_our_next_one(
    hudi: Oracle, ours: Any, table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = patched(monkeypatch)
    ours.write(table, query([row(1)]), UPSERT)
    with driver.dies_before("put_if_absent", "/decision$"):
        ours.write(table, query([row(2)]), UPSERT)
    tomorrow = "99990101000000000"
    with pytest.raises(OracleError, match=r"pending|incomplete|inflight"):
        hudi.read(table, as__of__instant=tomorrow)
    ours.write(table, query([row(3)]), UPSERT)
    assert ordered(hudi.read(table, as__of__instant=tomorrow)) == ordered([row(1), row(3)])


def test_names_that_are_no_instants_are_ignored_in_the_timeline(hudi: Oracle, ours: Any, table: Path) -> None:
    """Hudi writes under such names before it renames, and a crash leaves them."""
    ours.write(table, query([row(1)]), UPSERT)
    timeline = table / ".hoodie" / "timeline"
    for name in (
        "20200101000000000.inflight.50b8a5bb-33e5-451b-9e3c-509eb28e00db",
        "20200101000000000.rollback.requested.597c4524-bc90-4bfe-8c69-6f2d55f3d700",
        "99990101000000000_99990101000000001.commit.4a202e5b-2a12-4df5-8afa-e0cfb697aac7",
        "99990101000000000_99990101000000001.commit.tmp",
        "notes.txt",
        ".hidden",
    ):
        (timeline / name).write_bytes(b"torn")
    (timeline / "a folder").mkdir()
    ours.write(table, query([row(2)]), UPSERT)
    hudi.write(table, query([row(3)]), UPSERT)
    expected = ordered([row(1), row(2), row(3)])
    assert ordered(hudi.read(table)) == ordered(hudi.rust(table)) == ordered(ours.read(table)) == expected


def test_a_completed_file_of_no_bytes_is_a_commit_that_wrote_nothing(
    hudi: Oracle, ours: Any, table: Path
) -> None:
    ours.write(table, query([row(1)]), UPSERT)
    timeline = table / ".hoodie" / "timeline"
    time = completed(table)[0].completed
    for name in (f"{time}.commit.requested", f"{time}.inflight", f"{time}_{int(time) + 1}.commit"):
        (timeline / name).touch()
    assert ordered(hudi.read(table)) == ordered(ours.read(table)) == ordered([row(1)])
    ours.write(table, query([row(2)]), UPSERT)
    assert ordered(hudi.read(table)) == ordered(ours.read(table)) == ordered([row(1), row(2)])


# -- tables that Hudi made ----------------------------------------------------------------------------

WRITTEN_ON = {
    "cow_partitioned": "id",
    "cow_nonpartitioned": "id",
    "cow_keygen_complex": "k1",
    "cow_url_encoded": "id",
    "cow_archived": "id",
    "cow_clustered": "id",
    "cow_failed_inflight": "id",
    "v8_cow": "id",
    "v8_cow_no_mdt": "id",
}


@pytest.mark.parametrize("name", WRITTEN_ON)
def test_a_table_that_hudi_made_is_written_on_and_hudi_reads_and_writes_on(
    name: str, hudi: Oracle, ours: Any, spark: Any, copy_of: Callable[[str], Path]
) -> None:
    path, key = copy_of(name), WRITTEN_ON[name]
    before = hudi.read(path)
    chosen = {OPERATION: "upsert", "hoodie.write.robust.drop.metadata.table": "true"}

    def touched(number: int, ts: int) -> Any:
        frame = sr.read(spark).load(str(path)).drop(*META).filter(f"{key} = {number}")
        return frame.selectExpr(
            *(f"CAST({ts} AS bigint) AS ts" if c == "ts" else f"`{c}`" for c in frame.columns)
        )

    victim = before[0][key]
    sr.write(touched(victim, 9_000_000)).options(**chosen).mode("append").save(str(path))

    def with_new(rows: list[Row], numbers: dict[int, int]) -> list[Row]:
        return ordered({**row, "ts": numbers.get(row[key], row["ts"])} for row in rows)

    assert with_new(before, {victim: 9_000_000}) == ordered(hudi.read(path)) == ordered(ours.read(path))
    other = before[-1][key]
    select = ", ".join("9000001L AS ts" if c == "ts" else f"`{c}`" for c in before[0] if c not in META)
    source = hudi.named(path)
    hudi.write(
        path,
        f"SELECT {select} FROM {source} WHERE {key} = {other}",
        {OPERATION: "upsert", METADATA: "false", "hoodie.table.name": properties(path)["hoodie.table.name"]},
    )
    expected = with_new(before, {victim: 9_000_000, other: 9_000_001})
    assert ordered(hudi.read(path)) == ordered(ours.read(path)) == expected
    assert properties(path)["hoodie.table.version"] == "9", "Hudi's write upgrades a table of version 8"
    sr.write(touched(other, 9_000_002)).options(**chosen).mode("append").save(str(path))
    expected = with_new(
        before, {victim: 9_000_000, other: 9_000_002} if victim != other else {other: 9_000_002}
    )
    assert ordered(hudi.read(path)) == ordered(ours.read(path)) == expected
