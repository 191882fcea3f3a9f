"""Which store a path belongs to, and which are refused."""

from __future__ import annotations

import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from sparkrobust.errors import InvalidInputError, TableNotFoundError, UnsupportedTableError
from sparkrobust.storage.hdfs import HdfsStorage
from sparkrobust.storage.local import LocalStorage
from sparkrobust.storage.memory import MemoryStorage
from sparkrobust.storage.resolve import require_put_if_absent, storage_for
from sparkrobust.storage.s3 import S3Storage


def test_all_spellings_of_a_folder_are_one_place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    there = f"{tmp_path}/a table"
    spellings = [
        "a table",
        "./a table/",
        "x/../a table",
        there,
        f"{there}//",
        f"file:{there}",
        f"file://{there}",
        f"file://localhost{there}/",
        f"FILE://{there}",
    ]
    for spelling in spellings:
        storage = storage_for(spelling)
        assert isinstance(storage, LocalStorage)
        assert storage.url == f"file://{there}"


def test_a_handle_made_from_a_relative_path_means_the_same_folder_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    sent = pickle.dumps(storage_for("table"))
    monkeypatch.chdir("/")
    assert pickle.loads(sent).url == f"file://{tmp_path}/table"


@pytest.mark.parametrize("name", ["per%20cent", "ü", "./a:b", "#x?y"])
def test_characters_that_urls_escape_are_themselves(name: str) -> None:
    assert storage_for(f"/tables/{name}").url == "file:///tables/" + name.removeprefix("./")
    if ":" not in name:
        assert storage_for(f"file:///tables/{name}").url == f"file:///tables/{name}"


@pytest.mark.parametrize("scheme", ["s3", "s3a", "S3A"])
def test_s3_is_spelled_as_the_user_spells_it(scheme: str) -> None:
    storage = storage_for(f"{scheme}://bucket//some/table/")
    assert isinstance(storage, S3Storage)
    assert storage.url == f"{scheme.lower()}://bucket/some/table"


@pytest.mark.parametrize("path", ["hdfs://n:9000//some/table/", "HDFS://n:9000/some/table"])
def test_hdfs_is_named_with_its_namenode(path: str) -> None:
    storage = storage_for(path)
    assert isinstance(storage, HdfsStorage)
    assert storage.url == "hdfs://n:9000/some/table"


def test_a_user_in_a_url_is_refused_and_not_repeated() -> None:
    with pytest.raises(InvalidInputError) as caught:
        storage_for("hdfs://me:hush@n:9000/t")
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("gs://b/t", "was never seen"),
        ("az://c/t", "write abfss://"),
        ("viewfs://cluster/t", "several clusters"),
        ("webhdfs://namenode/t", "missing folders"),
        ("ftp://host/t", "both win"),
        ("https://host/t", "nothing can be written"),
        ("s3n://b/t", "write s3a"),
        ("dbfs:/t", "measured"),
        ("github://owner/repo", "known to fsspec"),
        ("nosuch://b/t", "not known"),
        ("a:b/c", "./like:this"),
        ("file://otherhost/t", "another machine"),
    ],
)
def test_a_store_that_is_not_shown_to_be_safe_is_refused_with_the_reason(path: str, reason: str) -> None:
    if "fsspec" in reason:
        pytest.importorskip("fsspec", reason="fsspec is not installed, which knows this scheme")
    with pytest.raises(UnsupportedTableError) as caught:
        storage_for(path)
    assert reason in str(caught.value)
    assert "s3a://" in str(caught.value)


@pytest.mark.parametrize(
    "path", ["", "  ", "/", "file:", "file:relative", "a\0b", "s3a://", "hdfs://n:1", "hdfs://n:1/", "hdfs:t"]
)
def test_a_path_that_is_none_is_bad_input(path: str) -> None:
    with pytest.raises(InvalidInputError):
        storage_for(path)


def test_memory_is_for_tests_that_made_it(unique: Callable[[], str]) -> None:
    name = unique()
    with pytest.raises(TableNotFoundError, match="tests"):
        storage_for(f"memory://{name}")
    made = MemoryStorage(name)
    made.put_if_absent("one", b"1")
    assert storage_for(made.url).read("one") == b"1"


def test_stores_are_resolved_without_fsspec() -> None:
    program = (
        "import sys; sys.modules['fsspec'] = None; sys.modules['fsspec.registry'] = None\n"
        "from sparkrobust.storage.resolve import storage_for\n"
        "from sparkrobust.errors import UnsupportedTableError\n"
        "storage_for('/x'), storage_for('s3a://b/t'), storage_for('hdfs://n:1/t')\n"
        "try: storage_for('github://x/y')\n"
        "except UnsupportedTableError: pass\n"
        "else: raise SystemExit('not refused')\n"
    )
    root = Path(__file__).parents[2]
    subprocess.run([sys.executable, "-c", program], check=True, cwd=root, env={"PYTHONPATH": str(root)})


def test_a_store_that_ignores_the_condition_is_found_out(unique: Callable[[], str]) -> None:
    class Careless(MemoryStorage):
        def put_if_absent(self, path: str, data: bytes) -> None:
            self.put(path, data)

    careless = Careless(unique())
    with pytest.raises(UnsupportedTableError, match="ignores the condition"):
        require_put_if_absent(careless, "")
    assert list(careless.walk("")) == []
    careful = MemoryStorage(unique())
    require_put_if_absent(careful, "")
    assert list(careful.walk("")) == []
