"""The functions' environment as one value, read when the first request needs it and never at import."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, cast

from turnkeep.errors import TurnkeepError
from turnkeep.usecases.deps import Settings

if TYPE_CHECKING:
    from collections.abc import Mapping

    from turnkeep.agent.port import DurabilityMode

DURABILITY_MODES: Final = ("exit", "async", "sync")
ON_CONCURRENT: Final = ("reject", "enqueue")


class BadSettingError(TurnkeepError):
    """An environment variable of the function is missing or makes no sense: a fault of the deployment.

    It has no code of its own: the log names the variable, a caller hears of an internal error.

    Args:
        variable: its name.
        rule: what it has to be; the value is not repeated.
    """

    def __init__(self, variable: str, rule: str) -> None:
        self.variable = variable
        super().__init__(f"The environment variable {variable} {rule}.")


@dataclass(frozen=True)
class Environment:
    """What the deployment says.

    Attributes:
        core: the settings that the use cases read.
        agent_factory: ``module:callable``.
        tenant_claim, roles_claim: names of claims; empty: there are none.
        cors_origins: origins of browsers that may read replies; ``*`` stands for every one.
        queue_url, state_machine_arn, event_bus: empty where the stack has none.
    """

    table: str
    agent_factory: str = ""
    state_machine_arn: str = ""
    queue_url: str = ""
    event_bus: str = ""
    tenant_claim: str = ""
    roles_claim: str = ""
    cors_origins: tuple[str, ...] = ()
    region: str | None = None
    core: Settings = field(default_factory=Settings)


def read_environment(variables: Mapping[str, str] | None = None) -> Environment:
    """Reads the environment variables.

    Args:
        variables: by default the process's own.

    Raises:
        BadSettingError: names the first variable that is missing or wrong.
    """
    read = _Variables(os.environ if variables is None else variables)
    return Environment(
        table=read.required("TURNKEEP_TABLE"),
        agent_factory=read.text("TURNKEEP_AGENT_FACTORY"),
        state_machine_arn=read.text("TURNKEEP_STATE_MACHINE_ARN"),
        queue_url=read.text("TURNKEEP_QUEUE_URL"),
        event_bus=read.text("TURNKEEP_EVENT_BUS"),
        tenant_claim=read.text("TURNKEEP_TENANT_CLAIM"),
        roles_claim=read.text("TURNKEEP_ROLES_CLAIM"),
        cors_origins=tuple(re.split(r"[\s,]+", origins) if (origins := read.text("TURNKEEP_CORS_ORIGINS")) else ()),
        region=read.text("AWS_REGION") or read.text("AWS_DEFAULT_REGION") or None,
        core=Settings(
            allow_anonymous=read.switch("TURNKEEP_ALLOW_ANONYMOUS"),
            durability=cast("DurabilityMode", read.one_of("TURNKEEP_DURABILITY", DURABILITY_MODES)),
            ask_expires_s=read.number("TURNKEEP_ASK_EXPIRES_S", default=604_800, low=1),
            retention_days=read.number("TURNKEEP_RETENTION_DAYS", default=0),
            max_message_bytes=read.number("TURNKEEP_MAX_MESSAGE_BYTES", default=262_144, low=1),
            on_concurrent=read.one_of("TURNKEEP_ON_CONCURRENT", ON_CONCURRENT),
            request_key_ttl_s=read.number("TURNKEEP_REQUEST_KEY_TTL_S", default=86_400, low=1),
            turns_per_hour=read.number("TURNKEEP_TURNS_PER_HOUR", default=0),
        ),
    )


class _Variables:
    """Typed reads. An empty variable is an absent one: CloudFormation cannot leave one out."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        self.variables = variables

    def text(self, name: str) -> str:
        return self.variables.get(name, "").strip()

    def required(self, name: str) -> str:
        if not self.text(name):
            raise BadSettingError(name, "is missing")
        return self.text(name)

    def switch(self, name: str) -> bool:
        said = self.text(name).lower() or "false"
        if said not in {"true", "false"}:
            raise BadSettingError(name, "has to be true or false")
        return said == "true"

    def number(self, name: str, *, default: int, low: int = 0) -> int:
        said = self.text(name)
        if not said:
            return default
        if not (said.isascii() and said.isdigit() and len(said) <= 15 and int(said) >= low):
            raise BadSettingError(name, f"has to be a whole number from {low} on")
        return int(said)

    def one_of(self, name: str, allowed: tuple[str, ...]) -> Any:
        said = self.text(name) or allowed[0]
        if said not in allowed:
            raise BadSettingError(name, f"has to be one of {', '.join(allowed)}")
        return said
