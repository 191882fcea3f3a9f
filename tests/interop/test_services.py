"""Hudi's table services and queries over time on our instants, and its other writes on our table."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import sparkrobust as sr
from sparkrobust.formats.rollback import InstantInfo, RollbackPlan
from tests.interop.oracle import Oracle, OracleError
from tests.interop.tables import (
    METADATA,
    OPERATION,
    Model,
    Row,
    assert_sane_meta,
    avro,
    base_files,
    completed,
    options,
    ordered,
    pending,
    query,
    row,
)

UPSERT = options(**{OPERATION: "upsert"})
UPDATES = "org.apache.hudi.client.clustering.update.strategy."
NO_FILLING = {"hoodie.parquet.small.file.limit": "0"}
CLUSTER = "hoodie.clustering.plan.strategy.small.file.limit=104857600"


def batch(number: int) -> list[Row]:
    """A commit's rows: one key again and again, one new, in two partitions."""
    return [row(1, "eu", ts=10 + number, name=f"v{number}"), row(100 + number, "us", ts=number)]


def written(ours: Any, table: Path, commits: int, **more: str) -> Model:
    model = Model()
    for number in range(commits):
        ours.write(table, query(batch(number)), {**UPSERT, **more})
        model.put(batch(number))
    return model


def test_hudi_travels_in_time_and_reads_increments_over_our_commits(
    hudi: Oracle, ours: Any, table: Path
) -> None:
    model, after = Model(), []
    for number in range(4):
        ours.write(table, query(batch(number)), UPSERT)
        model.put(batch(number))
        after.append(model.expected())
    done = completed(table, "commit")
    for instant, expected in zip(done, after, strict=True):
        assert ordered(hudi.read(table, as__of__instant=instant.requested)) == expected
    assert hudi.read(table, as__of__instant="20200101000000000") == []

    def increment(begin: str, end: str | None = None) -> list[Row]:
        bounds = {"hoodie__datasource__read__begin__instanttime": begin}
        if end:
            bounds["hoodie__datasource__read__end__instanttime"] = end
        return ordered(hudi.read(table, hoodie__datasource__query__type="incremental", **bounds))

    assert increment(done[-1].completed) == []
    assert increment(done[-2].completed) == ordered(batch(3))
    assert increment(done[0].completed, done[1].completed) == ordered(batch(1))
    assert increment("0") == model.expected()
    # a deleted row is no part of an increment, nor does it bring one back
    ours.write(table, query([row(1)]), {**UPSERT, OPERATION: "delete"})
    assert increment(done[-1].completed) == []
    assert ordered(hudi.read(table, as__of__instant=done[-1].requested)) == after[-1]


def test_hudi_cleans_old_versions_of_our_files_and_we_go_on(hudi: Oracle, ours: Any, table: Path) -> None:
    model = written(ours, table, 4)
    before = base_files(table)
    (answer,) = hudi.call(f"run_clean(table => '{hudi.named(table)}', retain_commits => 1)")
    gone = before - base_files(table)
    assert len(gone) == answer["total_files_deleted"] >= 2
    (clean,) = completed(table, "clean")
    cleaned = avro(clean.file)["partitionMetadata"]
    named = {f"{part}/{name}" for part, of in cleaned.items() for name in of["successDeleteFiles"]}
    assert named == gone
    assert ordered(hudi.read(table)) == ordered(ours.read(table)) == model.expected()
    ours.write(table, query(batch(9)), UPSERT)
    model.put(batch(9))
    seen = hudi.read(table)
    assert ordered(seen) == ordered(ours.read(table)) == ordered(hudi.rust(table)) == model.expected()
    assert_sane_meta(table, seen)


def test_hudi_archives_our_instants_byte_for_byte_and_we_go_on(hudi: Oracle, ours: Any, table: Path) -> None:
    model = written(ours, table, 5)
    mine = {done.requested: done.file.read_bytes() for done in completed(table, "commit")}
    archiving = {
        "hoodie.clean.commits.retained": "1",
        "hoodie.keep.min.commits": "2",
        "hoodie.keep.max.commits": "3",
    }
    hudi.write(table, query(batch(5)), {**UPSERT, **archiving})
    model.put(batch(5))
    hudi.write(table, query(batch(6)), {**UPSERT, **archiving})
    model.put(batch(6))
    history = table / ".hoodie" / "timeline" / "history"
    archived = {
        line["instantTime"]: line["metadata"]
        for file in history.glob("*.parquet")
        for line in pq.read_table(file).to_pylist()
        if line["action"] == "commit"
    }
    assert len(archived) >= 3
    assert archived == {time: mine[time] for time in archived}
    assert not set(archived) & {done.requested for done in completed(table)}
    # files of archived commits are part of the snapshot still
    assert ordered(hudi.read(table)) == ordered(ours.read(table)) == model.expected()
    for number in (7, 8):
        ours.write(table, query(batch(number)), UPSERT)
        model.put(batch(number))
    hudi.write(table, query(batch(9)), {**UPSERT, **archiving})
    model.put(batch(9))
    assert ordered(hudi.read(table)) == ordered(ours.read(table)) == model.expected()
    assert ordered(hudi.rust(table)) == model.expected()


