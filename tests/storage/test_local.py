"""What is the local store's own: Hadoop's checksums, links, scratch, folders taken away, forks."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import threading
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sparkrobust.coordinator.leftovers import begin_markers
from sparkrobust.core.names import MarkerType, begin_marker
from sparkrobust.errors import InvalidInputError, PermissionDeniedError, StorageFullError, UnavailableError
from sparkrobust.storage import posix
from sparkrobust.storage.contract import AlreadyExistsError, NotFoundError, StagedFile
from sparkrobust.storage.local import LocalStorage
from sparkrobust.storage.patience import Patience

SCRATCH = ".hoodie/.robust/.scratch"


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    storage = LocalStorage(str(tmp_path / "table"))
    storage.make_folder(".hoodie/.temp/1")
    storage.make_folder("p=1")
    return storage


@pytest.fixture
def root(storage: LocalStorage, tmp_path: Path) -> Path:
    return tmp_path / "table"


def names_below(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


# -- Hadoop's checksums --------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["create", "put", "replace", "publish", "delete", "delete_tree"])
def test_whoever_changes_a_file_removes_the_checksum_that_hadoop_laid_beside_it(
    storage: LocalStorage, root: Path, how: str
) -> None:
    stale = root / "p=1" / ".one.crc"
    if how not in ("create", "publish"):
        storage.put_if_absent("p=1/one", b"1")
    stale.write_bytes(b"crc\0")
    (root / "p=1" / ".other.crc").write_bytes(b"crc\0")
    if how == "create":
        storage.put_if_absent("p=1/one", b"2")
    elif how == "put":
        storage.put("p=1/one", b"2")
    elif how == "replace":
        storage.replace_if_unchanged("p=1/one", b"2", storage.read_versioned("p=1/one")[1])
    elif how == "publish":
        with storage.stage(".hoodie", "staged", "p=1/one") as writer:
            storage.publish(writer.finish())
    elif how == "delete":
        storage.delete("p=1/one")
    else:
        storage.delete_tree("p=1")
    assert not stale.exists()
    assert (root / "p=1" / ".other.crc").exists() == (how != "delete_tree")


def test_a_refused_create_leaves_the_checksum_of_the_file_that_is_there(
    storage: LocalStorage, root: Path
) -> None:
    storage.put_if_absent("p=1/one", b"1")
    (root / "p=1" / ".one.crc").write_bytes(b"crc\0")
    with pytest.raises(AlreadyExistsError):
        storage.put_if_absent("p=1/one", b"2")
    assert (root / "p=1" / ".one.crc").exists()


def test_checksums_of_hadoop_are_in_no_listing(storage: LocalStorage, root: Path) -> None:
    storage.put_if_absent("p=1/one", b"1")
    for name in (".one.crc", "p=1/.one.crc", ".hoodie/.hoodie.properties.crc"):
        (root / name).write_bytes(b"crc\0")
    (root / "p=1" / "plain.crc").write_bytes(b"a name that only ends so")
    assert [info.path for info in storage.list("p=1")[0]] == ["p=1/one", "p=1/plain.crc"]
    assert sorted(info.path for info in storage.walk("")) == ["p=1/one", "p=1/plain.crc"]


# -- temporary files -----------------------------------------------------------------------------


def test_nothing_of_ours_lies_around_after_any_write(storage: LocalStorage, root: Path) -> None:
    storage.put_if_absent("p=1/created", b"1")
    storage.put("p=1/put", b"1")
    storage.put("p=1/put", b"2")
    storage.replace_if_unchanged("p=1/put", b"3", storage.read_versioned("p=1/put")[1])
    with pytest.raises(AlreadyExistsError):
        storage.put_if_absent("p=1/put", b"4")
    storage.make_folder("q")
    storage.delete_tree("q")
    assert names_below(root) == {"p=1/created", "p=1/put"}


@pytest.mark.parametrize("nameless", [True, False])
def test_a_temporary_file_never_stands_among_markers_or_data(
    storage: LocalStorage, root: Path, monkeypatch: pytest.MonkeyPatch, nameless: bool
) -> None:
    seen: set[str] = set()
    fsync = os.fsync

    def look(descriptor: int) -> None:
        seen.update(names_below(root))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", look)
    if not nameless:
        monkeypatch.setattr(posix, "_create_nameless", lambda path, data: False)
    storage.put_if_absent(".hoodie/.temp/1/one.marker.CREATE", b"upload")
    storage.put_if_absent("p=1/one", b"1")
    storage.put("p=1/one", b"2")
    elsewhere = seen - {".hoodie/.temp/1/one.marker.CREATE", "p=1/one"}
    assert elsewhere
    assert all(name.startswith(f"{SCRATCH}/put-") for name in elsewhere)


def test_scratch_is_in_no_listing_and_its_old_rests_are_swept(storage: LocalStorage, root: Path) -> None:
    scratch = root / SCRATCH
    (scratch / "trash-1" / "deep").mkdir(parents=True)
    (scratch / "trash-1" / "deep" / "x.parquet").write_bytes(b"1")
    for name, age in (("put-old", 2 * 86_400), ("put-young", 60)):
        (scratch / name).write_bytes(b"1")
        modified = (scratch / name).stat().st_mtime - age
        os.utime(scratch / name, (modified, modified))
    assert list(storage.walk("")) == []
    assert storage.list(".hoodie/.robust") == ([], [])
    storage.make_folder("q")
    storage.delete_tree("q")
    assert [path.name for path in scratch.iterdir()] == ["put-young"]


@pytest.mark.parametrize("error", ["no space", "killed"])
def test_a_write_that_fails_leaves_neither_the_name_nor_a_rest(
    storage: LocalStorage, root: Path, monkeypatch: pytest.MonkeyPatch, error: str
) -> None:
    storage.put("p=1/one", b"before")

    def fail(descriptor: int) -> None:
        raise KeyboardInterrupt if error == "killed" else OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", fail)
    expected = KeyboardInterrupt if error == "killed" else UnavailableError
    for write in (storage.put, storage.put_if_absent):
        with pytest.raises(expected):
            write("p=1/two", b"2")
    with pytest.raises(expected):
        storage.put("p=1/one", b"after")
    assert names_below(root) == {"p=1/one"}
    assert storage.read("p=1/one") == b"before"


def test_a_created_file_that_may_not_outlive_a_crash_is_said_to_be_unclear(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(folder: str) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(posix, "sync_folder", fail)
    with pytest.raises(UnavailableError):
        storage.put_if_absent("p=1/one", b"1")
    assert storage.read("p=1/one") == b"1"


def test_the_names_of_staged_files_are_synced_once_for_all_when_their_folder_is_sealed(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    real = posix.sync_folder
    monkeypatch.setattr(posix, "sync_folder", lambda folder: (synced.append(folder), real(folder)))
    storage.make_staging("staging")
    storage.make_folder("marks")
    synced.clear()
    for number in range(3):
        storage.mark(f"marks/p={number}/one", b"", under="marks")
        with storage.stage("staging", f"{number}", f"p=1/{number}") as writer:
            writer.write(b"data")
            writer.finish()
    assert synced == []
    storage.seal("staging", "sealed")
    root = storage.url.removeprefix("file://")
    assert synced == [f"{root}/sealed", root]


# -- links ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("inside", ["p=1/link", "p=1"])
def test_deleting_a_tree_removes_links_and_not_what_they_lead_to(
    storage: LocalStorage, root: Path, tmp_path: Path, inside: str
) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "precious").write_bytes(b"1")
    (root / "p=1" / "link").symlink_to(tmp_path / "elsewhere")
    (root / "p=1" / "file").symlink_to(tmp_path / "elsewhere" / "precious")
    storage.delete_tree(inside)
    assert not os.path.lexists(root / "p=1" / "link")
    assert (tmp_path / "elsewhere" / "precious").read_bytes() == b"1"


def test_a_tree_behind_a_link_out_of_the_table_is_not_deleted(
    storage: LocalStorage, root: Path, tmp_path: Path
) -> None:
    (tmp_path / "elsewhere" / "deep").mkdir(parents=True)
    (tmp_path / "elsewhere" / "deep" / "precious").write_bytes(b"1")
    (root / "link").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(PermissionDeniedError, match="leads out of the table"):
        storage.delete_tree("link/deep")
    storage.delete_tree("")
    assert (tmp_path / "elsewhere" / "deep" / "precious").read_bytes() == b"1"
    assert not root.exists()


def test_a_table_whose_root_is_a_link_is_deleted_behind_it(storage: LocalStorage, tmp_path: Path) -> None:
    storage.put_if_absent("p=1/one", b"1")
    (tmp_path / "link").symlink_to(tmp_path / "table")
    linked = LocalStorage(str(tmp_path / "link"))
    linked.delete_tree("p=1")
    assert storage.list("p=1") == ([], [])


def test_a_link_in_circles_or_to_nothing_ends_no_walk(storage: LocalStorage, root: Path) -> None:
    storage.put_if_absent("p=1/one", b"1")
    (root / "p=1" / "up").symlink_to(root)
    (root / "p=1" / "nothing").symlink_to(root / "missing")
    (root / "p=1" / "itself").symlink_to(root / "p=1" / "itself")
    (root / "p=1" / "a-link-through-a-file").symlink_to(root / "p=1" / "one" / "nothing")
    assert [info.path for info in storage.walk("")] == ["p=1/one"]


# -- folders taken away, refused names -------------------------------------------------------------


def test_a_folder_goes_out_of_sight_before_its_files_go(
    storage: LocalStorage, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage.put_if_absent("p=1/one", b"1")
    seen = []
    unlink = os.unlink

    def look(path: str, *, dir_fd: int | None = None) -> None:
        seen.append((root / "p=1").exists())
        unlink(path, dir_fd=dir_fd)

    monkeypatch.setattr(os, "unlink", look)
    storage.delete_tree("p=1")
    assert seen == [False]


def test_the_table_folder_goes_first_when_everything_goes(
    storage: LocalStorage, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage.put_if_absent(".hoodie/hoodie.properties", b"1")
    storage.put_if_absent("+before.hoodie", b"1")
    renamed: list[str] = []
    rename = os.rename

    def look(source: str, target: str) -> None:
        renamed.append(os.path.basename(source))
        rename(source, target)

    monkeypatch.setattr(os, "rename", look)
    storage.delete_tree("")
    assert renamed == [".hoodie", "p=1"]
    assert not root.exists()


def test_a_name_that_the_file_system_refuses_is_bad_input(storage: LocalStorage) -> None:
    for write in (storage.put, storage.put_if_absent):
        with pytest.raises(InvalidInputError, match="name this long"):
            write("p=1/" + "x" * 300, b"1")


def test_writing_under_the_name_of_a_folder_is_refused(storage: LocalStorage) -> None:
    for write in (storage.put, storage.put_if_absent):
        with pytest.raises(AlreadyExistsError):
            write("p=1", b"1")
    storage.put_if_absent("file", b"1")
    with pytest.raises(AlreadyExistsError):
        storage.make_folder("file/inner")


@pytest.mark.parametrize("root", ["", "/", "a\0b"])
def test_a_root_that_can_be_no_table_is_refused(root: str) -> None:
    with pytest.raises(InvalidInputError):
        LocalStorage(root)


def test_a_lock_that_is_never_free_is_an_error_not_a_hang(
    storage: LocalStorage, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(posix, "_LOCK_PATIENCE", Patience(tries=3, first_pause=0.001, longest_pause=0.001))
    with posix.folder_lock(str(root / "p=1"), lambda: ""):
        with pytest.raises(UnavailableError, match="locked"):
            storage.put("p=1/one", b"1")
        storage.put_if_absent("p=1/two", b"1")
    storage.put("p=1/one", b"1")


# -- the ways a file is renamed --------------------------------------------------------------------


def test_this_system_has_a_rename_that_replaces_nothing() -> None:
    if sys.platform not in ("linux", "darwin"):
        pytest.skip(f"no such call is known on {sys.platform}")
    assert posix._rename_natively is not None


@pytest.mark.parametrize("native", [True, False])
def test_a_publish_that_was_cut_off_between_two_names_is_finished_by_the_next(
    storage: LocalStorage, root: Path, monkeypatch: pytest.MonkeyPatch, native: bool
) -> None:
    if not native:
        monkeypatch.setattr(posix, "_rename_natively", None)
    with storage.stage(".hoodie", "staged", "p=1/one") as writer:
        writer.write(b"data")
        file = writer.finish()
    os.link(root / ".hoodie/staged", root / "p=1/one")
    storage.publish(file)
    assert names_below(root) == {"p=1/one"}
    storage.delete("p=1/one")
    with pytest.raises(NotFoundError):
        storage.publish(file)


def test_an_error_names_the_path_on_the_disk(storage: LocalStorage, root: Path) -> None:
    with pytest.raises(NotFoundError) as caught:
        storage.publish(StagedFile(final_path="p=1/one", token=".hoodie/none", size=1))
    assert caught.value.path == str(root / "p=1/one")


# -- tasks -----------------------------------------------------------------------------------------


# The tests' own process has threads by now, and a fork may leave their locks held in the child for ever.
_FORKING = """
import os, sys
from sparkrobust.storage.local import LocalStorage
storage = LocalStorage(sys.argv[1])
writer = storage.stage(".hoodie", "staged", "p=1/one")
writer.write(b"data")
child = os.fork()
if child == 0:
    writer.close()
    os._exit(0)
