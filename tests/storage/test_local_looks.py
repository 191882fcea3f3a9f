"""A folder on a disk that need not be listed again: whatever happened to it meanwhile is seen."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from sparkrobust.storage import local_looks
from sparkrobust.storage.contract import Look
from sparkrobust.storage.local import LocalStorage
from sparkrobust.world import Clock

OLD_ENOUGH_SECONDS = 0.05
FOLDER = ".hoodie/timeline"


class Listings:
    """How many there were."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.count = 0
        for name in ("names_in", "names_since"):
            monkeypatch.setattr(local_looks, name, self._counted(getattr(local_looks, name)))

    def _counted(self, listing: Callable[..., Any]) -> Callable[..., Any]:
        def listed(*arguments: Any) -> Any:
            self.count += 1
            return listing(*arguments)

        return listed


@pytest.fixture
def storage(tmp_path: Path) -> LocalStorage:
    storage = LocalStorage(str(tmp_path / "table"))
    storage.make_folder(f"{FOLDER}/history")
    if storage.settles_in(FOLDER) is None:
        pytest.skip("the file system of the temporary folder is not stamped by this kernel")
    return storage


@pytest.fixture
def folder(storage: LocalStorage, tmp_path: Path) -> Path:
    return tmp_path / "table" / FOLDER