def test_a_job_whose_commit_hudi_has_archived_writes_nothing_when_it_runs_again(
    hudi: Oracle, ours: Any, table: Path
) -> None:
    named = {**UPSERT, OPERATION: "insert", "hoodie.write.robust.write.id": "job of the 18th"}
    first = ours.write(table, query(batch(0)), named)
    other = ours.write(table, query(batch(1)), {**named, "hoodie.write.robust.write.id": "job of the 19th"})
    archiving = {
        "hoodie.clean.commits.retained": "1",
        "hoodie.keep.min.commits": "2",
        "hoodie.keep.max.commits": "3",
        "hoodie.timeline.compaction.batch.size": "2",
    }
    history = table / ".hoodie" / "timeline" / "history"
    levels = set()
    for number in range(2, 8):
        hudi.write(table, query([row(200 + number)]), {**UPSERT, **archiving})
        gone = {first.instant, other.instant}.isdisjoint(done.requested for done in completed(table))
        if gone:
            files = {file: file.read_bytes() for file in table.rglob("*") if file.is_file()}
            before = ordered(ours.read(table))
            for earlier, rows, name in ((first, 0, "18th"), (other, 1, "19th")):
                again = {**named, "hoodie.write.robust.write.id": f"job of the {name}"}
                found = ours.write(table, query(batch(rows)), again, mode="errorifexists")
                assert found.earlier
                assert (found.instant, found.completion) == (earlier.instant, earlier.completion)
                assert (found.inserted, found.files_created, found.bytes_written) == (
                    earlier.inserted,
                    earlier.files_created,
                    earlier.bytes_written,
                )
            assert {file: file.read_bytes() for file in table.rglob("*") if file.is_file()} == files
            assert ordered(hudi.read(table)) == ordered(ours.read(table)) == before
            levels |= {file.stem.rpartition("_")[2] for file in history.glob("*.parquet")}
    assert levels >= {"0", "1"}
    # a job of another name looks through all of it, and writes
    written_now = ours.write(table, query(batch(9)), {**named, "hoodie.write.robust.write.id": "the 20th"})
    assert not written_now.earlier and len(ours.read(table)) == len(before) + len(batch(9))


def test_hudi_clusters_our_file_groups_and_we_write_into_what_it_made(
    hudi: Oracle, ours: Any, table: Path
) -> None:
    model = written(ours, table, 3, **NO_FILLING)
    us_before = {file for file in base_files(table) if file.startswith("us/")}
    assert len(us_before) == 3
    name = hudi.named(table)
    hudi.call(f"run_clustering(table => '{name}', op => 'scheduleAndExecute', options => '{CLUSTER}')")
    (clustered,) = completed(table, "replacecommit")
    replaced = avro(clustered.file)["partitionToReplaceFileIds"]
    assert len(replaced["us"]) == 3
    assert ordered(hudi.read(table)) == ordered(ours.read(table)) == model.expected()
    for number in (0, 1, 2):
        again = [row(100 + number, "us", ts=50)]
        ours.write(table, query(again), UPSERT)
        model.put(again)
    seen = hudi.read(table)
    assert ordered(seen) == ordered(ours.read(table)) == ordered(hudi.rust(table)) == model.expected()
    assert {found["_hoodie_file_name"] for found in seen}.isdisjoint(file.split("/")[1] for file in us_before)


