"""No secret shows in a repr, an error or a log, whatever goes wrong."""

from __future__ import annotations

import logging
import pickle
import traceback
from collections.abc import Callable

import pytest

from fault_injection.s3_server import S3Server
from sparkrobust.errors import PermissionDeniedError, RobustWriteError
from sparkrobust.storage.resolve import storage_for
from sparkrobust.storage.s3 import S3Storage
from tests.storage.conftest import BUCKET, QUICK

ACCESS, SECRET, TOKEN = "AKIDEXAMPLEEXAMPLE", "wJalrXUtnFEMIbPxRfiCYEXAMPLEKEY", "FwoGZXIvYXdzEXAMPLETOKEN"
KEYS = {"fs.s3a.access.key": ACCESS, "fs.s3a.secret.key": SECRET, "fs.s3a.session.token": TOKEN}


def assert_clean(text: str) -> None:
    for secret in (SECRET, TOKEN):
        assert secret not in text


def use_everything(storage: S3Storage) -> list[RobustWriteError]:
    errors = []
    uses: list[Callable[[], object]] = [
        lambda: storage.read("one"),
        lambda: storage.stat("one"),
        lambda: storage.list(""),
        lambda: storage.put_if_absent("one", b""),
        lambda: storage.replace_if_unchanged("one", b"", "x"),
        lambda: storage.delete("one"),
        lambda: storage.delete_tree("one"),
        lambda: storage.stage("staging", "one", "one"),
    ]
    for use in uses:
        with pytest.raises(RobustWriteError) as caught:
            use()
        errors.append(caught.value)
    return errors


def test_a_handle_shows_no_secret() -> None:
    storage = storage_for("s3a://bucket/table", KEYS)
    assert isinstance(storage, S3Storage)
    for shown in (
        repr(storage),
        str(storage),
        storage.url,
        repr(vars(storage)),
        repr(storage._requests.settings),
    ):
        assert_clean(shown)
        assert ACCESS not in shown
    copy = pickle.loads(pickle.dumps(storage))
    assert copy._requests.settings.secret_key == SECRET
    assert_clean(repr(copy))


@pytest.mark.parametrize("where", ["a server that does not know us", "no server"])
def test_no_error_and_no_log_shows_a_secret(
    s3_server: S3Server, caplog: pytest.LogCaptureFixture, where: str
) -> None:
    endpoint = s3_server.endpoint if where.startswith("a") else "http://127.0.0.1:9"
    options = {**s3_server.options(), **KEYS, "fs.s3a.endpoint": endpoint}
    with caplog.at_level(logging.DEBUG):
        storage = S3Storage(f"s3a://{BUCKET}/redaction", options, patience=QUICK)
        errors = use_everything(storage)
    for error in errors:
        assert_clean("".join(traceback.format_exception(error)))
        assert_clean(repr(error) + repr(vars(error)))
        assert_clean(repr(pickle.loads(pickle.dumps(error))))
    assert_clean(caplog.text)
    if where.startswith("a"):
        assert all(isinstance(error, PermissionDeniedError) for error in errors)


def test_a_secret_that_a_server_sends_back_is_cut_out(
    s3_server: S3Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = S3Storage(f"s3a://{BUCKET}/redaction", {**s3_server.options(), **KEYS})
    answer = {
        "Error": {"Code": "SignatureDoesNotMatch", "Message": f"you signed with {SECRET} and {TOKEN}"},
        "ResponseMetadata": {"HTTPStatusCode": 403},
    }
    refusal = storage._requests._refusal(answer)
    assert_clean(str(refusal))
    assert "you signed with *** and ***" in str(refusal)


@pytest.mark.parametrize(
    ("path", "options"),
    [
        (f"s3a://{ACCESS}:{SECRET}@bucket/table", {}),
        ("s3a://bucket/table", {"fs.s3a.endpoint": f"http://{ACCESS}:{SECRET}@host"}),
        ("s3a://bucket/table", {"fs.s3a.secret.key": SECRET}),
    ],
)
def test_a_refused_address_is_not_repeated(path: str, options: dict[str, str]) -> None:
    with pytest.raises(RobustWriteError) as caught:
        storage_for(path, options)
    assert_clean("".join(traceback.format_exception(caught.value)))
    assert ACCESS not in str(caught.value)
