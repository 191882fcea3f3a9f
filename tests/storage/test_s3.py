"""What is S3's own: answers that get lost, uploads, settings; against a real server."""

from __future__ import annotations

import json
import pickle
import uuid
from collections.abc import Iterator

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fault_injection.proxy import (
    Fault,
    Proxy,
    busy,
    conflict,
    cut_body,
    denied,
    lose_answer,
    lose_request,
    missing,
    not_implemented,
    proxy_before,
)
from fault_injection.s3_server import S3Server
from sparkrobust.errors import (
    CorruptTableError,
    InvalidInputError,
    PermissionDeniedError,
    UnavailableError,
    UnsupportedTableError,
)
from sparkrobust.storage import s3_files
from sparkrobust.storage.contract import AlreadyExistsError, ChangedError, NotFoundError, StagedFile
from sparkrobust.storage.patience import Patience
from sparkrobust.storage.s3 import S3Storage
from sparkrobust.storage.s3_files import PART_SIZE, Upload
from sparkrobust.storage.s3_settings import S3Settings, client_of
from tests.storage.conftest import BUCKET, QUICK


@pytest.fixture(scope="module")
def shared_proxy(s3_server: S3Server) -> Iterator[Proxy]:
    with proxy_before(s3_server.endpoint) as proxy:
        yield proxy


@pytest.fixture
def proxy(shared_proxy: Proxy) -> Iterator[Proxy]:
    shared_proxy.seen.clear()
    yield shared_proxy
    happened = shared_proxy.all_happened()
    shared_proxy.planned.clear()
    assert happened, "a fault of the test never happened"


@pytest.fixture
def url() -> str:
    return f"s3a://{BUCKET}/s3/{uuid.uuid4().hex[:8]}"


@pytest.fixture
def sure(s3_server: S3Server, url: str) -> S3Storage:
    """A handle whose answers all arrive."""
    return S3Storage(url, s3_server.options(), patience=QUICK, settling=QUICK)


@pytest.fixture
def lossy(s3_server: S3Server, proxy: Proxy, url: str) -> S3Storage:
    """Another handle on the same root, through the proxy."""
    options = {**s3_server.options(), "fs.s3a.endpoint": proxy.endpoint}
    return S3Storage(url, options, patience=QUICK, settling=QUICK)


def staged(storage: S3Storage, data: bytes = b"data", final_path: str = "a/final") -> StagedFile:
    with storage.stage("staging", "one", final_path) as writer:
        writer.write(data)
        return writer.finish()


# -- answers that get lost ---------------------------------------------------------------------


@pytest.mark.parametrize("fault", [lose_request, lose_answer, busy, conflict])
def test_a_creation_whose_answer_got_lost_is_known_as_our_own(
    lossy: S3Storage, sure: S3Storage, proxy: Proxy, fault: Fault
) -> None:
    proxy.plan("PUT", fault)
    lossy.put_if_absent("a/one", b"ours")
    assert sure.read("a/one") == b"ours"


@pytest.mark.parametrize("theirs", [b"ours", b"theirs"])
@pytest.mark.parametrize("fault", [lose_request, lose_answer])
def test_a_lost_answer_does_not_make_the_object_of_somebody_else_ours(
    lossy: S3Storage, sure: S3Storage, proxy: Proxy, fault: Fault, theirs: bytes
) -> None:
    sure.put_if_absent("a/one", theirs)
    proxy.plan("PUT", fault)
    with pytest.raises(AlreadyExistsError):
        lossy.put_if_absent("a/one", b"ours")
    assert sure.read("a/one") == theirs


def test_an_equal_object_without_a_mark_is_neither_ours_nor_theirs(
    lossy: S3Storage, proxy: Proxy, s3_server: S3Server, url: str
) -> None:
    key = url.removeprefix(f"s3a://{BUCKET}/") + "/a/one"
    client_of(S3Settings.of(s3_server.options(), BUCKET)).put_object(Bucket=BUCKET, Key=key, Body=b"ours")
    proxy.plan("PUT", lose_request)
    with pytest.raises(UnavailableError):
        lossy.put_if_absent("a/one", b"ours")


def test_when_no_answer_comes_at_all_the_last_look_decides(
    lossy: S3Storage, sure: S3Storage, proxy: Proxy
) -> None:
    proxy.plan("PUT", lose_answer, busy, busy)
    lossy.put_if_absent("a/one", b"ours")
    assert sure.read("a/one") == b"ours"
    proxy.plan("PUT", busy, lose_request, busy)
    with pytest.raises(UnavailableError, match="SlowDown"):
        lossy.put_if_absent("a/two", b"ours")
    assert sure.stat("a/two") is None


