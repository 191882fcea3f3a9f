"""What is Azure's own: answers that get lost, copies, settings; against a real emulator."""

from __future__ import annotations

import logging
import pickle
import traceback
import uuid
from collections.abc import Callable, Iterator

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from fault_injection.proxy import (
    Fault,
    Proxy,
    busy,
    cut_body,
    denied,
    lose_answer,
    lose_request,
    not_implemented,
    proxy_before,
)
from sparkrobust.errors import (
    InvalidInputError,
    InvalidOptionError,
    PermissionDeniedError,
    RobustWriteError,
    UnavailableError,
    UnsupportedTableError,
)
from sparkrobust.storage.azure_settings import AzurePlace, AzureSettings
from sparkrobust.storage.contract import AlreadyExistsError, ChangedError, NotFoundError, StagedFile
from sparkrobust.storage.object_store import PART_SIZE, ObjectStorage
from sparkrobust.storage.resolve import storage_for
from tests.servers import AzureServer
from tests.storage.conftest import QUICK

ENDPOINT = "fs.azure.blob.endpoint"
PLACE = "abfss://c@account.dfs.core.windows.net/t"
KEY, SIGNATURE, SECRET = "a2V5LW9mLWFuLWFjY291bnQ=", "c2lnbmF0dXJl%2Bxyz%3D", "secret-of-a-client"
SAS = f"?sv=2022-11-02&sp=rwdl&sig={SIGNATURE}&se=2030-01-01"


@pytest.fixture(scope="module")
def shared_proxy(azure_server: AzureServer) -> Iterator[Proxy]:
    with proxy_before(f"http://127.0.0.1:{azure_server.port}") as proxy:
        yield proxy


@pytest.fixture
def proxy(shared_proxy: Proxy) -> Iterator[Proxy]:
    shared_proxy.seen.clear()
    yield shared_proxy
    happened = shared_proxy.all_happened()
    shared_proxy.planned.clear()
    assert happened, "a fault of the test never happened"


@pytest.fixture
def url(azure_server: AzureServer) -> str:
    return azure_server.url(f"azure/{uuid.uuid4().hex[:8]}")


@pytest.fixture
def sure(azure_server: AzureServer, url: str) -> ObjectStorage:
    """A handle whose answers all arrive."""
    return ObjectStorage(url, azure_server.options(), patience=QUICK)


@pytest.fixture
def lossy(azure_server: AzureServer, proxy: Proxy, url: str) -> ObjectStorage:
    """Another handle on the same root, through the proxy."""
    options = {**azure_server.options(), ENDPOINT: f"{proxy.endpoint}/{azure_server.account}"}
    return ObjectStorage(url, options, patience=QUICK)


def staged(storage: ObjectStorage, data: bytes = b"data") -> StagedFile:
    with storage.stage("staging", "one", "a/final") as writer:
        writer.write(data)
        return writer.finish()


# -- answers that get lost ---------------------------------------------------------------------


@pytest.mark.parametrize("fault", [lose_request, lose_answer, busy])
def test_a_creation_whose_answer_got_lost_is_known_as_our_own(
    lossy: ObjectStorage, sure: ObjectStorage, proxy: Proxy, fault: Fault
) -> None:
    proxy.plan("PUT", fault)
    lossy.put_if_absent("a/one", b"ours")
    assert sure.read("a/one") == b"ours"


@pytest.mark.parametrize("theirs", [b"ours", b"theirs"])
@pytest.mark.parametrize("fault", [lose_request, lose_answer])
def test_a_lost_answer_does_not_make_the_object_of_somebody_else_ours(
    lossy: ObjectStorage, sure: ObjectStorage, proxy: Proxy, fault: Fault, theirs: bytes
) -> None:
    sure.put_if_absent("a/one", theirs)
    proxy.plan("PUT", fault)
    with pytest.raises(AlreadyExistsError):
        lossy.put_if_absent("a/one", b"ours")
    assert sure.read("a/one") == theirs


def test_when_no_answer_comes_at_all_the_last_look_decides(
    lossy: ObjectStorage, sure: ObjectStorage, proxy: Proxy
) -> None:
    proxy.plan("PUT", lose_answer, busy, busy)
    lossy.put_if_absent("a/one", b"ours")
    assert sure.read("a/one") == b"ours"
    proxy.plan("PUT", busy, lose_request, busy)
    with pytest.raises(UnavailableError, match="503"):
        lossy.put_if_absent("a/two", b"ours")
    assert sure.stat("a/two") is None


