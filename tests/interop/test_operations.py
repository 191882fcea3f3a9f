"""After each of our operations Hudi reads exactly our rows, and writes on; in every layout of a table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from tests.interop.oracle import Oracle
from tests.interop.tables import (
    COLUMNS,
    HIVE_STYLE,
    OPERATION,
    URL_ENCODE,
    Model,
    Row,
    assert_sane_meta,
    avro,
    completed,
    options,
    ordered,
    query,
    row,
    stats,
)


@dataclass(frozen=True)
class Layout:
    """A way to lay a table out, with regions that try it, and where its rows must go."""

    options: dict[str, str]
    folder: Callable[[Row], str]
    key: Callable[[Row], str]
    keys: tuple[str, ...] = ("id",)
    partitions: tuple[str, ...] = ("region",)
    ordering: str | None = "ts"
    regions: tuple[str | None, str | None, str | None] = ("eu", "us", "asia")
    rust_differs: str = ""
    row: Callable[..., Row] = field(default=row)

    def model(self) -> Model:
        """A model of an empty table of this layout."""
        return Model(self.keys, self.partitions, self.ordering)


def bare(row: Row) -> str:
    return str(row["id"])


def region_or_null(row: Row) -> str:
    return row["region"] or "__HIVE_DEFAULT_PARTITION__"


def complex_key(row: Row) -> str:
    part = {None: "__null__", "": "__empty__"}.get(row["part"], row["part"])
    return f"id:{row['id']},part:{part}"


LAYOUTS = {
    "one partition column": Layout(options(), region_or_null, bare, regions=("eu west", "é", "50%")),
    "null and empty partition values": Layout(
        options(),
        region_or_null,
        bare,
        regions=(None, "", "us"),
        rust_differs="hudi-rs takes partition values from the file, where an empty one is no null",
    ),
    "hive style": Layout(
        options(**{HIVE_STYLE: "true"}),
        lambda row: f"region={row['region']}",
        bare,
        regions=("eu", "a=b", ".x"),
    ),
    "url encoded": Layout(
        options(**{URL_ENCODE: "true"}),
        lambda row: row["region"].translate({ord(c): f"%{ord(c):02X}" for c in "%/:=?*{[]^\t"}),
        bare,
        regions=("a/b c=%é", "x/../y", "tab\t:?*[]^{}"),
    ),
    "hive style and url encoded": Layout(
        options(**{HIVE_STYLE: "true", URL_ENCODE: "true"}),
        lambda row: "region=" + row["region"].replace("%", "%25").replace("/", "%2F"),
        bare,
        regions=("/abs", "%2F", ".."),
    ),
    "two partition columns, two keys": Layout(
        options("id,part", "region,day"),
        lambda row: f"{row['region']}/{row['day']}",
        complex_key,
        keys=("id", "part"),
        partitions=("region", "day"),
    ),
    "three partition columns, hive style, one key": Layout(
        options("id", "region,shard,day", **{HIVE_STYLE: "true"}),
        lambda row: f"region={row['region']}/shard={row['shard']}/day={row['day']}",
        lambda row: f"id:{row['id']}",
        partitions=("region", "shard", "day"),
    ),
    "no partitions": Layout(options(partitions=""), lambda row: "", bare, partitions=()),
    "no partitions, two keys with null and empty parts": Layout(
        options("id,part", ""),
        lambda row: "",
        complex_key,
        keys=("id", "part"),
        partitions=(),
        row=lambda number, region, **more: row(
            number, region, **{"part": {3: "a:b,c", 9: None, 10: ""}.get(number, "k"), **more}
        ),
    ),
    "commit-time ordering": Layout(options(ordering=None), region_or_null, bare, ordering=None),
}


def with_operation(chosen: dict[str, str], operation: str) -> dict[str, str]:
    return {**chosen, OPERATION: operation}


@pytest.mark.parametrize("name", LAYOUTS)
def test_hudi_reads_our_rows_after_each_operation_and_we_read_its_rows(
    name: str, hudi: Oracle, ours: Any, table: Path
) -> None:
    layout = LAYOUTS[name]
    model, make = layout.model(), layout.row
    first, second, third = layout.regions

    def hudi_sees_exactly_our_rows() -> None:
        seen = hudi.read(table)
        assert ordered(seen) == model.expected()
        assert_sane_meta(table, seen)
        for found in seen:
            assert found["_hoodie_record_key"] == layout.key(found)
            original = next(row for row in model.rows.values() if row["id"] == found["id"])
            assert found["_hoodie_partition_path"] == layout.folder(original)

    def write(operation: str, rows: list[Row]) -> None:
        ours.write(table, query(rows), with_operation(layout.options, operation))
        (model.remove if operation == "delete" else model.put)(rows)
        hudi_sees_exactly_our_rows()
        assert avro(completed(table)[-1].file)["operationType"] == operation.upper()

    write("bulk_insert", [make(n, (first, second)[n % 2]) for n in range(1, 6)])
    write("insert", [make(7, first), make(8, third)])
    late = make(3, second, ts=5, name="late")
    write("upsert", [make(1, second, ts=20, name="updated"), late, make(9, third), make(10, first)])
    write("delete", [make(2, first, ts=1), make(8, third, ts=30), make(777, first)])
    assert ordered(ours.read(table)) == model.expected()

    hudis = [
        make(4, first, ts=40, name="by hudi"),
        make(11, second, ts=40),
        make(5, second, ts=3, name="late"),
    ]
    hudi.write(table, query(hudis), with_operation(layout.options, "upsert"))
    model.put(hudis)
    hudi.write(table, query([make(7, first)]), with_operation(layout.options, "delete"))
    model.remove([make(7, first)])
    assert ordered(ours.read(table)) == model.expected()

    write("upsert", [make(4, first, ts=50, name="ours again"), make(11, second, ts=45), make(12, third)])
    assert ordered(ours.read(table)) == model.expected()
    rust = ordered(hudi.rust(table))
    assert (rust != model.expected()) if layout.rust_differs else (rust == model.expected())


def test_our_stats_count_what_hudis_count(hudi: Oracle, ours: Any, tmp_path: Path) -> None:
    """The same operations by both writers, side by side: the numbers in the commits are the same."""
    flagged = {**COLUMNS, "_hoodie_is_deleted": "boolean"}

    def of(number: int, ts: int = 10, deleted: bool = False, region: str = "eu") -> Row:
        return {**row(number, region, ts=ts), "_hoodie_is_deleted": deleted}

    steps = [
        ("bulk_insert", [of(1), of(2), of(3), of(4, region="us")]),
        ("insert", [of(5), of(6, region="asia")]),
        ("upsert", [of(1, 20), of(2, 5), of(7, 20)]),
        ("upsert", [of(3, 20, True)]),
        ("upsert", [of(4, 1, region="us")]),
        ("delete", [of(1), of(888)]),
        ("delete", [of(889)]),
        ("delete", [of(4, region="us")]),
        ("upsert", [of(4, region="us")]),
        ("upsert", []),
    ]
    counted = (
        "partitionPath",
        "numWrites",
        "numInserts",
        "numUpdateWrites",
        "numDeletes",
        "totalWriteErrors",
    )

    def summary(table: Path) -> tuple[Any, ...]:
        numbers = sorted(tuple(stat[name] for name in counted) for stat in stats(table))
        chains = sorted((stat["partitionPath"], stat["prevCommit"] == "null") for stat in stats(table))
        record = avro(completed(table)[-1].file)
        return (
            numbers,
            chains,
            record["operationType"],
            record["extraMetadata"]["schema"],
            record["compacted"],
        )

    for number, (operation, rows) in enumerate(steps):
        chosen = with_operation(options(), operation)
        # one input partition, as the oracle makes of any query: a bulk_insert writes a file for each
        in_one = f"SELECT /*+ COALESCE(1) */ * FROM ({query(rows, flagged)})"
        ours.write(tmp_path / "ours", in_one, chosen)
        hudi.write(tmp_path / "hudis", query(rows, flagged), chosen)
        assert summary(tmp_path / "ours") == summary(tmp_path / "hudis"), f"step {number}, {operation}"
    assert ordered(hudi.read(tmp_path / "ours")) == ordered(hudi.read(tmp_path / "hudis"))


def test_our_stats_name_files_that_are_there_and_their_sizes(hudi: Oracle, ours: Any, table: Path) -> None:
    ours.write(table, query([row(1), row(2, "us")]), with_operation(options(), "insert"))
    before = {stat["fileId"]: stat for stat in stats(table)}
    ours.write(table, query([row(1, ts=20), row(3, "asia")]), with_operation(options(), "upsert"))
    after = stats(table)
    assert {stat["partitionPath"] for stat in after} == {"eu", "asia"}
    for stat in after:
        size = (table / stat["path"]).stat().st_size
        assert stat["fileSizeInBytes"] == stat["totalWriteBytes"] == size
        assert stat["path"].startswith(f"{stat['partitionPath']}/{stat['fileId']}_")
        older = before.get(stat["fileId"])
        assert stat["prevBaseFile"] == (older["path"].split("/")[-1] if older else None)
        assert stat["prevCommit"] == (completed(table)[0].requested if older else "null")
    assert {found["_hoodie_file_name"] for found in hudi.read(table) if found["region"] != "us"} == {
        stat["path"].split("/")[-1] for stat in after
    }


@pytest.mark.parametrize("operation", ["bulk_insert", "insert", "upsert"])
def test_an_empty_frame_makes_an_empty_commit_that_hudi_reads(
    operation: str, hudi: Oracle, ours: Any, table: Path
) -> None:
    ours.write(table, query([]), with_operation(options(), operation))
    (done,) = completed(table)
    assert avro(done.file)["partitionToWriteStats"] == {}
    assert hudi.read(table) == []
    assert hudi.schema(table) == {
        name: {"bigint": "long", "int": "integer"}.get(k, k) for name, k in COLUMNS.items()
    }
    ours.write(table, query([row(1)]), with_operation(options(), "upsert"))
    ours.write(table, query([]), with_operation(options(), operation))
    assert ordered(hudi.read(table)) == ordered([row(1)])
