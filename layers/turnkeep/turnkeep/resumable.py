"""Whether a failed run is worth running again from where it stood (CONTRACT.md 15, ``canResume``).

Standard library only, as ``errors``, which hands ``can_resume`` out. Providers' errors are recognised by class name,
code and HTTP status, so that none of their libraries is imported here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

_HOPELESS_STATUSES: Final = frozenset({400, 401, 403, 404, 422})

# AWS answers a throttled request of its JSON protocols with 400: the name knows better than the status.
_PASSING_NAMES: Final = frozenset(
    {
        "ThrottlingException",
        "ThrottledException",
        "TooManyRequestsException",
        "ProvisionedThroughputExceededException",
        "RequestLimitExceeded",
        "LimitExceededException",
        "RequestTimeout",
        "RequestTimeoutException",
        "ModelNotReadyException",
        "ModelTimeoutException",
    }
)

_HOPELESS_NAMES: Final = frozenset(
    {
        # the conversation no longer fits the model's context window: it will not fit next time either
        "ContextWindowExceededError",
        "ContextWindowOverflowError",
        "ContextWindowOverflowException",
        # credentials that are missing, wrong or expired
        "AccessDenied",
        "AccessDeniedException",
        "AuthenticationError",
        "CredentialRetrievalError",
        "CredentialsProviderError",
        "ExpiredToken",
        "ExpiredTokenException",
        "IncompleteSignature",
        "InvalidClientTokenId",
        "InvalidSignatureException",
        "MissingAuthenticationToken",
        "NoCredentialsError",
        "PartialCredentialsError",
        "PermissionDeniedError",
        "SignatureDoesNotMatch",
        "SSOTokenLoadError",
        "TokenRetrievalError",
        "UnauthorizedException",
        "UnauthorizedSSOTokenError",
        "UnrecognizedClientException",
    }
)

# Two providers say no more than this, without a status on the error itself.
_BAD_API_KEY: Final = ("incorrect api key", "invalid x-api-key")


def can_resume(error: BaseException) -> bool:
    """Whether the same run may succeed when it is resumed: the cause may pass by itself.

    Returns:
        False for an overflowing context window, the HTTP statuses 400, 401, 403, 404 and 422 (``status``,
        ``status_code``, or those of a ``response``; throttling in AWS's 400 excepted), errors of credentials, and
        the two sentences that mean a bad API key. True otherwise. Never raises.
    """
    names = {cls.__name__ for cls in type(error).__mro__}
    code = _in(_in(_attribute(error, "response"), "Error"), "Code")
    if isinstance(code, str):
        names.add(code)
    if names & _HOPELESS_NAMES:
        return False
    if names & _PASSING_NAMES:
        return True
    if any(isinstance(status, int) and status in _HOPELESS_STATUSES for status in _statuses(error)):
        return False
    try:
        sentence = str(error).lower()
    except Exception:  # a foreign error's own __str__ may fail; that says nothing about resuming
        return True
    return not any(phrase in sentence for phrase in _BAD_API_KEY)


def _statuses(error: BaseException) -> list[Any]:
    response = _attribute(error, "response")
    return [
        _attribute(error, "status"),
        _attribute(error, "status_code"),
        _attribute(error, "statusCode"),
        _attribute(response, "status_code"),
        _in(_in(response, "ResponseMetadata"), "HTTPStatusCode"),
    ]


def _attribute(holder: Any, name: str) -> Any:
    try:
        return getattr(holder, name, None)
    except Exception:  # a foreign error's property may fail; it then has no such fact
        return None


def _in(holder: Any, key: str) -> Any:
    return holder.get(key) if isinstance(holder, Mapping) else None