def test_a_replacement_whose_answer_got_lost_gives_its_version_or_is_unclear(
    lossy: ObjectStorage, sure: ObjectStorage, proxy: Proxy
) -> None:
    sure.put_if_absent("a/one", b"1")
    _, version = lossy.read_versioned("a/one")
    proxy.plan("PUT", lose_answer)
    newer = lossy.replace_if_unchanged("a/one", b"2", version)
    assert sure.read_versioned("a/one") == (b"2", newer)
    sure.put("a/one", b"theirs")
    with pytest.raises(ChangedError):
        lossy.replace_if_unchanged("a/one", b"ours", newer)
    proxy.plan("PUT", lose_request)
    with pytest.raises(UnavailableError):
        lossy.replace_if_unchanged("a/one", b"ours", newer)
    assert sure.read("a/one") == b"theirs"


@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("fault", [lose_request, lose_answer, busy])
def test_a_publish_whose_answer_got_lost_is_repeated_or_found_done(
    lossy: ObjectStorage, sure: ObjectStorage, proxy: Proxy, fault: Fault, last: bool
) -> None:
    file = staged(sure)
    proxy.plan("PUT", fault)
    if last:
        lossy.publish_last(file, lambda: sure.stat("a/final"), alone=True)
    else:
        lossy.publish(file)
    assert sure.read("a/final") == b"data"
    assert [info.path for info in sure.walk("")] == ["a/final"]


def test_a_publish_that_never_arrives_is_unclear_and_can_be_repeated(
    lossy: ObjectStorage, sure: ObjectStorage, proxy: Proxy
) -> None:
    file = staged(sure)
    proxy.plan("PUT", busy, lose_request, busy)
    with pytest.raises(UnavailableError):
        lossy.publish(file)
    assert sure.stat("a/final") is None
    lossy.publish(file)
    assert sure.read("a/final") == b"data"


def test_the_object_of_somebody_else_is_not_taken_for_the_published_one(sure: ObjectStorage) -> None:
    file = staged(sure)
    sure.publish(file)
    sure.delete("a/final")
    sure.put_if_absent("a/final", b"size")  # as long as ours: only the mark tells
    with pytest.raises(AlreadyExistsError):
        sure.publish(file)


def test_who_copied_and_died_leaves_a_source_that_the_next_publisher_removes(sure: ObjectStorage) -> None:
    file = staged(sure)
    sure.copy_if_absent(file.token, file.final_path)
    sure.publish(file)
    assert [info.path for info in sure.walk("")] == ["a/final"]


@pytest.mark.parametrize("fault", [lose_answer, cut_body, busy])
def test_reading_goes_on_after_a_cut(
    lossy: ObjectStorage, sure: ObjectStorage, proxy: Proxy, fault: Fault
) -> None:
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


def test_a_block_whose_answer_got_lost_is_sent_again(
    lossy: ObjectStorage, sure: ObjectStorage, proxy: Proxy
) -> None:
    data = bytes(range(256)) * 50_000
    with lossy.stage("staging", "one", "a/final") as writer:
        proxy.plan("PUT", lose_answer, busy)
        writer.write(data)
        file = writer.finish()
    sure.publish(file)
    assert sure.read("a/final") == data


def test_deleting_goes_on_after_a_cut(lossy: ObjectStorage, sure: ObjectStorage, proxy: Proxy) -> None:
    for path in ("a/one", "b/two", "b/three"):
        sure.put(path, b"1")
    proxy.plan("POST", lose_answer, busy)
    lossy.delete("a/one")
    proxy.plan("POST", lose_answer)
    lossy.delete_tree("b")
    assert list(sure.walk("")) == []


def test_a_store_that_is_not_there_is_unavailable() -> None:
    options = {ENDPOINT: "http://127.0.0.1:9/account", "fs.azure.account.key": KEY}
    storage = ObjectStorage(PLACE, options, patience=QUICK)
    for use in (lambda: storage.stat("one"), lambda: storage.put_if_absent("one", b"")):
        with pytest.raises(UnavailableError, match="no clear answer"):
            use()


@pytest.mark.parametrize(
    ("fault", "expected"),
    [(denied, PermissionDeniedError), (not_implemented, UnsupportedTableError)],
)
def test_a_refusal_is_told_at_once(
    lossy: ObjectStorage, proxy: Proxy, fault: Fault, expected: type[Exception]
) -> None:
    for method, use in (
        ("PUT", lambda: lossy.put_if_absent("a/one", b"1")),
        ("GET", lambda: lossy.read("a/one")),
        ("GET", lambda: lossy.list("a")),
        ("POST", lambda: lossy.delete("a/one")),
    ):
        proxy.seen.clear()
        proxy.plan(method, fault)
        with pytest.raises(expected):
            use()
        assert proxy.methods[0] == method


# -- files ---------------------------------------------------------------------------------------


