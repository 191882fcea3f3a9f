"""How an S3 store is reached: where it is, who we are, and what its client makes of the answers' times."""

from __future__ import annotations

import pickle
from datetime import datetime, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fault_injection.s3_server import S3Server
from sparkrobust.errors import InvalidInputError, InvalidOptionError, PermissionDeniedError
from sparkrobust.storage.s3 import S3Storage
from sparkrobust.storage.s3_settings import S3Settings, _time_of
from tests.storage.conftest import BUCKET

parse_timestamp = pytest.importorskip("botocore.utils", reason="boto3 is not installed").parse_timestamp


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> pytest.MonkeyPatch:
    """An environment that knows nothing of AWS."""
    nothing = str(tmp_path_factory.mktemp("aws") / "none")
    for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN", "REGION", "DEFAULT_REGION"):
        monkeypatch.delenv(f"AWS_{name}", raising=False)
    for name in ("AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_CONFIG_FILE", nothing)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", nothing)
    return monkeypatch


@pytest.mark.parametrize(
    ("options", "endpoint"),
    [
        ({}, None),
        ({"fs.s3a.endpoint": "s3.amazonaws.com"}, None),
        ({"fs.s3a.endpoint": "host:9000"}, "https://host:9000"),
        ({"fs.s3a.endpoint": "host:9000", "fs.s3a.connection.ssl.enabled": "false"}, "http://host:9000"),
        ({"fs.s3a.endpoint": "http://host:9000/"}, "http://host:9000"),
        ({"fs.s3a.endpoint": "http://a", "fs.s3a.bucket.b.endpoint": "http://for-b"}, "http://for-b"),
        ({"fs.s3a.endpoint": "http://a", "fs.s3a.bucket.c.endpoint": "http://for-c"}, "http://a"),
    ],
)
def test_hadoops_keys_say_where_the_store_is(
    bare: pytest.MonkeyPatch, options: dict[str, str], endpoint: str | None
) -> None:
    assert S3Settings.of(options, "b").endpoint == endpoint


def test_hadoops_keys_say_who_we_are(bare: pytest.MonkeyPatch) -> None:
    settings = S3Settings.of(
        {
            "fs.s3a.access.key": "AK",
            "fs.s3a.secret.key": "SK",
            "fs.s3a.session.token": "ST",
            "fs.s3a.path.style.access": "TRUE",
            "fs.s3a.endpoint.region": "eu-central-1",
        },
        "b",
    )
    assert (settings.access_key, settings.secret_key, settings.session_token) == ("AK", "SK", "ST")
    assert settings.path_style and settings.region == "eu-central-1"
    anonymous = "org.apache.hadoop.fs.s3a.AnonymousAWSCredentialsProvider"
    assert S3Settings.of({"fs.s3a.aws.credentials.provider": anonymous}, "b").anonymous


@pytest.mark.parametrize(
    "options",
    [
        {"fs.s3a.access.key": "AK"},
        {"fs.s3a.secret.key": "SK"},
        {"fs.s3a.path.style.access": "maybe"},
        {"fs.s3a.endpoint": "ftp://host"},
        {"fs.s3a.endpoint": "http://"},
        {"fs.s3a.endpoint": "http://[broken"},
    ],
)
def test_settings_that_can_not_work_are_refused(bare: pytest.MonkeyPatch, options: dict[str, str]) -> None:
    with pytest.raises(InvalidOptionError):
        S3Storage("s3a://b/t", options)


def test_what_the_driver_found_in_its_environment_travels_with_the_handle(
    bare: pytest.MonkeyPatch, s3_server: S3Server
) -> None:
    bare.setenv("AWS_ACCESS_KEY_ID", s3_server.access_key)
    bare.setenv("AWS_SECRET_ACCESS_KEY", s3_server.secret_key)
    bare.setenv("AWS_ENDPOINT_URL", s3_server.endpoint)
    bare.setenv("AWS_REGION", "us-east-1")
    path_style = {"fs.s3a.path.style.access": "true"}
    storage = S3Storage(f"s3://{BUCKET}/from-environment", path_style)
    storage.put("one", b"1")
    sent = pickle.dumps(storage)
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL", "AWS_REGION"):
        bare.delenv(name)
    assert pickle.loads(sent).read("one") == b"1"
    stranger = S3Storage(f"s3://{BUCKET}/x", {**path_style, "fs.s3a.endpoint": s3_server.endpoint})
    with pytest.raises(PermissionDeniedError, match="credentials"):
        stranger.read("one")


@pytest.mark.parametrize("url", ["s3a:/b/t", "s3a://", "s3a:///t", "gs://b/t", "b/t"])
def test_a_url_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(InvalidInputError):
        S3Storage(url)


@given(st.datetimes(timezones=st.just(timezone.utc)))
def test_the_time_of_a_listing_is_what_the_client_itself_would_read(when: datetime) -> None:
    text = when.strftime("%Y-%m-%dT%H:%M:%S").rjust(19, "0") + f".{when.microsecond // 1000:03}Z"
    assert _time_of(text) == parse_timestamp(text)


@pytest.mark.parametrize(
    "text",
    [
        "Fri, 20 Nov 2026 01:57:30 GMT",  # of a header
        "2026-11-20T01:57:30Z",
        "2026-11-20T01:57:30.1Z",
        "2026-11-20T01:57:30.1234567Z",
        "2026-11-20T02:57:30+01:00",
        "20261120T015730Z",
        1795139850,
        "1795139850.5",
    ],
)
def test_a_time_however_a_store_spells_it_is_read(text: object) -> None:
    assert _time_of(text).timestamp() == parse_timestamp(text).timestamp()


def test_what_is_no_time_is_an_error_and_not_a_guess() -> None:
    with pytest.raises(ValueError):
        _time_of("yesterdayZ")
