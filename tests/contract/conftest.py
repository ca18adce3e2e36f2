"""Where the contract suites find their stores: DynamoDB in the process, and behind a server with faults in between."""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import boto3
import pytest
from moto import mock_aws

from local import tables as limits
from local.settings import CREDENTIALS
from tests.contract.dynamo_server import DynamoServer
from tests.contract.tables import new_table
from turnkeep.adapters.dynamo import DynamoItemStore, client_config

if TYPE_CHECKING:
    from collections.abc import Iterator


@cache
def _with_limits_of_aws() -> None:
    limits.install()  # once a process: it wraps what it finds


@pytest.fixture(scope="module")
def moto_client() -> Iterator[Any]:
    """A DynamoDB client on moto in this process, with AWS's size limits."""
    with mock_aws():
        _with_limits_of_aws()
        yield boto3.session.Session(**CREDENTIALS).client("dynamodb", config=client_config())


@pytest.fixture(scope="session")
def dynamo_server() -> Iterator[DynamoServer]:
    """DynamoDB in a process of its own."""
    with DynamoServer() as server:
        yield server


@pytest.fixture(scope="session")
def server_store(dynamo_server: DynamoServer) -> DynamoItemStore:
    """One table behind the server; tests use partitions of their own."""
    client = dynamo_server.client()
    return DynamoItemStore(client, new_table(client))


@pytest.fixture(autouse=True)
def _no_faults_left(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "dynamo_server" in request.fixturenames:
        request.getfixturevalue("dynamo_server").faults.clear()