@pytest.mark.parametrize("updates", ["SparkRejectUpdateStrategy", "SparkAllowUpdateStrategy"])
def test_we_leave_alone_what_hudi_is_about_to_cluster_and_hudi_clusters_it(
    hudi: Oracle, ours: Any, table: Path, updates: str
) -> None:
    """Hudi rejects such an upsert by default, as the clustering would lose its rows."""
    model = written(ours, table, 3, **NO_FILLING)
    name = hudi.named(table)
    hudi.call(f"run_clustering(table => '{name}', op => 'schedule', options => '{CLUSTER}')")
    with pytest.raises(OracleError, match=r"[Nn]ot allowed to update the clustering"):
        hudi.write(table, query([row(101, "us", ts=60)]), UPSERT)
    hudi.call(f"rollback_to_instant(table => '{name}', instant_time => '{_pending_commit(table)}')")
    # Where Hudi's own writers may update it, the clustering takes that back: so whatever is allowed to them.
    chosen = {"hoodie.clustering.updates.strategy": UPDATES + updates}
    with pytest.raises(sr.errors.ConflictError, match="clustering"):
        ours.write(table, query([row(101, "us", ts=60)]), {**UPSERT, **chosen})
    # new rows are no conflict: they go elsewhere
    ours.write(table, query([row(200, "us"), row(201, "asia")]), UPSERT)
    model.put([row(200, "us"), row(201, "asia")])
    assert ordered(hudi.read(table)) == ordered(ours.read(table)) == model.expected()
    hudi.call(f"run_clustering(table => '{name}', op => 'execute', options => '{CLUSTER}')")
    assert not pending(table)
    ours.write(table, query([row(101, "us", ts=60)]), UPSERT)
    model.put([row(101, "us", ts=60)])
    assert ordered(hudi.read(table)) == ordered(ours.read(table)) == model.expected()


def test_what_hudi_needs_to_execute_a_clustering_again_is_left_alone_by_our_writes(
    hudi: Oracle, ours: Any, table: Path
) -> None:
    """Its first execution died, and it has planned to roll that back."""
    model = written(ours, table, 3, **NO_FILLING)
    name, timeline = hudi.named(table), table / ".hoodie" / "timeline"
    hudi.call(f"run_clustering(table => '{name}', op => 'schedule', options => '{CLUSTER}')")
    (scheduled,) = timeline.glob("*.clustering.requested")
    plan = scheduled.name.split(".")[0]
    (timeline / f"{plan}.clustering.inflight").touch()
    step = timeline / f"{int(plan) + 1}.rollback.requested"
    info = InstantInfo(commit_time=plan, action="clustering")
    step.write_bytes(RollbackPlan(instant_to_rollback=info).to_bytes())
    before = pending(table)
    ours.write(table, query([row(200, "us"), row(201, "asia")]), UPSERT)
    model.put([row(200, "us"), row(201, "asia")])
    assert pending(table) == before
    hudi.call(f"run_clustering(table => '{name}', op => 'execute', options => '{CLUSTER}')")
    assert not pending(table) and completed(table, "rollback")
    assert ordered(hudi.read(table)) == ordered(ours.read(table)) == model.expected()


def _pending_commit(table: Path) -> str:
    (time,) = {name.split(".")[0] for name in pending(table) if ".clustering." not in name}
    return time


def test_hudi_takes_our_last_commit_back_and_we_go_on(hudi: Oracle, ours: Any, table: Path) -> None:
    model = written(ours, table, 2)
    last = [row(1, "eu", ts=99, name="regretted"), row(300, "asia")]
    ours.write(table, query(last), UPSERT)
    regretted = completed(table, "commit")[-1].requested
    name = hudi.named(table)
    hudi.call(f"rollback_to_instant(table => '{name}', instant_time => '{regretted}')")
    assert ordered(hudi.read(table)) == ordered(ours.read(table)) == model.expected()
    assert regretted not in " ".join(base_files(table))
    ours.write(table, query(batch(5)), UPSERT)
    model.put(batch(5))
    assert ordered(hudi.read(table)) == ordered(ours.read(table)) == model.expected()


def test_hudi_restores_our_table_to_a_savepoint_on_our_commit_and_we_go_on(
    hudi: Oracle, ours: Any, table: Path
) -> None:
    model = written(ours, table, 2)
    saved = completed(table, "commit")[-1].requested
    name = hudi.named(table)
    hudi.call(f"create_savepoint(table => '{name}', commit_time => '{saved}')")
    for number in (7, 8):
        ours.write(table, query(batch(number)), UPSERT)
    hudi.call(f"rollback_to_savepoint(table => '{name}', instant_time => '{saved}')")
    assert ordered(hudi.read(table)) == ordered(ours.read(table)) == model.expected()
    ours.write(table, query(batch(9)), UPSERT)
    model.put(batch(9))
    assert ordered(hudi.read(table)) == ordered(ours.read(table)) == model.expected()


