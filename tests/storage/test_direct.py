"""What tasks of a write in mode direct finish is visible at once, whole, and can be taken back."""

from __future__ import annotations

import os
import pickle
from collections.abc import Callable
from pathlib import Path

import pytest

from sparkrobust.storage.contract import NotFoundError, Storage
from sparkrobust.storage.direct import DirectStorage
from sparkrobust.storage.local import LocalStorage

STAGING = ".hoodie/.robust/1-a/staging"


@pytest.fixture(params=["local", "s3", "azure"])
def inner(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    if request.param != "local":
        made: Callable[[], Storage] = request.getfixturevalue(f"{request.param}_table")
        return made()
    return LocalStorage(str(tmp_path / "table"))


@pytest.fixture
def direct(inner: Storage) -> Storage:
    """As a task has it: it has travelled."""
    inner.make_staging(STAGING)
    copy: Storage = pickle.loads(pickle.dumps(DirectStorage(inner)))
    return copy


def test_a_data_file_is_visible_whole_when_it_is_finished_and_not_before(
    inner: Storage, direct: Storage
) -> None:
    with direct.stage(STAGING, "one", "p/f.parquet") as writer:
        writer.write(b"rows")
        assert writer.tell() == 4 and inner.stat("p/f.parquet") is None
        file = writer.finish()
    assert inner.read("p/f.parquet") == b"rows"
    assert file.in_place and (file.final_path, file.size) == ("p/f.parquet", 4)
    assert file.moved(STAGING, "elsewhere") == file


def test_a_data_file_that_lost_is_deleted_and_one_that_is_not_finished_never_comes_to_be(
    inner: Storage, direct: Storage
) -> None:
    with direct.stage(STAGING, "one", "p/f.parquet") as writer:
        file = writer.finish()
    direct.discard(file.token)
    direct.discard(file.token)
    with pytest.raises(ZeroDivisionError), direct.stage(STAGING, "two", "p/g.parquet") as writer:
        writer.write(b"rows")
        raise ZeroDivisionError
    assert inner.list("p")[0] == [] and list(inner.walk(STAGING)) == []


def test_what_is_no_data_file_is_staged_as_ever(inner: Storage, direct: Storage) -> None:
    with direct.stage(STAGING, "one", ".hoodie/timeline/1_2.commit") as writer:
        file = writer.finish()
    assert not file.in_place and inner.stat(file.final_path) is None
    direct.discard(file.token)
    with pytest.raises(NotFoundError):
        inner.publish(file)


def test_where_there_are_folders_a_task_that_comes_late_makes_nothing_visible(
    inner: Storage, direct: Storage
) -> None:
    if not inner.staging.has_folders:
        pytest.skip("this store has no folders")
    writer = direct.stage(STAGING, "one", "p/f.parquet")
    inner.seal(STAGING, STAGING.replace("staging", "sealed"))
    with pytest.raises(NotFoundError):
        writer.finish()
    assert inner.stat("p/f.parquet") is None


def test_all_else_is_what_the_store_beneath_does(inner: Storage, direct: Storage) -> None:
    direct.make_folder("a")
    direct.put_if_absent("a/one", b"1")
    _, version = direct.read_versioned("a/one")
    direct.replace_if_unchanged("a/one", b"2", version)
    direct.put("a/two", b"3")
    with direct.open("a/two") as file:
        assert file.read() == b"3"
    assert [*direct.names("a")] == ["one", "two"] == sorted(p.path[2:] for p in direct.walk("a"))
    assert direct.list("a") == inner.list("a") and direct.stat("a/one") == inner.stat("a/one")
    assert direct.read("a/one") == b"2" and direct.url == inner.url and direct.staging is inner.staging
    direct.delete("a/one")
    direct.delete_tree("a")
    assert inner.list("a")[0] == []


def test_nothing_that_a_store_may_do_better_is_done_by_the_contracts_own_way() -> None:
    asked = {name for name in vars(Storage) if not name.startswith("_")}
    assert asked <= vars(DirectStorage).keys()


def test_a_begin_marker_is_durable_before_its_file_can_be_visible(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage, synced, fsync = LocalStorage(str(tmp_path / "table")), set[str](), os.fsync

    def watched(descriptor: int) -> None:
        synced.add(os.readlink(f"/proc/self/fd/{descriptor}"))
        fsync(descriptor)

    storage.make_marks("marks")
    monkeypatch.setattr(os, "fsync", watched)
    storage.mark("marks/f.parquet.marker.CREATE", b"", under="marks")
    assert synced == set()
    folder = tmp_path / "table" / "marks"
    (tells,) = folder.glob("MARKERS[0-9]*")
    tells.unlink()
    DirectStorage(storage).mark("marks/g.parquet.marker.CREATE", b"", under="marks")
    assert synced == {str(tells), str(folder)}
    synced.clear()
    DirectStorage(storage).mark("marks/h.parquet.marker.CREATE", b"", under="marks")
    assert synced == {str(tells)}