def test_a_replacement_whose_answer_got_lost_gives_its_version(
    lossy: S3Storage, sure: S3Storage, proxy: Proxy
) -> None:
    sure.put_if_absent("a/one", b"1")
    _, version = lossy.read_versioned("a/one")
    proxy.plan("PUT", lose_answer)
    newer = lossy.replace_if_unchanged("a/one", b"2", version)
    assert sure.read_versioned("a/one") == (b"2", newer)


def test_a_replacement_that_may_itself_be_replaced_already_is_unclear(
    lossy: S3Storage, sure: S3Storage, proxy: Proxy
) -> None:
    sure.put_if_absent("a/one", b"1")
    _, version = lossy.read_versioned("a/one")
    sure.put("a/one", b"theirs")
    with pytest.raises(ChangedError):
        lossy.replace_if_unchanged("a/one", b"ours", version)
    proxy.plan("PUT", lose_request)
    with pytest.raises(UnavailableError):
        lossy.replace_if_unchanged("a/one", b"ours", version)
    assert sure.read("a/one") == b"theirs"


@pytest.mark.parametrize("fault", [lose_request, lose_answer, busy, conflict])
def test_a_publish_whose_answer_got_lost_is_found_done(
    lossy: S3Storage, sure: S3Storage, proxy: Proxy, fault: Fault
) -> None:
    file = staged(sure)
    proxy.plan("POST", fault)
    lossy.publish(file)
    assert sure.read("a/final") == b"data"


def test_a_publish_that_never_arrives_is_unclear_and_can_be_repeated(
    lossy: S3Storage, sure: S3Storage, proxy: Proxy
) -> None:
    file = staged(sure)
    proxy.plan("POST", busy, lose_request, busy)
    with pytest.raises(UnavailableError):
        lossy.publish(file)
    assert sure.stat("a/final") is None
    lossy.publish(file)
    assert sure.read("a/final") == b"data"


def test_a_publish_waits_for_a_completion_that_is_still_on_its_way(
    lossy: S3Storage, sure: S3Storage, proxy: Proxy
) -> None:
    file = staged(sure)
    sure.publish(file)
    proxy.plan("HEAD", missing, missing)
    lossy.publish(file)


def test_a_completion_that_the_store_only_claims_is_not_believed(sure: S3Storage) -> None:
    file = staged(sure)
    sure.publish(file)
    sure.delete("a/final")
    sure.put_if_absent("a/final", b"size")  # as long as ours: only the mark tells
    with pytest.raises(AlreadyExistsError):
        sure.publish(file)


@pytest.mark.parametrize("fault", [lose_answer, cut_body, busy])
def test_reading_goes_on_after_a_cut(lossy: S3Storage, sure: S3Storage, proxy: Proxy, fault: Fault) -> None:
    data = bytes(range(256)) * 2_000
    sure.put("a/one", data)
    proxy.plan("GET", fault)
    assert lossy.read("a/one") == data
    proxy.plan("GET", fault, fault)
    with lossy.open("a/one") as file:
        proxy.plan("GET", fault)
        assert file.read() == data
    proxy.plan("GET", fault)
    assert [info.path for info in lossy.list("a")[0]] == ["a/one"]
    proxy.plan("HEAD", busy)
    assert lossy.stat("a/one") is not None


def test_a_part_whose_answer_got_lost_is_sent_again(lossy: S3Storage, sure: S3Storage, proxy: Proxy) -> None:
    data = bytes(range(256)) * 50_000
    with lossy.stage("staging", "one", "a/final") as writer:
        proxy.plan("PUT", lose_answer, busy)
        writer.write(data)
        file = writer.finish()
    assert len(Upload.of_token(file.token).parts) == 2
    sure.publish(file)
    assert sure.read("a/final") == data


def test_deleting_goes_on_after_a_cut(lossy: S3Storage, sure: S3Storage, proxy: Proxy) -> None:
    sure.put("a/one", b"1")
    sure.put("b/two", b"1")
    proxy.plan("DELETE", lose_answer, busy)
    lossy.delete("a/one")
    proxy.plan("POST", lose_answer)
    lossy.delete_tree("b")
    assert list(sure.walk("")) == []