assert os.waitpid(child, 0)[1] == 0
writer.write(b" and more")
storage.publish(writer.finish())
"""


def test_a_forked_child_that_ends_leaves_the_staged_file_to_its_parent(
    storage: LocalStorage, root: Path
) -> None:
    command = [sys.executable, "-c", _FORKING, str(root)]
    subprocess.run(command, check=True, timeout=120, env={**os.environ, "PYTHONPATH": _path()})
    assert storage.read("p=1/one") == b"data and more"


def test_pyarrow_writes_parquet_into_a_staged_file_and_reads_it_from_an_open_one(
    storage: LocalStorage,
) -> None:
    table = pa.table({"id": list(range(100_000)), "text": [f"row {number}" for number in range(100_000)]})
    with storage.stage(".hoodie", "staged", "p=1/one.parquet") as writer:
        with pq.ParquetWriter(writer, table.schema) as parquet:
            parquet.write_table(table, row_group_size=10_000)
        storage.publish(writer.finish())
    with storage.open("p=1/one.parquet") as file:
        assert pq.read_table(file).equals(table)


def test_executors_import_the_local_store_from_the_standard_library_alone() -> None:
    program = (
        "import sys\n"
        "for name in ('fsspec', 'boto3', 'botocore', 'obstore', 'fastavro', 'pyspark', 'pyarrow'):\n"
        "    sys.modules[name] = None\n"
        "import sparkrobust.storage.local, sparkrobust.storage.s3, sparkrobust.storage.resolve\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True, env={**os.environ, "PYTHONPATH": _path()})


def _path() -> str:
    return str(Path(posix.__file__).parents[2])


def test_racing_deletes_of_one_tree_all_succeed(storage: LocalStorage, root: Path) -> None:
    for _ in range(20):
        storage.make_folder("q/r")
        for number in range(20):
            (root / "q" / "r" / str(number)).touch()
        failures: list[BaseException] = []

        def delete(failures: list[BaseException] = failures) -> None:
            try:
                storage.delete_tree("q")
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=delete) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        assert not (root / "q").exists()


def test_a_mark_that_no_line_can_hold_is_a_file_beside_the_lists(storage: LocalStorage) -> None:
    storage.make_marks(".hoodie/.temp/2")
    paths = {"p=1/a.parquet", "p=a\nb/c.parquet", "d.parquet"}
    for path in paths:
        storage.mark(begin_marker("2", path, MarkerType.CREATE), b"", under=".hoodie/.temp/2")
    assert storage.stat(".hoodie/.temp/2/p=a\nb/c.parquet.marker.CREATE") is not None
    assert {path for path, _ in begin_markers(storage, "2")} == paths


def test_a_mark_that_is_a_file_beside_the_lists_counts_whatever_its_name(storage: LocalStorage) -> None:
    storage.make_marks(".hoodie/.temp/2")
    paths = {"p=1/a.parquet", "MARKERS1/b.parquet", "d.parquet"}
    for path in paths:
        mark = begin_marker("2", path, MarkerType.CREATE)
        storage.make_folder(mark.rpartition("/")[0])
        storage.put_if_absent(mark, b"")
    assert {path for path, _ in begin_markers(storage, "2")} == paths


def test_a_mark_for_which_the_disk_has_too_little_room_leaves_no_half_of_itself(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = ".hoodie/.temp/2"
    storage.make_marks(folder)
    marks = [begin_marker("2", f"p=1/{name}.parquet", MarkerType.CREATE) for name in "abc"]
    storage.mark(marks[0], b"", under=folder)
    write = os.write

    def short(descriptor: int, data: memoryview) -> int:
        if len(data) < 20:
            raise OSError(errno.ENOSPC, "")
        return write(descriptor, data[:20])

    with monkeypatch.context() as full, pytest.raises(StorageFullError):
        full.setattr(os, "write", short)
        storage.mark(marks[1], b"", under=folder)
    storage.mark(marks[2], b"", under=folder)
    assert {path for path, _ in begin_markers(storage, "2")} == {"p=1/a.parquet", "p=1/c.parquet"}
