"""What an AWS call's failure means, read once, by code and never by message."""

from __future__ import annotations

from botocore.exceptions import BotoCoreError, ClientError

from turnkeep.errors import StoreUnavailableError

AWS_ERRORS = (ClientError, BotoCoreError)
"""Everything that an AWS client raises."""


def code_of(error: BaseException) -> str:
    """AWS's error code, such as ``ExecutionAlreadyExists``; the class's name for a failure below HTTP."""
    if isinstance(error, ClientError):
        return str(error.response.get("Error", {}).get("Code", ""))
    return type(error).__name__


def not_now(error: BaseException) -> StoreUnavailableError:
    """The failure of a call that is made again later by somebody else (``reconcile``): nothing was lost.

    Permissions and wrong names are among them: they too are repaired without the turn, which is committed already. The
    cause is logged with its code, and an alarm watches the count.
    """
    unavailable = StoreUnavailableError()
    unavailable.__cause__ = error
    return unavailable