def test_a_container_that_is_missing_is_said_to_be_missing(azure_server: AzureServer) -> None:
    url = f"abfss://no-such-container@{azure_server.account}.dfs.core.windows.net/table"
    storage = ObjectStorage(url, azure_server.options())
    with pytest.raises(NotFoundError, match="no-such-container"):
        storage.read("one")
    with pytest.raises(NotFoundError, match="ContainerNotFound"):
        storage.put_if_absent("one", b"")
    with pytest.raises(NotFoundError, match="ContainerNotFound"):
        storage.list("")


def test_empty_objects_that_stand_for_folders_are_no_objects(sure: ObjectStorage) -> None:
    sure.put("a/b/one", b"1")
    for folder in ("a", "a/b"):
        sure.put(folder, b"")  # as the older of Hadoop's two clients marks its folders
    assert sure.list("") == ([], ["a"])
    assert [info.path for info in sure.walk("")] == ["a/b/one"]
    sure.delete_tree("a")
    assert [info.path for info in sure.walk("")] == ["a"]


def test_a_file_that_is_replaced_while_it_is_read_is_not_mixed(sure: ObjectStorage) -> None:
    sure.put("a/one", b"1" * 3_000_000)
    with sure.open("a/one") as file:
        assert file.read(10) == b"1" * 10
        sure.put("a/one", b"2" * 3_000_000)
        file.seek(2_000_000)
        with pytest.raises(ChangedError):
            file.read(10)


def test_what_a_file_costs_in_requests(lossy: ObjectStorage, proxy: Proxy) -> None:
    table = pa.table({"id": list(range(10_000)), "text": ["x" * 40] * 10_000})
    with lossy.stage("staging", "one", "a/one.parquet") as writer:
        pq.write_table(table, writer)
        file = writer.finish()
    lossy.publish(file)
    assert proxy.methods == ["PUT", "PUT", "HEAD", "POST"]  # written, copied, looked at, its source deleted
    proxy.seen.clear()
    with lossy.open("a/one.parquet") as reader:
        assert pq.read_metadata(reader).num_rows == 10_000
    assert proxy.methods == ["HEAD", "GET"]
    with lossy.open("a/one.parquet") as reader:
        assert pq.read_table(reader).equals(table)


def test_a_large_file_is_written_in_blocks_and_read_in_few_requests(
    lossy: ObjectStorage, proxy: Proxy
) -> None:
    size = 3 * PART_SIZE + 17
    with lossy.stage("staging", "one", "a/one") as writer:
        for _ in range(3):
            writer.write(b"x" * PART_SIZE)
        writer.write(b"y" * 17)
        lossy.publish(writer.finish())
    assert proxy.methods == [*["PUT"] * 6, "HEAD", "POST"]
    proxy.seen.clear()
    with lossy.open("a/one") as reader:
        while reader.read(1 << 16):
            pass
        assert reader.tell() == size
    assert len(proxy.seen) <= 9


# -- settings ------------------------------------------------------------------------------------


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """An environment that knows nothing of Azure."""
    for name in ("ACCOUNT_KEY", "ACCESS_KEY", "MASTER_KEY", "SAS_TOKEN", "SAS_KEY"):
        monkeypatch.delenv(f"AZURE_STORAGE_{name}", raising=False)
    return monkeypatch


def settings(options: dict[str, str], url: str = PLACE) -> AzureSettings:
    return AzureSettings.of(options, AzurePlace.of(url))


@pytest.mark.parametrize(
    ("url", "endpoint"),
    [
        (PLACE, "https://account.blob.core.windows.net"),
        ("wasbs://c@account.blob.core.windows.net/t", "https://account.blob.core.windows.net"),
        ("abfs://c@account.dfs.core.chinacloudapi.cn/t", "https://account.blob.core.chinacloudapi.cn"),
    ],
)
def test_the_url_says_where_the_store_is(bare: pytest.MonkeyPatch, url: str, endpoint: str) -> None:
    assert settings({}, url).endpoint == endpoint
    assert settings({ENDPOINT: "http://127.0.0.1:1/account/"}, url).endpoint == "http://127.0.0.1:1/account"


def test_hadoops_keys_say_who_we_are(bare: pytest.MonkeyPatch) -> None:
    for host in ("account.dfs.core.windows.net", "account.blob.core.windows.net"):
        other = {f"fs.azure.account.key.other.{host.partition('.')[2]}": "x", "fs.azure.account.key": "y"}
        assert settings({f"fs.azure.account.key.{host}": KEY, **other}).account_key == KEY
        assert settings({f"fs.azure.sas.c.{host}": SAS}).sas == SAS[1:]
        assert settings({f"fs.azure.sas.fixed.token.{host}": SAS[1:]}).sas == SAS[1:]
    oauth = "fs.azure.account.oauth2.client."
    found = settings(
        {f"{oauth}id": "i", f"{oauth}secret": SECRET, f"{oauth}endpoint": "https://host/tenant/oauth2/token"}
    )
    assert (found.client_id, found.client_secret, found.tenant) == ("i", SECRET, "tenant")


