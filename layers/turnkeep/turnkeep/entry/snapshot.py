"""What a function does at import where Lambda takes a snapshot of it (SnapStart), and nowhere else.

A snapshot is restored many times, so it may hold only what every process may share: modules, the agent's own among
them, and what botocore reads of the services' descriptions. Ids and all else that is random are made in the handler;
clients, their credentials and their connections as well (``entry.wiring``).
"""

from __future__ import annotations

import os
from typing import Any

from turnkeep.entry.settings import read_environment
from turnkeep.entry.wiring import aws_config, botocore_session, load_factory


def before_snapshot(*, runs_turns: bool = False) -> None:
    """Does what the first request after each restore would otherwise wait for. Call it last at import.

    Args:
        runs_turns: whether the function runs turns, and so needs the agent and the services that a turn tells.

    Raises:
        BadSettingError: the deployment makes no sense; Lambda then publishes no version of it.
    """
    if os.environ.get("AWS_LAMBDA_INITIALIZATION_TYPE") != "snap-start":
        return
    from turnkeep.adapters.dynamo import client_config

    environment = read_environment()
    configs: dict[str, Any] = {"dynamodb": client_config()}
    if runs_turns:
        load_factory(environment.agent_factory)
        told = {"events": environment.event_bus, "stepfunctions": environment.state_machine_arn}
        configs |= {service: aws_config() for service, name in told.items() if name}
    # A client that is made and dropped: the next one finds everything read. With a name for a key, so that nobody's
    # credentials are looked for.
    nobody = dict.fromkeys(("aws_access_key_id", "aws_secret_access_key"), "nobody")
    for service, config in configs.items():
        botocore_session().create_client(service, environment.region, config=config, **nobody)
