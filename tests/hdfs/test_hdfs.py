"""What holds on HDFS besides the contract of every store: deaths, lost answers, forks, users, quotas."""

from __future__ import annotations

import io
import itertools
import os
import pickle
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from fault_injection.servers import free_port
from sparkrobust.coordinator import rollback
from sparkrobust.coordinator.table import HudiTable
from sparkrobust.errors import CorruptTableError, PermissionDeniedError, StorageFullError, UnavailableError
from sparkrobust.storage import hdfs_requests
from sparkrobust.storage.contract import AlreadyExistsError, ChangedError, NotFoundError, StagedFile
from sparkrobust.storage.hdfs import HdfsStorage
from sparkrobust.storage.hdfs_scratch import SCRATCH
from sparkrobust.storage.hdfs_settings import client_of
from sparkrobust.storage.patience import Patience
from sparkrobust.storage.resolve import storage_for
from sparkrobust.testing import storage_races as races
from tests.hdfs_server import BLOCK, HdfsServer

QUICK = Patience(tries=3, first_pause=0.01, longest_pause=0.02)
DAY_MS = 24 * 3600 * 1000


class Death(BaseException):
    """The process is gone."""


class Weak:
    """A client for which one request goes wrong: the process dies, or the answer is lost."""

    def __init__(self, client: Any, which: int, how: str) -> None:
        self._client, self._which, self._how = client, which, how
        self.calls = 0

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._client, name)

        def call(*arguments: Any) -> Any:
            if self.calls > self._which and self._how.startswith("dies"):
                raise Death
            self.calls += 1
            if self.calls - 1 != self._which:
                return real(*arguments)
            if self._how == "dies before":
                raise Death
            answer = real(*arguments)
            if self._how == "dies after":
                raise Death
            del answer
            raise OSError("the connection is gone")

        return call


@pytest.fixture
def base(storage: HdfsStorage) -> HdfsStorage:
    """A root with a table's folder, and one for objects."""
    storage.make_folder(".hoodie")
    storage.make_folder("a")
    storage.make_staging("staging")
    return storage


def weakly(
    monkeypatch: pytest.MonkeyPatch, storage: HdfsStorage, which: int, how: str, action: Callable[[], Any]
) -> tuple[Weak, Any]:
    """Run the action with this request going wrong; what it raised or gave."""
    weak = Weak(client_of(storage._requests.settings), which, how)
    with monkeypatch.context() as patched:
        patched.setattr(hdfs_requests, "client_of", lambda settings: weak)
        try:
            return weak, action()
        except (Death, Exception) as error:
            return weak, error


def raw(storage: HdfsStorage) -> Any:
    return client_of(storage._requests.settings)


def scratch(storage: HdfsStorage) -> list[str]:
    """All files in the scratch folder, which listings don't show."""
    full = storage._full(SCRATCH)
    return [found.path for found in raw(storage).list_status(full, True) if not found.isdir]