def test_neither_hudi_nor_we_write_while_hudi_restores_our_table_and_the_same_restore_again_ends_that(
    hudi: Oracle, ours: Any, table: Path, tmp_path: Path
) -> None:
    model = written(ours, table, 2)
    saved = completed(table, "commit")[-1].requested
    hudi.call(f"create_savepoint(table => '{hudi.named(table)}', commit_time => '{saved}')")
    ours.write(table, query(batch(7)), UPSERT)
    _died_restoring(hudi, table, saved, tmp_path / "copy")
    before = pending(table)
    with pytest.raises(OracleError, match="Found pending restore in active timeline"):
        hudi.write(table, query(batch(8)), UPSERT)
    with pytest.raises(sr.errors.ConflictError, match="is being restored"):
        ours.write(table, query(batch(8)), UPSERT)
    assert pending(table) == before
    hudi.call(f"rollback_to_savepoint(table => '{hudi.named(table)}', instant_time => '{saved}')")
    assert not pending(table)
    assert ordered(hudi.read(table)) == ordered(ours.read(table)) == model.expected()
    ours.write(table, query(batch(9)), UPSERT)
    model.put(batch(9))
    assert ordered(hudi.read(table)) == ordered(ours.read(table)) == model.expected()


def _died_restoring(hudi: Oracle, table: Path, saved: str, copy: Path) -> None:
    """Leave the table as Hudi's restore does that died before its first step: a copy tells what it plans."""
    shutil.copytree(table, copy)
    hudi.call(f"rollback_to_savepoint(table => '{hudi.named(copy)}', instant_time => '{saved}')")
    (plan,) = (copy / ".hoodie" / "timeline").glob("*.restore.requested")
    shutil.copy(plan, table / ".hoodie" / "timeline")
    (table / ".hoodie" / "timeline" / plan.name.replace("requested", "inflight")).touch()


def test_hudi_overwrites_and_drops_partitions_of_our_table_and_we_go_on(
    hudi: Oracle, ours: Any, table: Path
) -> None:
    rows = [row(n, ("eu", "us", "asia")[n % 3]) for n in range(1, 7)]
    ours.write(table, query(rows), UPSERT)
    hudi.write(table, query([row(50, "us")]), {**UPSERT, OPERATION: "insert_overwrite"})
    drop = {"hoodie.datasource.write.partitions.to.delete": "asia"}
    hudi.write(table, query([row(2, "asia")]), {**UPSERT, OPERATION: "delete_partition", **drop})
    model = Model()
    model.put([row(3), row(6), row(50, "us")])
    assert ordered(hudi.read(table)) == ordered(ours.read(table)) == model.expected()
    # the replaced groups may not take rows again
    again = [row(1, "us", ts=20), row(2, "asia", ts=20), row(3, "eu", ts=20)]
    ours.write(table, query(again), UPSERT)
    model.put(again)
    assert (
        ordered(hudi.read(table))
        == ordered(ours.read(table))
        == ordered(hudi.rust(table))
        == model.expected()
    )


def test_hudi_builds_its_metadata_table_over_our_commits(hudi: Oracle, ours: Any, table: Path) -> None:
    model = written(ours, table, 3)
    hudi.write(table, query(batch(3)), {**UPSERT, METADATA: "true"})
    model.put(batch(3))
    on = hudi.read(table, hoodie__metadata__enable="true", hoodie__enable__data__skipping="true")
    assert ordered(on) == model.expected()
    validated = hudi.call(f"validate_metadata_table_files(table => '{hudi.named(table)}')")
    assert all(line["is_present_in_fs"] and line["is_resent_in_metadata"] for line in validated), validated
    assert ordered(ours.read(table)) == model.expected()


def test_our_overwrite_gives_hudi_a_new_table_in_place_of_the_old_one(
    hudi: Oracle, ours: Any, table: Path
) -> None:
    hudi.write(table, query([row(1), row(2, "us")]), UPSERT)
    other = options("part", "shard", "id", **{OPERATION: "upsert"})
    new = [row(5, shard=0), row(6, shard=1), row(7, shard=1)]
    ours.write(table, query(new), other, "overwrite")
    assert ordered(hudi.read(table)) == ordered(ours.read(table)) == ordered(new)
    hudi.write(table, query([row(6, shard=1, name="by hudi"), row(8, shard=0)]), other)
    expected = ordered([row(5, shard=0), row(6, shard=1, name="by hudi"), row(7, shard=1), row(8, shard=0)])
    assert ordered(hudi.read(table)) == ordered(ours.read(table)) == expected
    hudi.write(table, query([row(9)]), UPSERT, "overwrite")
    assert ordered(ours.read(table)) == ordered([row(9)])
    ours.write(table, query([row(9, ts=20, name="ours")]), UPSERT)
    assert ordered(hudi.read(table)) == ordered([row(9, ts=20, name="ours")])
