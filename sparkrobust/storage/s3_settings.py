"""How an S3-compatible store is reached: from Hadoop's own keys and the environment.

Credentials live here and in the client made from them, and nowhere else: they show in no ``repr``,
no error and no log.
"""

from __future__ import annotations

import importlib
import logging
import os
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import cache, lru_cache
from typing import Any
from urllib.parse import urlsplit

from sparkrobust.errors import InvalidOptionError, UnsupportedTableError

_PREFIX = "fs.s3a."
_DEFAULT_REGION = "us-east-1"
_ANONYMOUS = "AnonymousAWSCredentialsProvider"
_GLOBAL_ENDPOINTS = {"s3.amazonaws.com", "https://s3.amazonaws.com", "http://s3.amazonaws.com"}
_MIN_SECRET = 4
_STATIC_SOURCES = {"env", "shared-credentials-file", "config-file"}


@dataclass(frozen=True, kw_only=True)
class S3Settings:
    """Where the store is and who we are; without keys, the platform's own chain is asked."""

    endpoint: str | None = None
    region: str | None = None
    path_style: bool = False
    anonymous: bool = False
    access_key: str | None = field(default=None, repr=False)
    secret_key: str | None = field(default=None, repr=False)
    session_token: str | None = field(default=None, repr=False)

    @classmethod
    def of(cls, options: Mapping[str, str], bucket: str) -> S3Settings:
        """Read ``fs.s3a.*`` keys, those of the bucket (``fs.s3a.bucket.<bucket>.*``) first."""
        reader = _Keys(options, bucket)
        access, secret = reader.get("access.key"), reader.get("secret.key")
        if (access is None) != (secret is None):
            missing, given = ("secret", "access") if secret is None else ("access", "secret")
            raise InvalidOptionError(f"{_PREFIX}{given}.key is given without {_PREFIX}{missing}.key")
        environment = os.environ
        return cls(
            endpoint=_endpoint(reader),
            region=reader.get("endpoint.region")
            or environment.get("AWS_REGION")
            or environment.get("AWS_DEFAULT_REGION"),
            path_style=reader.flag("path.style.access", default=False),
            anonymous=(reader.get("aws.credentials.provider") or "").strip().endswith(_ANONYMOUS),
            access_key=access,
            secret_key=secret,
            session_token=reader.get("session.token") if access else None,
        )

    def redact(self, text: str) -> str:
        """The text without any of our secrets."""
        for secret in (self.secret_key, self.session_token, self.access_key):
            if secret and len(secret) >= _MIN_SECRET:
                text = text.replace(secret, "***")
        return text

    def portable(self) -> S3Settings:
        """What another machine needs: keys that this one found in its environment or files go along.

        Keys that a platform hands out and renews stay where they are: the other machine asks its own.
        """
        if self.access_key or self.anonymous:
            return self
        found = _session().get_credentials()
        if found is None or found.method not in _STATIC_SOURCES:
            return self
        keys = found.get_frozen_credentials()
        return replace(self, access_key=keys.access_key, secret_key=keys.secret_key, session_token=keys.token)


class _Keys:
    def __init__(self, options: Mapping[str, str], bucket: str) -> None:
        self._options = {key.lower(): value for key, value in options.items()}
        self._bucket = bucket

    def get(self, name: str) -> str | None:
        for prefix in (f"{_PREFIX}bucket.{self._bucket}.".lower(), _PREFIX):
            value = self._options.get(prefix + name)
            if value is not None and value.strip():
                return value.strip()
        return None

    def flag(self, name: str, *, default: bool) -> bool:
        value = self.get(name)
        if value is None:
            return default
        if value.lower() not in ("true", "false"):
            raise InvalidOptionError(f"{_PREFIX}{name} must be true or false, not {value!r}")
        return value.lower() == "true"


def _endpoint(reader: _Keys) -> str | None:
    given = (
        reader.get("endpoint")
        or os.environ.get("AWS_ENDPOINT_URL_S3")
        or os.environ.get("AWS_ENDPOINT_URL")
        or ""
    )
    if not given or given.rstrip("/") in _GLOBAL_ENDPOINTS:
        return None
    if "://" not in given:
        given = ("https://" if reader.flag("connection.ssl.enabled", default=True) else "http://") + given
    try:
        parts = urlsplit(given)
        wrong = parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc
    except ValueError:
        wrong = True
    if wrong:
        # The value is not repeated: people put keys into it.
        raise InvalidOptionError(f"{_PREFIX}endpoint must be a host or an http(s) URL without credentials")
    return given.rstrip("/")


# -- the client ------------------------------------------------------------------------------------

_MAKING = threading.Lock()


@cache
def botocore_module(name: str) -> Any:
    """A module of botocore, which is imported only when a table on S3 is first used."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UnsupportedTableError(
            "a table on S3 needs boto3", hint="install it on the driver and the executors: sparkrobust[s3]"
        ) from error


def _session() -> Any:
    _keep_signatures_out_of_logs()
    return botocore_module("botocore.session").get_session()


def client_of(settings: S3Settings) -> Any:
    """A botocore client; one per process and settings, because making one takes long."""
    # A forked child must not use its parent's connections, so the process is part of the key.
    with _MAKING:
        return _client(settings, os.getpid())


@lru_cache(maxsize=8)
def _client(settings: S3Settings, process: int) -> Any:
    config = botocore_module("botocore.config").Config(
        # We repeat requests ourselves: only so we know whether an answer can be that of our own first try.
        retries={"total_max_attempts": 1, "mode": "standard"},
        connect_timeout=10,
        read_timeout=60,
        max_pool_connections=64,
        s3={"addressing_style": "path" if settings.path_style else "auto"},
        # Not every compatible store takes the checksums that newer clients add by themselves.
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        **({"signature_version": botocore_module("botocore").UNSIGNED} if settings.anonymous else {}),
    )
    session = _session()
    # A listing is mostly times, and botocore's own parser takes four fifths of a listing's time for them.
    session.get_component("response_parser_factory").set_parser_defaults(timestamp_parser=_time_of)
    region = settings.region or session.get_config_variable("region") or _DEFAULT_REGION
    return session.create_client(
        "s3",
        endpoint_url=settings.endpoint,
        region_name=region,
        aws_access_key_id=settings.access_key,
        aws_secret_access_key=settings.secret_key,
        aws_session_token=settings.session_token,
        config=config,
    )


def _time_of(text: Any) -> datetime:
    """A time in an answer: as stores write it in listings, else whatever botocore can read."""
    if isinstance(text, str) and text.endswith("Z"):
        with suppress(ValueError):
            return datetime.fromisoformat(text[:-1] + "+00:00")
    parsed: datetime = botocore_module("botocore.utils").parse_timestamp(text)
    return parsed


def _keep_signatures_out_of_logs() -> None:
    """At DEBUG, botocore logs headers with session tokens; only who asks for just that gets it."""
    logger = logging.getLogger("botocore")
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.INFO)
