"""Requests to an S3-compatible store: repeated where that is right, and what their answers mean.

An answer is one of three: a result; a refusal (:class:`Refused`), which is certain; or none that
says what happened (:class:`Unclear`): a server error, a cut connection, a timeout.  A request whose
effect does not depend on how often it arrives is repeated here.  A conditional one is repeated by
its caller, who then has to find out whether a refusal only means that an earlier try had worked.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sparkrobust.errors import (
    PermissionDeniedError,
    RobustWriteError,
    StorageFullError,
    UnavailableError,
    UnsupportedTableError,
)
from sparkrobust.storage.contract import NotFoundError
from sparkrobust.storage.patience import Patience
from sparkrobust.storage.s3_settings import S3Settings, botocore_module, client_of

DEFAULT_PATIENCE = Patience(tries=6, first_pause=0.1, longest_pause=4.0)

_UNCLEAR_CODES = {
    "ConditionalRequestConflict",
    "ExistingObjectIsDirectory",  # so a gateway to a disk says, too, when two puts of one object meet
    "InternalError",
    "OperationAborted",
    "RequestTimeout",
    "ServiceUnavailable",
    "SlowDown",
    "Throttling",
    "ThrottlingException",
    "TooManyRequests",
}
_FULL_CODES = {"QuotaExceeded", "XMinioStorageFull", "InsufficientStorage", "EntityTooLargeForQuota"}
_NOT_IMPLEMENTED = 501


class Refused(Exception):
    """The store said no."""

    def __init__(self, status: int, code: str, reason: str) -> None:
        super().__init__(f"{code}: {reason}")
        self.status, self.code, self.reason = status, code, reason

    @property
    def is_missing(self) -> bool:
        return self.status == 404

    @property
    def is_precondition(self) -> bool:
        return self.status == 412


class Unclear(Exception):
    """No answer, or one that leaves open whether the request had its effect."""


class Requests:
    """The operations of one bucket."""

    def __init__(self, settings: S3Settings, bucket: str, patience: Patience) -> None:
        self.settings = settings
        self.bucket = bucket
        self.patience = patience

    def once(
        self, operation: str, *, check: Callable[[int], None] | None = None, **parameters: Any
    ) -> dict[str, Any]:
        """Send one request; ``Refused``, ``Unclear``.  A body is read to its end (``"Data"``).

        Parameters
        ----------
        check
            Asked about the size of the body before it is read; raises if it is not to be.
        """
        exceptions = botocore_module("botocore.exceptions")
        try:
            client = client_of(self.settings)
            answer: dict[str, Any] = getattr(client, operation)(Bucket=self.bucket, **parameters)
            if "Body" in answer:
                body = answer.pop("Body")
                try:
                    if check is not None:
                        check(answer["ContentLength"])
                    answer["Data"] = body.read()
                except BaseException:
                    body.close()  # what was not read to its end would keep its connection
                    raise
            return answer
        except exceptions.ClientError as error:
            raise self._refusal(error.response) from None
        except (exceptions.NoCredentialsError, exceptions.PartialCredentialsError) as error:
            raise Refused(403, "NoCredentials", self._text(error)) from None
        except (exceptions.ParamValidationError, exceptions.ProfileNotFound, ValueError) as error:
            raise Refused(400, type(error).__name__, self._text(error)) from None
        except (exceptions.BotoCoreError, OSError) as error:
            raise Unclear(self._text(error)) from None

    def _text(self, error: Exception) -> str:
        return self.settings.redact(f"{type(error).__name__}: {error}")

    def _refusal(self, response: dict[str, Any]) -> Exception:
        status = int(response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
        details = response.get("Error", {})
        code = str(details.get("Code", status))
        reason = self.settings.redact(str(details.get("Message", "")))
        busy = status == 429 or (status >= 500 and status != _NOT_IMPLEMENTED)
        if (busy and code not in _FULL_CODES) or code in _UNCLEAR_CODES:
            return Unclear(f"{status} {code}: {reason}")
        return Refused(status, code, reason)

    def repeated(self, operation: str, path: str, **parameters: Any) -> dict[str, Any]:
        """Send a request that may arrive several times, until it is answered; ``Refused``."""
        unclear: Unclear | None = None
        for _ in self.patience.attempts():
            try:
                return self.once(operation, **parameters)
            except Unclear as error:
                unclear = error
        raise self.unavailable(operation, path, unclear) from None

    def unavailable(self, operation: str, path: str, unclear: Unclear | None) -> UnavailableError:
        tries = self.patience.tries
        return UnavailableError(
            f"no clear answer to {operation} of {self.shown(path)} after {tries} tries: {unclear}", path=path
        )

    def error_of(self, refused: Refused, action: str, path: str) -> RobustWriteError:
        """The library's error for a refusal that has no special meaning to the caller."""
        cls: type[RobustWriteError] = UnsupportedTableError
        hint = None
        if refused.is_missing:
            cls = NotFoundError
        elif refused.code in _FULL_CODES or refused.status == 507:
            cls = StorageFullError
        elif refused.status in (401, 403):
            cls, hint = PermissionDeniedError, "check the credentials, their rights, and the region"
        elif refused.status in (301, 307, 400):
            cls, hint = PermissionDeniedError, "check the endpoint, the region and the bucket's name"
        said = f"{refused.status} {refused.code}"
        if refused.reason:
            said += f": {refused.reason}"
        return cls(f"can't {action} {self.shown(path)}: {said}", path=path, hint=hint)

    def head(self, path: str, key: str) -> dict[str, Any] | None:
        """What the store knows about an object, ``None`` where there is none."""
        try:
            return self.repeated("head_object", path, Key=key)
        except Refused as refused:
            if refused.is_missing:
                return None
            raise self.error_of(refused, "look at", path) from None

    def shown(self, path: str) -> str:
        return f"{path or 'the root'} in bucket {self.bucket}"
