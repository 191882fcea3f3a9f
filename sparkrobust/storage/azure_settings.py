"""How Azure's blob store is reached: from Hadoop's own keys and the environment.

Credentials live here and in the client made from them, and nowhere else: they show in no ``repr``,
no error and no log.
"""

from __future__ import annotations

import importlib
import os
import re
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cache, lru_cache
from typing import Any
from urllib.parse import unquote, urlsplit

from sparkrobust.errors import InvalidInputError, InvalidOptionError, UnsupportedTableError
from sparkrobust.storage.contract import checked

SCHEMES = ("abfs", "abfss", "wasb", "wasbs")
_PREFIX = "fs.azure."
_MIN_SECRET = 4
_HOST = re.compile(r"([a-z0-9]+)\.(?:dfs|blob)\.([a-z0-9.-]+)")
_CONTAINER = re.compile(r"\$?[a-z0-9]+(?:-[a-z0-9]+)*")
_FORM = "abfss://container@account.dfs.core.windows.net/path"

# What the client itself would take from the environment; executors need not have it there.
_KEY_VARIABLES = ("AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_ACCESS_KEY", "AZURE_STORAGE_MASTER_KEY")
_SAS_VARIABLES = ("AZURE_STORAGE_SAS_TOKEN", "AZURE_STORAGE_SAS_KEY")


@dataclass(frozen=True, kw_only=True)
class AzurePlace:
    """Where a table lies."""

    url: str
    container: str
    host: str
    """The account's, as the URL spells it."""
    account: str
    suffix: str
    """What the names of all services of this cloud end with."""
    root: str

    @classmethod
    def of(cls, url: str) -> AzurePlace:
        """Read ``abfss://container@account.dfs.core.windows.net/path`` or ``wasbs://``."""
        scheme, separator, rest = url.partition("://")
        authority, _, path = rest.partition("/")
        container, at, host = authority.partition("@")
        match = _HOST.fullmatch(host.lower())
        if scheme.lower() not in SCHEMES or not separator or not at or not match:
            # The URL is not repeated: it may hold a key.
            raise InvalidInputError(f"not a URL of the form {_FORM}")
        if not _CONTAINER.fullmatch(container):
            raise InvalidInputError(f"not the name of a container in a URL of the form {_FORM}")
        root = "/".join(part for part in path.split("/") if part)
        checked(root)
        return cls(
            url=f"{scheme.lower()}://{container}@{host.lower()}/{root}".rstrip("/"),
            container=container,
            host=host.lower(),
            account=match[1],
            suffix=match[2],
            root=root,
        )


@dataclass(frozen=True, kw_only=True)
class AzureSettings:
    """Where the account is and who we are; without keys, the platform's own chain is asked."""

    account: str
    endpoint: str
    account_key: str | None = field(default=None, repr=False)
    sas: str | None = field(default=None, repr=False)
    client_id: str | None = None
    client_secret: str | None = field(default=None, repr=False)
    tenant: str | None = None

    @classmethod
    def of(cls, options: Mapping[str, str], place: AzurePlace) -> AzureSettings:
        """Read ``fs.azure.*`` keys, those of the account (``<key>.<account's host>``) first."""
        keys = _Keys(options, place)
        client, secret = keys.get("account.oauth2.client.id"), keys.get("account.oauth2.client.secret")
        if (client is None) != (secret is None):
            missing, given = ("secret", "id") if secret is None else ("id", "secret")
            name = f"{_PREFIX}account.oauth2.client"
            raise InvalidOptionError(f"{name}.{given} is given without {name}.{missing}")
        key = keys.get("account.key")
        sas = keys.get("sas.fixed.token") or keys.get(f"sas.{place.container}")
        if not (client or key or sas):
            key, sas = _of_environment(_KEY_VARIABLES), _of_environment(_SAS_VARIABLES)
        return cls(
            account=place.account,
            endpoint=_endpoint(keys) or f"https://{place.account}.blob.{place.suffix}",
            account_key=key,
            sas=sas.removeprefix("?") if sas else None,
            client_id=client,
            client_secret=secret,
            tenant=_tenant(keys.get("account.oauth2.client.endpoint")),
        )

    def redact(self, text: str) -> str:
        """The text without any of our secrets."""
        secrets = [self.account_key, self.client_secret, self.sas]
        if self.sas:
            # The signature may be shown without the rest, and spelled in either way.
            signature = self.sas.partition("sig=")[2].partition("&")[0]
            secrets += [signature, unquote(signature)]
        for secret in secrets:
            if secret and len(secret) >= _MIN_SECRET:
                text = text.replace(secret, "***")
        return text


