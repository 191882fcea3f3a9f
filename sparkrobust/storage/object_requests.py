"""Requests through obstore: what their answers mean, and which of them are repeated.

An answer is one of three: a result; a refusal (:class:`Refused`), which is certain; or none that
says what happened (:class:`Unclear`).  The client's own texts hold whole URLs, with whatever signs
them; ours say the status and the store's code.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar

from sparkrobust.errors import (
    PermissionDeniedError,
    RobustWriteError,
    StorageFullError,
    UnavailableError,
    UnsupportedTableError,
)
from sparkrobust.storage.azure_settings import AzureSettings, client_of, obstore_module
from sparkrobust.storage.contract import NotFoundError
from sparkrobust.storage.patience import Patience

T = TypeVar("T")

DEFAULT_PATIENCE = Patience(tries=6, first_pause=0.1, longest_pause=4.0)

_STATUS = re.compile(r"status code: (\d{3})")
_CODE = re.compile(r"<Code>([A-Za-z]+)</Code>")
_URL = re.compile(r"[a-z]+://\S+")
_BUSY = {408, 429}
_NOT_IMPLEMENTED, _FULL = 501, 507
_LONGEST_REASON = 200


class Refused(Exception):
    """The store said no."""

    def __init__(self, status: int, code: str) -> None:
        super().__init__(f"{status} {code}")
        self.status, self.code = status, code

    @property
    def is_missing(self) -> bool:
        return self.status == 404

    @property
    def is_taken(self) -> bool:
        """There is already such an object, or another version than the one that was meant."""
        return self.status in (409, 412)


class Unclear(Exception):
    """No answer, or one that leaves open whether the request had its effect."""


class Requests:
    """The operations of one container."""

    def __init__(self, settings: AzureSettings, container: str, patience: Patience) -> None:
        self.settings, self.container, self.patience = settings, container, patience

    def once(self, ask: Callable[[Any, Any], T]) -> T:
        """Send one request, made from obstore and its client; ``Refused``, ``Unclear``."""
        obstore = obstore_module()
        try:
            return ask(obstore, client_of(self.settings, self.container, retries=0))
        except (obstore.exceptions.BaseError, OSError, ValueError) as error:
            raise self._meaning(error) from None

    def _meaning(self, error: Exception) -> Exception:
        obstore, text = obstore_module(), str(error)
        known = {
            FileNotFoundError: 404,
            obstore.exceptions.AlreadyExistsError: 409,
            obstore.exceptions.PreconditionError: 412,
            obstore.exceptions.PermissionDeniedError: 403,
            obstore.exceptions.UnauthenticatedError: 401,
            obstore.exceptions.NotSupportedError: _NOT_IMPLEMENTED,
            obstore.exceptions.InvalidPathError: 400,
            obstore.exceptions.UnknownConfigurationKeyError: 400,
            ValueError: 400,
        }
        said = _STATUS.search(text)
        status = next((known[kind] for kind in type(error).__mro__ if kind in known), None)
        status = status or (int(said[1]) if said else None)
        code = _CODE.search(text)
        certain = status is not None and (status < 500 or status in (_NOT_IMPLEMENTED, _FULL))
        if status is not None and certain and status not in _BUSY:
            return Refused(status, code[1] if code else type(error).__name__)
        shown = _URL.sub("<url>", text.partition("\n")[0])[:_LONGEST_REASON]
        return Unclear(self.settings.redact(f"{status or ''} {code[1] if code else shown}".strip()))

    def repeated(self, action: str, path: str, ask: Callable[[Any, Any], T]) -> T:
        """Send a request that may arrive several times, until it is answered; ``Refused``."""
        unclear: Unclear | None = None
        for _ in self.patience.attempts():
            try:
                return self.once(ask)
            except Unclear as error:
                unclear = error
        raise self.unavailable(action, path, unclear) from None

    def answered(self, action: str, path: str, ask: Callable[[Any, Any], T]) -> T:
        """The same, where a refusal has no meaning of its own: the library's error for it."""
        try:
            return self.repeated(action, path, ask)
        except Refused as refused:
            raise self.error_of(refused, action, path) from None

    def unavailable(self, action: str, path: str, unclear: Unclear | None) -> UnavailableError:
        return UnavailableError(f"no clear answer to {action} {self.shown(path)}: {unclear}", path=path)

    def error_of(self, refused: Refused, action: str, path: str) -> RobustWriteError:
        """The library's error for a refusal that has no special meaning to the caller."""
        cls: type[RobustWriteError] = UnsupportedTableError
        hint = None
        if refused.code == "ContainerNotFound":
            cls, hint = NotFoundError, f"make the container {self.container} first"
        elif refused.is_missing:
            cls = NotFoundError
        elif refused.status == _FULL:
            cls = StorageFullError
        elif refused.status in (400, 401, 403):
            cls, hint = PermissionDeniedError, "check the credentials, their rights, and the account's name"
        return cls(f"can't {action} {self.shown(path)}: {refused}", path=path, hint=hint)

    def shown(self, path: str) -> str:
        return f"{path or 'the root'} in container {self.container}"