def test_a_store_that_is_not_there_is_unavailable(s3_server: S3Server) -> None:
    options = {**s3_server.options(), "fs.s3a.endpoint": "http://127.0.0.1:9"}
    storage = S3Storage("s3a://bucket/table", options, patience=QUICK)
    for use in (lambda: storage.stat("one"), lambda: storage.put_if_absent("one", b"")):
        with pytest.raises(UnavailableError, match="3 tries"):
            use()


@pytest.mark.parametrize(
    ("fault", "expected"),
    [(denied, PermissionDeniedError), (not_implemented, UnsupportedTableError)],
)
def test_a_refusal_is_told_at_once(
    lossy: S3Storage, proxy: Proxy, fault: Fault, expected: type[Exception]
) -> None:
    for method, use in (
        ("PUT", lambda: lossy.put_if_absent("a/one", b"1")),
        ("GET", lambda: lossy.read("a/one")),
        ("GET", lambda: lossy.list("a")),
        ("POST", lambda: lossy.stage("staging", "one", "a/one")),
    ):
        proxy.seen.clear()
        proxy.plan(method, fault)
        with pytest.raises(expected):
            use()
        assert proxy.methods == [method]


# -- files ---------------------------------------------------------------------------------------


def test_a_bucket_that_is_missing_is_said_to_be_missing(s3_server: S3Server) -> None:
    storage = S3Storage("s3a://no-such-bucket/table", s3_server.options())
    with pytest.raises(NotFoundError, match="no-such-bucket"):
        storage.read("one")
    with pytest.raises(NotFoundError, match="NoSuchBucket"):
        storage.put_if_absent("one", b"")
    with pytest.raises(NotFoundError, match="NoSuchBucket"):
        storage.list("")


def test_a_table_may_be_a_whole_bucket(s3_server: S3Server) -> None:
    client_of(S3Settings.of(s3_server.options(), BUCKET)).create_bucket(Bucket="whole")
    storage = S3Storage("s3a://whole", s3_server.options())
    storage.put_if_absent("one", b"1")
    storage.put_if_absent("a/two", b"2")
    assert storage.url == "s3a://whole"
    assert [info.path for info in storage.list("")[0]] == ["one"]
    assert storage.list("")[1] == ["a"]
    storage.delete_tree("")
    assert list(storage.walk("")) == []


def test_folder_marks_of_other_tools_are_no_objects(sure: S3Storage, s3_server: S3Server, url: str) -> None:
    key = url.removeprefix(f"s3a://{BUCKET}/") + "/a/b/"
    client_of(S3Settings.of(s3_server.options(), BUCKET)).put_object(Bucket=BUCKET, Key=key, Body=b"")
    assert sure.list("a") == ([], ["a/b"])
    assert sure.list("a/b") == ([], [])
    assert list(sure.walk("")) == []
    sure.delete_tree("a")
    assert sure.list("a") == ([], [])


def test_a_file_that_is_replaced_while_it_is_read_is_not_mixed(sure: S3Storage) -> None:
    sure.put("a/one", b"1" * 3_000_000)
    with sure.open("a/one") as file:
        assert file.read(10) == b"1" * 10
        sure.put("a/one", b"2" * 3_000_000)
        file.seek(2_000_000)
        with pytest.raises(ChangedError):
            file.read(10)


def test_a_footer_is_read_with_one_request(lossy: S3Storage, proxy: Proxy) -> None:
    table = pa.table({"id": list(range(10_000)), "text": ["x" * 40] * 10_000})
    with lossy.stage("staging", "one", "a/one.parquet") as writer:
        pq.write_table(table, writer)
        lossy.publish(writer.finish())
    proxy.seen.clear()
    with lossy.open("a/one.parquet") as file:
        assert pq.read_metadata(file).num_rows == 10_000
    assert proxy.methods == ["GET"]
    with lossy.open("a/one.parquet") as file:
        assert pq.read_table(file).equals(table)


def test_a_large_file_is_read_in_few_requests_and_written_in_parts(lossy: S3Storage, proxy: Proxy) -> None:
    size = 3 * PART_SIZE + 17
    with lossy.stage("staging", "one", "a/one") as writer:
        for _ in range(3):
            writer.write(b"x" * PART_SIZE)
        writer.write(b"y" * 17)
        file = writer.finish()
    lossy.publish(file)
    assert proxy.methods == ["POST", *["PUT"] * 4, "POST", "HEAD"]
    proxy.seen.clear()
    with lossy.open("a/one") as reader:
        while reader.read(1 << 16):
            pass
        assert reader.tell() == size
    assert len(proxy.seen) <= 8


