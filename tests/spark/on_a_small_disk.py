"""A table on a disk of a few megabytes, in a mount namespace of its own: ``on_a_small_disk.py FOLDER``."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from sparkrobust.errors import PermissionDeniedError, RobustWriteError, StorageFullError
from tests.interop.tables import options, pending
from tests.spark.conftest import small_session
from tests.spark.tables import Subject, everything_in, leftovers


def mount(folder: Path, wanted: str) -> None:
    subprocess.run(["mount", "-t", "tmpfs", "-o", wanted, "none", str(folder)], check=True)


def main(folder: Path) -> None:
    mount(folder, "size=8m")
    spark = small_session()
    subject = Subject(spark, folder / "t", options())
    subject.write("upsert", [(1, "a", 5, "eu"), (2, "b", 5, "us")])
    # About 25 MB that no codec makes smaller.
    much = spark.range(0, 100_000, 1, 2).selectExpr(
        "CAST(id AS int) AS id",
        "concat(sha2(CAST(id AS string), 512), sha2(CAST(-id AS string), 512)) AS name",
        "id AS ts",
        "'eu' AS region",
    )
    for operation, mode in (("bulk_insert", "append"), ("upsert", "append"), ("insert", "overwrite")):
        files = subject.files()
        try:
            subject.save(operation, much, mode=mode)
        except StorageFullError as error:
            assert "no space is left" in str(error), error
        else:
            raise AssertionError(f"{operation} found room")
        assert subject.files() == files and subject.names() == {1: "a", 2: "b"}
        assert not pending(subject.path) and not leftovers(subject.path)
        lying = [path for path in everything_in(subject.path) if path.endswith(".parquet")]
        assert sorted(lying) == files, lying
    subject.write("upsert", [(2, "b2", 6, "us"), (3, "c", 5, "eu")])
    assert subject.names() == {1: "a", 2: "b2", 3: "c"}

    subprocess.run(["mount", "-o", "remount,ro", str(folder)], check=True)
    for operation in ("upsert", "bulk_insert"):
        before = everything_in(folder)
        try:
            subject.write(operation, [(4, "d", 5, "eu")])
        except PermissionDeniedError as error:
            assert isinstance(error, RobustWriteError) and "read-only" in str(error).lower(), error
        else:
            raise AssertionError("a read-only disk was written")
        assert everything_in(folder) == before
    assert subject.names() == {1: "a", 2: "b2", 3: "c"}
    subprocess.run(["mount", "-o", "remount,rw", str(folder)], check=True)
    subject.write("upsert", [(4, "d", 5, "eu")])
    assert subject.names() == {1: "a", 2: "b2", 3: "c", 4: "d"}
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
    print("passed")
