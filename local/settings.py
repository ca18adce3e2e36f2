"""What a local stack is started with, and the facts that every part of it shares."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
REGION = "us-east-1"
ACCOUNT = "123456789012"
STACK_NAME = "turnkeep"
BUCKET = "turnkeep-local-artifacts"
ISSUER = "https://issuer.turnkeep.localhost"
AUDIENCE = "turnkeep"

# moto takes any credentials; these are spelled out so that nobody's real ones are ever read.
CREDENTIALS = {
    "aws_access_key_id": "local",
    "aws_secret_access_key": "local",
    "aws_session_token": "local",
    "region_name": REGION,
}


def aws_session() -> Any:
    """A boto3 session of its own (the shared one is not safe under threads)."""
    import boto3

    return boto3.session.Session(**CREDENTIALS)  # type: ignore[arg-type]


# Where the template asks for these, the local stack answers so; a template without one is given none.
LOCAL_PARAMETERS = {
    "AllowAnonymous": "false",
    "JwtIssuer": ISSUER,
    "JwtAudience": AUDIENCE,
}


# Only the local stack mixes both: the template's authorizer checks tokens, and tokenless callers come in as anonymous.
LOCAL_ENVIRONMENT = {"TURNKEEP_ALLOW_ANONYMOUS": "true"}


@dataclass(frozen=True)
class Settings:
    """One stack's settings; plain values only, so that they travel to a child process as JSON.

    Attributes:
        template: The SAM template; paths in it are relative to its folder.
        port: The API's port; 0 takes a free one.
        aws_port: The AWS endpoint's port; 0 takes a free one.
        state_dir: Where the signing key and the transform's cache are kept.
        parameters: Template parameters, laid over the local defaults.
        environment: Laid over every function's environment; a value that is a dict is laid over the function of
            that logical id alone.
        schedule_s: Replaces the period of every schedule; 0 switches schedules off.
        retry_delays_s: The waits before an asynchronous invocation's first and second retry.
        log_file: Where functions' output is appended, beside the ring that `/_local/logs` reads.
    """

    template: str = str(ROOT / "template.yaml")
    host: str = "127.0.0.1"
    port: int = 3000
    aws_port: int = 5000
    state_dir: str = str(ROOT / ".turnkeep")
    parameters: dict[str, str] = field(default_factory=dict)
    environment: dict[str, Any] = field(default_factory=dict)
    schedule_s: float | None = None
    retry_delays_s: tuple[float, ...] = (60.0, 120.0)
    log_file: str | None = None

    def to_json(self) -> str:
        """One line of JSON."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Settings:
        """Reads what `to_json` wrote."""
        values = json.loads(text)
        values["retry_delays_s"] = tuple(values["retry_delays_s"])
        return cls(**values)

    def environment_of(self, logical_id: str) -> dict[str, str]:
        """The variables laid over one function's own."""
        common = {name: str(value) for name, value in self.environment.items() if not isinstance(value, dict)}
        own = self.environment.get(logical_id, {})
        return LOCAL_ENVIRONMENT | common | {name: str(value) for name, value in own.items()}