def test_a_folder_that_is_as_it_was_is_not_listed_again(
    storage: LocalStorage, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage.put(f"{FOLDER}/one", b"")
    time.sleep(OLD_ENOUGH_SECONDS)
    listings = Listings(monkeypatch)
    look = storage.look(FOLDER)
    assert storage.look(FOLDER, look) is look and look.names == {"one"}
    (folder / "one").write_bytes(b"more")  # no change of the folder
    assert storage.look(FOLDER, look) is look
    assert listings.count == 1


def test_a_folder_that_was_changed_a_moment_ago_is_listed_again(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage.put(f"{FOLDER}/one", b"")
    listings = Listings(monkeypatch)
    look = storage.look(FOLDER)
    assert look.stamp is None
    again = storage.look(FOLDER, look)
    assert again == look and listings.count == 2


def test_a_folder_that_was_changed_a_moment_ago_settles_as_soon_as_it_says(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage.put(f"{FOLDER}/one", b"")
    wait = storage.settles_in(FOLDER)
    assert wait is not None and 0 < wait < OLD_ENOUGH_SECONDS
    time.sleep(wait)
    assert storage.settles_in(FOLDER) == 0
    look = storage.look(FOLDER)
    listings = Listings(monkeypatch)
    assert storage.look(FOLDER, look) is look and not listings.count


@pytest.mark.parametrize("how", ["put", "delete", "rename", "link", "folder", "replaced"])
def test_whatever_happens_to_its_entries_is_seen(storage: LocalStorage, folder: Path, how: str) -> None:
    for name in ("one", "two"):
        storage.put(f"{FOLDER}/{name}", b"")
    time.sleep(OLD_ENOUGH_SECONDS)
    before = storage.look(FOLDER)
    assert before.stamp is not None
    if how == "put":
        storage.put_if_absent(f"{FOLDER}/three", b"1")
    elif how == "delete":
        (folder / "one").unlink()
    elif how == "rename":
        (folder / "one").rename(folder / "three")
    elif how == "link":
        os.link(folder / "one", folder / "three")
    elif how == "folder":
        (folder / "three").mkdir()
    else:
        # Another folder takes its place, which was changed at the same time as this one.
        folder.rename(folder.with_name("away"))
        folder.mkdir()
        found = os.stat(folder.with_name("away"))
        os.utime(folder, ns=(found.st_atime_ns, found.st_mtime_ns))
    wanted = {entry.name for entry in folder.iterdir() if entry.is_file()}
    after = storage.look(FOLDER, before)
    assert after is not before and after.names == wanted == set(storage.names(FOLDER))


def test_what_comes_while_the_names_are_listed_is_seen_by_the_next_look(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    time.sleep(OLD_ENOUGH_SECONDS)
    names_in = local_looks.names_in

    def slow(full: str, path: str) -> list[str] | None:
        found = names_in(full, path)
        storage.put(f"{FOLDER}/late", b"")
        return found

    monkeypatch.setattr(local_looks, "names_in", slow)
    look = storage.look(FOLDER)
    assert look.stamp is not None and look.names == frozenset()
    time.sleep(OLD_ENOUGH_SECONDS)
    assert storage.look(FOLDER, look).names == {"late"}


def test_looks_at_any_moment_between_changes_of_any_kind_miss_nothing_and_invent_nothing(
    storage: LocalStorage, folder: Path
) -> None:
    chance, look = random.Random(7), storage.look(FOLDER)
    pauses = [0.0, 0.0, 0.001, 0.004, 0.01, 0.021, 0.03]
    for number in range(100):
        there = sorted(look.names)
        kind = chance.randrange(4)
        if kind < 2 or not there:
            storage.put(f"{FOLDER}/{number}", b"")
        elif kind == 2:
            storage.delete(f"{FOLDER}/{chance.choice(there)}")
        else:
            (folder / chance.choice(there)).rename(folder / f"{number}")
        time.sleep(chance.choice(pauses))
        for _ in range(2):
            look = storage.look(FOLDER, look)
            assert look.names == {entry.name for entry in folder.iterdir() if entry.is_file()}
            time.sleep(chance.choice(pauses))


def test_a_look_beside_a_writer_is_right_once_the_writer_is_done(storage: LocalStorage) -> None:
    look = storage.look(FOLDER)
    for turn in range(15):

        def write(turn: int = turn) -> None:
            for number in range(20):
                storage.put(f"{FOLDER}/{turn}-{number}", b"")
                if number % 3 == 0:
                    storage.delete(f"{FOLDER}/{turn}-{number}")

        writer = threading.Thread(target=write)
        writer.start()
        while writer.is_alive():
            look = storage.look(FOLDER, look)
        writer.join()
        look = storage.look(FOLDER, look)
        assert look.names == set(storage.names(FOLDER))


def test_hadoops_checksums_and_folders_are_not_among_the_names(storage: LocalStorage, folder: Path) -> None:
    look = storage.look(FOLDER)
    for name in ("one", ".one.crc", ".dot"):
        (folder / name).write_bytes(b"")
    (folder / "lost").symlink_to("nowhere")
    assert storage.look(FOLDER, look).names == {"one", ".dot"} == set(storage.names(FOLDER))


def test_a_folder_that_is_gone_has_no_names(storage: LocalStorage, folder: Path) -> None:
    storage.put(f"{FOLDER}/one", b"")
    time.sleep(OLD_ENOUGH_SECONDS)
    look = storage.look(FOLDER)
    storage.delete_tree(FOLDER)
    assert storage.look(FOLDER, look) == storage.look(FOLDER) == Look(names=frozenset())
    assert storage.settles_in(FOLDER) is None


def test_what_another_one_stamps_is_listed_each_time(
    storage: LocalStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_looks, "_STAMPED_HERE", frozenset())
    time.sleep(OLD_ENOUGH_SECONDS)
    assert storage.look(FOLDER).stamp is None and storage.settles_in(FOLDER) is None
    monkeypatch.setattr(local_looks, "_CAN_ASK", False)
    assert storage.look(FOLDER).stamp is None and storage.settles_in(FOLDER) is None


class At(Clock):
    """The kernel's time is this."""

    def __init__(self, stamp_ns: int | None) -> None:
        self._stamp_ns = stamp_ns

    def stamp_ns(self) -> int | None:
        return self._stamp_ns


MOMENT = 1_700_000_000_123_000_000


@pytest.mark.parametrize(
    ("changed", "now", "says", "wait"),
    [
        (MOMENT, MOMENT + 21_000_000, True, 0),
        (MOMENT, MOMENT + 20_000_000, False, 0.01),
        (MOMENT, MOMENT + 5_000_000, False, 0.025),
        (MOMENT, MOMENT, False, 0.03),
        (MOMENT, MOMENT - 10**12, False, 0.03),  # the clock was set back
        (MOMENT, None, False, None),  # nobody tells the kernel's time
        (MOMENT // 10**9 * 10**9, MOMENT + 10**10, False, 0),  # a disk that keeps whole seconds
    ],
)
def test_a_stamp_says_something_once_its_tick_is_over(
    storage: LocalStorage,
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    changed: int,
    now: int | None,
    says: bool,
    wait: float | None,
) -> None:
    found = SimpleNamespace(st_dev=1, st_ino=2, st_mtime_ns=3, st_ctime_ns=changed)
    with monkeypatch.context() as patch:
        patch.setattr(local_looks.os, "stat", lambda path: found)
        stamp = local_looks.stamp_of(str(folder), At(now))
        assert local_looks.settles_in(str(folder), At(now)) == wait
    assert stamp == ((1, 2, 3, changed) if says else None)