# -- replacing -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("how", ["dies before", "dies after", "its answer is lost"])
def test_a_replacement_that_ends_at_any_request_has_happened_or_not_and_stops_nobody(
    base: HdfsStorage, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    path = ".hoodie/count"
    for which in itertools.count():
        base.delete(path)
        base.put_if_absent(path, b"0")
        version = base.read_versioned(path)[1]
        weak, found = weakly(
            monkeypatch, base, which, how, lambda v=version: base.replace_if_unchanged(path, b"1", v)
        )
        if weak.calls <= which:
            break
        now = base.read(path)
        if how == "its answer is lost":
            assert isinstance(found, str) and now == b"1", f"request {which} came to {found!r}"
        assert now in (b"0", b"1"), "a reader finds a whole file at every moment"
        # Once the next one has tried, nothing of the first is still to come.
        lost = races.add_one(base, path, 1)
        assert lost <= 1
        after = int(base.read(path))
        assert after in ((1, 2) if now == b"0" else (2,)) and after == 1 + (now == b"1" or lost == 1)
    assert which > 10


def test_a_reader_finds_a_valid_file_while_it_is_replaced_again_and_again(base: HdfsStorage) -> None:
    path, times = ".hoodie/count", 10
    base.put_if_absent(path, b"%09d" % 0)
    done: list[int] = []

    def write_or_read(which: int) -> set[int]:
        if which < 2:
            races.add_one(base, path, times)
            done.append(which)
            return set()
        seen = set()
        while len(done) < 2:
            seen.add(int(base.read(path)))
        return seen

    seen = set().union(*races.together(4, write_or_read))
    assert int(base.read(path)) == 2 * times and len(seen) > 2


def test_who_slept_between_claim_and_rename_replaces_nothing_that_came_later(base: HdfsStorage) -> None:
    path = ".hoodie/one"
    base.put_if_absent(path, b"old")
    version = base.read_versioned(path)[1]
    replacing, full = base._replacing, base._full(path)
    asleep = replacing._next(full, b"of the sleeper", version)
    assert replacing._claimed(full, version, asleep)
    with pytest.raises(ChangedError):
        base.replace_if_unchanged(path, b"new", version)
    assert base.read(path) == b"of the sleeper"
    base.replace_if_unchanged(path, b"newer", base.read_versioned(path)[1])
    with pytest.raises(NotFoundError):
        replacing._install(full, asleep)
    replacing._explain(full, asleep)  # which was installed
    assert base.read(path) == b"newer"


def test_what_is_deleted_does_not_come_back_by_who_slept_while_replacing_it(base: HdfsStorage) -> None:
    path = ".hoodie/one"
    base.put_if_absent(path, b"old")
    version = base.read_versioned(path)[1]
    replacing, full = base._replacing, base._full(path)
    asleep = replacing._next(full, b"of the sleeper", version)
    assert replacing._claimed(full, version, asleep)
    base.delete(path)
    with pytest.raises(NotFoundError):
        replacing._install(full, asleep)
    with pytest.raises(NotFoundError):
        replacing._explain(full, asleep)
    assert base.stat(path) is None
    base.put_if_absent(path, b"old")
    base.replace_if_unchanged(path, b"new", base.read_versioned(path)[1])
    assert base.read(path) == b"new"


def test_a_replacement_that_slips_in_between_a_delete_and_its_look_is_deleted_too(
    base: HdfsStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = ".hoodie/one"
    base.put_if_absent(path, b"old")
    version = base.read_versioned(path)[1]
    replacing, full = base._replacing, base._full(path)
    asleep = replacing._next(full, b"of the sleeper", version)
    assert replacing._claimed(full, version, asleep)
    look = replacing.stop
    wakes = iter([lambda: replacing._install(full, asleep)])

    def stop(which: str) -> bool:
        for wake in wakes:
            wake()
        return look(which)

    monkeypatch.setattr(replacing, "stop", stop)
    base.delete(path)
    assert base.stat(path) is None


# -- answers that are lost -----------------------------------------------------------------------------


def test_a_lost_answer_to_any_request_of_a_put_or_a_publish_is_found_out(
    base: HdfsStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def staged(which: int) -> StagedFile:
        with base.stage("staging", f"{which}", f"b{which}/one") as writer:
            writer.write(b"data")
            return writer.finish()

    for which in itertools.count():
        file = staged(which)
        put, found = weakly(
            monkeypatch, base, which, "lost", lambda path=f"a/{which}": base.put_if_absent(path, b"data")
        )
        assert found is None and base.read(f"a/{which}") == b"data"
        publish, found = weakly(monkeypatch, base, which, "lost", lambda one=file: base.publish(one))
        assert found is None and base.read(f"b{which}/one") == b"data"
        with pytest.raises(AlreadyExistsError):
            base.put_if_absent(f"a/{which}", b"data")
        if put.calls <= which and publish.calls <= which:
            break
    assert which > 4
    assert list(base.walk("staging")) == []
    left = [path for path in scratch(base) if raw(base).get_file_info(path).length]
    assert len(left) <= which, "at most one file for each answer that was lost"


def test_what_has_the_name_after_a_lost_answer_is_not_ours_if_it_differs(
    base: HdfsStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    def overtaken() -> None:
        real = base._requests.status

        def status(full: str) -> Any:
            """Our file is swept away, and somebody else has the name."""
            if SCRATCH in full:
                raw(base).delete(full, False)
            return real(full)

        with monkeypatch.context() as patched:
            patched.setattr(base._requests, "status", status)
            base.put_if_absent("a/one", b"ours")

    base.put_if_absent("a/one", b"theirs")
    with pytest.raises(AlreadyExistsError):
        overtaken()
    assert base.read("a/one") == b"theirs"


# -- what crashes leave --------------------------------------------------------------------------------


def test_what_crashes_left_is_swept_after_a_day_and_not_before(
    base: HdfsStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = ".hoodie/one"
    base.put_if_absent(path, b"1")
    version = base.read_versioned(path)[1]
    base.replace_if_unchanged(path, b"2", version)
    old, young = (base._scratch.write(base._full("a/x"), b"left") for _ in range(2))
    (claim,) = (one for one in scratch(base) if one not in (old, young))
    now = raw(base).get_file_info(base._full(SCRATCH)).modification_time
    for one in (old, claim):
        raw(base).set_times(one, now - DAY_MS - 60_000, now)
    raw(base).set_times(young, now - DAY_MS + 60_000, now)
    base.delete_tree("nothing")
    assert scratch(base) == [young]


# -- processes -----------------------------------------------------------------------------------------


def test_a_forked_child_uses_hdfs_and_ends_though_its_parent_uses_it_too(base: HdfsStorage) -> None:
    program = """
import os, sys
from sparkrobust.storage.hdfs import HdfsStorage
storage = HdfsStorage(sys.argv[1])
storage.put_if_absent("a/parent", b"1")
unfinished = storage.stage("staging", "of the parent", "a/final")
unfinished.write(b"1")
child = os.fork()
storage.put_if_absent("a/child" if child == 0 else "a/after", b"2")
if child == 0:
    del unfinished
    sys.exit(7)  # in the ordinary way, which throws everything away
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
storage.publish(unfinished.finish())
"""
    root = str(Path(__file__).parents[2])
    command = [sys.executable, "-W", "ignore", "-c", program, base.url]
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": root}, timeout=120, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert [info.path for info in base.list("a")[0]] == ["a/after", "a/child", "a/final", "a/parent"]


def test_what_travels_is_small_and_needs_no_configuration_where_it_arrives(
    hdfs_server: HdfsServer, base: HdfsStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HADOOP_CONF_DIR", str(hdfs_server.conf))
    storage = storage_for(base.url.replace(hdfs_server.url, "hdfs://"))
    assert storage.url.startswith("hdfs:///")
    sent = pickle.dumps(storage)
    monkeypatch.delenv("HADOOP_CONF_DIR")
    assert len(sent) < 2_000
    pickle.loads(sent).put_if_absent("a/one", b"1")
    assert base.read("a/one") == b"1"


# -- files of several blocks ---------------------------------------------------------------------------


def test_every_block_of_a_staged_file_is_synced_before_the_next_one_begins(
    base: HdfsStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = []
    data = os.urandom(2 * BLOCK + 12_345)
    with base.stage("staging", "one", "a/final") as writer:
        open_file = writer._open  # type: ignore[attr-defined]
        real = open_file._sync
        monkeypatch.setattr(open_file, "_sync", lambda: (real(), synced.append(open_file._size)))
        for start in range(0, len(data), 777_777):
            writer.write(data[start : start + 777_777])
        base.publish(writer.finish())
    assert synced == [BLOCK, 2 * BLOCK, len(data)]
    assert base.read("a/final") == data


class Sized(io.BytesIO):
    """Bytes that know how many they are, as the client's files do."""

    def __len__(self) -> int:
        return len(self.getbuffer())


class Late:
    """A client to which some files seem to end where their last block begins, a number of times."""

    def __init__(self, client: Any, shown: int, times: int) -> None:
        self._client, self._shown, self.times = client, shown, times

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)

    def read(self, full: str) -> Any:
        found = self._client.read(full)
        self.times -= 1
        return Sized(found.read(self._shown)) if self.times >= 0 else found


@pytest.mark.parametrize("full_blocks", [0, 1])
def test_a_file_whose_last_block_is_not_reported_yet_is_waited_for_and_never_read_short(
    base: HdfsStorage, monkeypatch: pytest.MonkeyPatch, full_blocks: int
) -> None:
    data = os.urandom(full_blocks * BLOCK + 7)
    base.put_if_absent("a/one", data)
    for read in (base.read, lambda path: base.read_versioned(path)[0], lambda path: base.open(path).read()):
        late = Late(raw(base), full_blocks * BLOCK, times=3)
        with monkeypatch.context() as patched:
            patched.setattr(hdfs_requests, "client_of", lambda settings, late=late: late)
            assert read("a/one") == data
        assert late.times < 0
    with monkeypatch.context() as patched:
        never = Late(raw(base), full_blocks * BLOCK, times=1_000)
        patched.setattr(hdfs_requests, "client_of", lambda settings: never)
        with pytest.raises(UnavailableError, match="last block"):
            HdfsStorage(base.url, patience=QUICK).read("a/one")


# -- errors --------------------------------------------------------------------------------------------


def test_a_full_quota_a_stranger_and_a_namenode_that_is_not_there_are_told_apart(
    hdfs_server: HdfsServer, base: HdfsStorage, monkeypatch: pytest.MonkeyPatch
) -> None:
    base.put_if_absent("a/there", b"1")
    hdfs_server.admin("-setSpaceQuota", "100k", base._root)
    for write in (lambda: base.put_if_absent("a/one", b"1"), lambda: base.put("a/there", b"2")):
        with pytest.raises(StorageFullError, match="quota"):
            write()
    with pytest.raises(StorageFullError), base.stage("staging", "one", "a/final") as writer:
        writer.write(b"1")
        writer.finish()
    assert base.read("a/there") == b"1" and base.stat("a/one") is None
    assert list(base.walk("staging")) == []

    monkeypatch.setenv("HADOOP_USER_NAME", "stranger")
    stranger = HdfsStorage(base.url, {"dfs.client.use.datanode.hostname": "false"})
    assert stranger.read("a/there") == b"1"
    for change in (
        lambda: stranger.put_if_absent("a/one", b""),
        lambda: stranger.delete("a/there"),
        lambda: stranger.delete_tree("a"),
        lambda: stranger.make_folder("b"),
        lambda: stranger.stage("staging", "one", "a/final"),
    ):
        with pytest.raises(PermissionDeniedError, match="HADOOP_USER_NAME"):
            change()
    assert base.read("a/there") == b"1"

    nobody = HdfsStorage(f"hdfs://127.0.0.1:{free_port()}/t", patience=QUICK)
    for use in (lambda: nobody.read("one"), lambda: nobody.put_if_absent("one", b"1")):
        with pytest.raises(UnavailableError, match="no clear answer"):
            use()


def test_a_namenode_that_is_stopped_for_a_while_is_waited_for(
    hdfs_server: HdfsServer, base: HdfsStorage
) -> None:
    hdfs_server.namenode.send_signal(signal.SIGSTOP)
    try:
        began = time.monotonic()
        waiting = subprocess.Popen(
            [sys.executable, "-c", _PUT, base.url], env={**os.environ, "PYTHONPATH": str(Path.cwd())}
        )
        with pytest.raises(subprocess.TimeoutExpired):
            waiting.wait(3)
    finally:
        hdfs_server.namenode.send_signal(signal.SIGCONT)
    assert waiting.wait(60) == 0 and time.monotonic() - began > 3
    assert base.read("a/late") == b"1"


_PUT = """
import sys
from sparkrobust.storage.hdfs import HdfsStorage
HdfsStorage(sys.argv[1]).put_if_absent("a/late", b"1")
"""


# -- names in plans of Hudi's --------------------------------------------------------------------------


def test_a_plan_may_name_files_with_or_without_the_file_system(table: HudiTable) -> None:
    root = table.storage.url.split("/", 3)[3]
    for spelling in (f"/{root}", f"hdfs:///{root}", f"hdfs:/{root}", table.storage.url, f"hdfs://ns/{root}"):
        assert rollback._relative(table, "plan", f"{spelling}/p/file") == "p/file"
    for other in (f"/{root}x/p/file", "/p/file", f"/x/{root}/p/file"):
        with pytest.raises(CorruptTableError):
            rollback._relative(table, "plan", other)