def test_a_small_file_costs_four_requests(lossy: S3Storage, proxy: Proxy) -> None:
    lossy.publish(staged(lossy))
    assert proxy.methods == ["POST", "PUT", "POST", "HEAD"]


def test_of_many_files_none_is_looked_at_that_is_plainly_done(lossy: S3Storage, proxy: Proxy) -> None:
    files = [staged(lossy, final_path=f"a/{number}") for number in range(3)]
    proxy.seen.clear()
    lossy.publish_all(files)
    assert proxy.methods == ["POST"] * 3
    assert [lossy.read(file.final_path) for file in files] == [b"data"] * 3


@pytest.mark.parametrize("fault", [lose_request, lose_answer, conflict])
def test_of_many_files_one_whose_completion_was_not_plainly_answered_is_looked_at(
    lossy: S3Storage, proxy: Proxy, fault: Fault
) -> None:
    file = staged(lossy)
    proxy.seen.clear()
    proxy.plan("POST", fault)
    lossy.publish_all([file])
    assert proxy.methods == ["POST", "POST", "HEAD"]
    assert lossy.read(file.final_path) == b"data"


def test_a_file_with_more_parts_than_a_store_takes_is_refused(
    sure: S3Storage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(s3_files, "PART_SIZE", 10)
    monkeypatch.setattr(s3_files, "_MOST_PARTS", 2)
    with sure.stage("staging", "one", "a/one") as writer, pytest.raises(InvalidInputError, match="larger"):
        writer.write(b"x" * 31)


@pytest.mark.parametrize(
    "token",
    [
        "",
        "staging/one",
        "[]",
        "{}",
        "[" * 100_000,
        '{"format":2,"path":"a","upload":"u","mark":"m","parts":[]}',
        '{"format":1,"path":"../a","upload":"u","mark":"m","parts":[]}',
        '{"format":1,"path":"a","upload":"","mark":"m","parts":[]}',
        '{"format":1,"path":"a","upload":"u","mark":"m","parts":[[2,"x"]]}',
        '{"format":1,"path":"a","upload":"u","mark":"m","parts":[[1,2]]}',
        '{"format":1,"path":"a","upload":"u","mark":"m","parts":7}',
        '{"format":1,"path":"a","upload":"u","mark":"m","parts":[[true,"x"]]}',
        '{"format":1,"path":"a","upload":"u","mark":"m","parts":[[1.0,"x"]]}',
        '{"format":1,"path":"a","upload":"u","mark":"m","parts":[[1,"\\ud800"]]}',
        '{"format":1,"path":"a","upload":["u"],"mark":"m","parts":[]}',
        '{"format":NaN,"path":"a","upload":"u","mark":"m","parts":[]}',
        '{"format":1,"path":"b","path":"a","upload":"u","mark":"m","parts":[]}',
        '{"format":%s,"path":"a","upload":"u","mark":"m","parts":[]}' % ("9" * 5000),
    ],
)
def test_a_torn_or_foreign_token_is_refused(sure: S3Storage, token: str) -> None:
    with pytest.raises(CorruptTableError):
        sure.discard(token)
    with pytest.raises(CorruptTableError):
        sure.publish(StagedFile(final_path="a/final", token=token, size=1))


def test_a_token_publishes_no_other_file_and_none_that_is_not_finished(sure: S3Storage) -> None:
    file = staged(sure)
    with pytest.raises(CorruptTableError):
        sure.publish(StagedFile(final_path="a/other", token=file.token, size=file.size))
    with sure.stage("staging", "one", "a/final") as writer, pytest.raises(CorruptTableError):
        sure.publish(StagedFile(final_path="a/final", token=writer.token, size=0))
    assert json.loads(file.token)["parts"][0][0] == 1


def test_a_handle_that_travels_keeps_how_patient_it_is(s3_server: S3Server) -> None:
    patience = Patience(tries=2, first_pause=0.5, longest_pause=1.0)
    storage = S3Storage("s3a://b/t", s3_server.options(), patience=patience)
    copy = pickle.loads(pickle.dumps(storage))
    assert copy._requests.patience.tries == 2
    assert copy._requests.settings == storage._requests.settings