@pytest.mark.parametrize(
    "options",
    [
        {"fs.azure.account.oauth2.client.id": "i"},
        {"fs.azure.account.oauth2.client.secret": SECRET},
        {"fs.azure.account.oauth2.client.endpoint": "https://host"},
        {ENDPOINT: "ftp://host"},
        {ENDPOINT: "http://"},
        {ENDPOINT: f"http://user:{SECRET}@host"},
        {ENDPOINT: f"http://host{SAS}"},
        {ENDPOINT: "http://[broken"},
    ],
)
def test_settings_that_can_not_work_are_refused_and_not_repeated(
    bare: pytest.MonkeyPatch, options: dict[str, str]
) -> None:
    with pytest.raises(InvalidOptionError) as caught:
        ObjectStorage(PLACE, options)
    for secret in (SECRET, SIGNATURE):
        assert secret not in "".join(traceback.format_exception(caught.value))


@pytest.mark.parametrize(
    "url",
    [
        "abfss://account.dfs.core.windows.net/t",
        "abfss://c@account/t",
        "abfss://@account.dfs.core.windows.net/t",
        f"abfss://c:{SECRET}@account.dfs.core.windows.net/t",
        "abfss:/c/t",
        "gs://b/t",
    ],
)
def test_a_url_that_is_none_is_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(InvalidInputError, match="abfss://container@account") as caught:
        ObjectStorage(url)
    assert SECRET not in str(caught.value)


def test_what_the_driver_found_in_its_environment_travels_with_the_handle(
    bare: pytest.MonkeyPatch, azure_server: AzureServer, url: str
) -> None:
    bare.setenv("AZURE_STORAGE_ACCOUNT_KEY", azure_server.key)
    where = {ENDPOINT: azure_server.options()[ENDPOINT]}
    storage = ObjectStorage(url, where)
    storage.put("one", b"1")
    sent = pickle.dumps(storage)
    bare.delenv("AZURE_STORAGE_ACCOUNT_KEY")
    assert pickle.loads(sent).read("one") == b"1"
    stranger = ObjectStorage(url, {**where, "fs.azure.account.key": KEY}, patience=QUICK)
    with pytest.raises(PermissionDeniedError, match="credentials"):
        stranger.read("one")


# -- secrets -------------------------------------------------------------------------------------


def use_everything(storage: ObjectStorage) -> list[RobustWriteError]:
    errors = []
    uses: list[Callable[[], object]] = [
        lambda: storage.read("one"),
        lambda: storage.stat("one"),
        lambda: storage.list(""),
        lambda: storage.put_if_absent("one", b""),
        lambda: storage.replace_if_unchanged("one", b"", "x"),
        lambda: storage.delete("one"),
        lambda: storage.delete_tree("one"),
        lambda: storage.copy_if_absent("one", "two"),
        lambda: storage.stage("staging", "one", "one").finish(),
    ]
    for use in uses:
        with pytest.raises(RobustWriteError) as caught:
            use()
        errors.append(caught.value)
    return errors


@pytest.mark.parametrize("credential", [{"fs.azure.account.key": KEY}, {"fs.azure.sas.c": SAS}])
@pytest.mark.parametrize("where", ["an emulator that does not know us", "no server"])
def test_no_handle_no_error_and_no_log_shows_a_secret(
    azure_server: AzureServer,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
    where: str,
    credential: dict[str, str],
) -> None:
    known = where.startswith("an")
    endpoint = azure_server.options()[ENDPOINT] if known else "http://127.0.0.1:9/account"
    url = azure_server.url("t").replace(azure_server.container, "c") if known else PLACE
    with caplog.at_level(logging.DEBUG):
        storage = storage_for(url, {ENDPOINT: endpoint, **credential})
        assert isinstance(storage, ObjectStorage)
        storage._requests.patience = QUICK
        errors = use_everything(storage)
    said = [caplog.text, *capfd.readouterr(), repr(storage), storage.url, repr(vars(storage))]
    said += [repr(storage._requests.settings), repr(vars(storage._requests)["settings"])]
    for error in errors:
        said += traceback.format_exception(error)
        said += [repr(error), repr(vars(error)), repr(pickle.loads(pickle.dumps(error)))]
    for secret in (KEY, SIGNATURE, "c2lnbmF0dXJl+xyz=", "sv=2022"):
        assert secret not in "".join(said)