class _Keys:
    def __init__(self, options: Mapping[str, str], place: AzurePlace) -> None:
        self._options = {key.lower(): value for key, value in options.items()}
        # Hadoop's two clients spell one account differently.
        self._hosts = [f"{place.account}.{service}.{place.suffix}" for service in ("dfs", "blob")]

    def get(self, name: str) -> str | None:
        for key in (*(f"{_PREFIX}{name}.{host}" for host in self._hosts), _PREFIX + name):
            value = self._options.get(key.lower())
            if value is not None and value.strip():
                return value.strip()
        return None


def _of_environment(names: tuple[str, ...]) -> str | None:
    return next((value for name in names if (value := os.environ.get(name))), None)


def _tenant(endpoint: str | None) -> str | None:
    """The directory that signs us in, from the address that Hadoop asks for a token."""
    if endpoint is None:
        return None
    first = urlsplit(endpoint).path.strip("/").partition("/")[0]
    if not first:
        raise InvalidOptionError(
            f"{_PREFIX}account.oauth2.client.endpoint must name a tenant: https://host/<tenant>/oauth2/token"
        )
    return first


def _endpoint(keys: _Keys) -> str | None:
    """``fs.azure.blob.endpoint``: for an emulator, a private address, another cloud."""
    given = keys.get("blob.endpoint")
    if given is None:
        return None
    try:
        parts = urlsplit(given)
        wrong = parts.scheme not in ("http", "https") or not parts.hostname
        wrong = wrong or "@" in parts.netloc or bool(parts.query)
    except ValueError:
        wrong = True
    if wrong:
        # The value is not repeated: people put keys into it.
        raise InvalidOptionError(f"{_PREFIX}blob.endpoint must be an http(s) URL without credentials")
    return given.rstrip("/")


# -- the client ------------------------------------------------------------------------------------

_MAKING = threading.Lock()


def obstore_module() -> Any:
    """The client's module, which is imported only when a table on such a store is first used."""
    return _imported("obstore")


@cache
def _imported(name: str) -> Any:
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise UnsupportedTableError(
            "a table on Azure needs obstore",
            hint="install it on the driver and the executors: sparkrobust[azure]",
        ) from error


def client_of(settings: AzureSettings, container: str, *, retries: int) -> Any:
    """A client; one per process and settings.

    Parameters
    ----------
    retries
        How often it repeats a request by itself.  A conditional one must not be repeated by it: only
        who counts the tries knows whether a refusal can mean that an earlier one had worked.
    """
    # A forked child must not use its parent's threads, so the process is part of the key.
    with _MAKING:
        return _client(settings, container, retries, os.getpid())


@lru_cache(maxsize=16)
def _client(settings: AzureSettings, container: str, retries: int, process: int) -> Any:
    chosen = {
        "account_name": settings.account,
        "endpoint": settings.endpoint,
        "account_key": settings.account_key,
        "sas_key": settings.sas,
        "client_id": settings.client_id,
        "client_secret": settings.client_secret,
        "tenant_id": settings.tenant,
    }
    return _imported("obstore.store").AzureStore(
        container,
        config={key: value for key, value in chosen.items() if value is not None},
        client_options={
            "allow_http": settings.endpoint.startswith("http://"),
            "connect_timeout": timedelta(seconds=10),
            "timeout": timedelta(seconds=60),
        },
        retry_config={
            "max_retries": retries,
            "retry_timeout": timedelta(seconds=60),
            "backoff": {
                "init_backoff": timedelta(milliseconds=100),
                "max_backoff": timedelta(seconds=4),
                "base": 2,
            },
        },
    )
