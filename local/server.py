"""The stack itself: every part of it, put together in one process."""

from __future__ import annotations

import contextlib
import errno
import os
import resource
import sys
import time
import uuid
from pathlib import Path
from typing import Any

from local.aws import AwsEndpoint
from local.control import Control
from local.forking import Forks
from local.lambdas import Lambdas, Runner
from local.logs import LogRing
from local.settings import CREDENTIALS, LOCAL_PARAMETERS, Settings
from local.template import transform_template
from local.web import PortTaken, Request, Response, WebServer


class Server:
    """A local stack in this process. moto keeps its state in module globals, so one process holds one stack."""

    def __init__(self, settings: Settings, runner: Runner | None = None) -> None:
        """Takes the ports, and starts the process that functions are forked from.

        Args:
            settings: What to deploy, and where to listen.
            runner: Runs the functions in another way.

        Raises:
            local.web.PortTaken: A port is in use.
        """
        self.settings = settings
        self.started_s = time.monotonic()
        self.control = Control(self)
        self.logs = LogRing(Path(settings.log_file) if settings.log_file else None)
        self._web: list[WebServer] = []
        self._pollers: list[Any] = []
        self._aws_web = WebServer(settings.host, settings.aws_port, self._answer_aws)
        self._web.append(self._aws_web)
        try:
            from local.http import BODY_LIMIT_BYTES

            self._api_web = WebServer(settings.host, settings.port, self._answer_api, BODY_LIMIT_BYTES)
            self._web.append(self._api_web)
            self.lambdas = Lambdas(self.logs, runner or Forks(self.logs))
        except BaseException:
            for web in self._web:
                web.server_close()
            raise
        self.aws_url = f"http://{settings.host}:{self._aws_web.port}"
        self.functions_aws_url = self.aws_url
        self.api_url = f"http://{settings.host}:{self._api_web.port}"
        self.aws = AwsEndpoint(self.lambdas, self.control.answer)
        self.events: Any = None

    def open_to_containers(self, gateway: str) -> None:
        """Lets functions in containers reach the AWS endpoint.

        Args:
            gateway: This machine's address on Docker's bridge. Where it is none (Docker Desktop runs containers in a
                machine of its own, and leads its name for this one to the loopback), nothing more is listened on.

        Raises:
            local.web.PortTaken: The endpoint's port is in use there.
        """
        try:
            bridge = WebServer(gateway, self._aws_web.port, self._answer_aws)
        except PortTaken as taken:
            if not isinstance(taken.__cause__, OSError) or taken.__cause__.errno != errno.EADDRNOTAVAIL:
                raise
            self.functions_aws_url = f"http://host.docker.internal:{self._aws_web.port}"
            return
        self._web.append(bridge)
        bridge.start("aws-bridge")
        self.functions_aws_url = f"http://{gateway}:{bridge.port}"

    def start(self) -> None:
        """Deploys the template and begins to serve.

        Raises:
            FileNotFoundError, ValueError, RuntimeError: The template cannot be read, transformed or deployed.
        """
        settings = self.settings
        _prepare_process(self._aws_web.port)
        state_dir = Path(settings.state_dir)
        template = transform_template(
            Path(settings.template), LOCAL_PARAMETERS | settings.parameters, cache_dir=state_dir
        )
        self.aws.load()
        from local import interpreter
        from local.authorizer import Authorizer
        from local.deploy import deploy
        from local.events import EventBus
        from local.http import HttpApi
        from local.keys import load_or_create_key
        from local.queue import QueuePoller

        interpreter.install(lambda: self.aws_url, self._execution_changed)
        self._aws_web.start("aws")
        self.deployment = deploy(template, settings, self.aws_url, self.api_url)
        self.lambdas.deploy(self.deployment.functions, self.functions_aws_url)
        self.key = load_or_create_key(state_dir)
        parameters = LOCAL_PARAMETERS | settings.parameters
        authorizer = Authorizer(self.key, parameters["JwtIssuer"], parameters["JwtAudience"])
        self.api = HttpApi(self.lambdas, authorizer, self.deployment.routes, self.deployment.cors)
        asynchronous = self.aws.asynchronous
        asynchronous.retry_delays_s = settings.retry_delays_s
        asynchronous.send = self._send
        self.events = EventBus(self.deployment.rules, asynchronous, settings.schedule_s)
        self.aws.after["events", "PutEvents"] = self.events.put_events
        self.lambdas.wait_until_warm()
        self._pollers = [QueuePoller(source, self.lambdas, self.aws_url) for source in self.deployment.queues]
        for poller in [*self._pollers, self.events]:
            poller.start()
        self._api_web.start("api")

    def stop(self) -> None:
        """Ends everything, running invocations included."""
        for part in [*self._pollers, self.events, self.aws.asynchronous]:
            if part is not None:
                part.close()
        self.lambdas.close()
        for web in self._web:
            web.server_close()
        self.logs.close()

    # Both servers hold their ports before what answers is there.

    def _answer_aws(self, request: Request) -> Response:
        return self.aws.answer(request)

    def _answer_api(self, request: Request) -> Response:
        return self.api.answer(request)

    def _send(self, queue_arn: str, text: str) -> None:
        from local.deploy import internal_client

        sqs = internal_client("sqs", self.aws_url)
        url = sqs.get_queue_url(QueueName=queue_arn.rpartition(":")[2])["QueueUrl"]
        ids = {"MessageGroupId": "failed", "MessageDeduplicationId": str(uuid.uuid4())} if url.endswith(".fifo") else {}
        sqs.send_message(QueueUrl=url, MessageBody=text, **ids)

    def _execution_changed(self, execution: Any) -> None:
        if self.events is not None:
            self.events.execution_changed(execution)


def _prepare_process(aws_port: int) -> None:
    """Nothing in this process may act on the caller's own AWS settings, and it needs more than a shell's limits."""
    for name in [name for name in os.environ if name.startswith(("AWS_", "MOTO_"))]:
        del os.environ[name]
    os.environ |= {
        "AWS_ACCESS_KEY_ID": CREDENTIALS["aws_access_key_id"],
        "AWS_SECRET_ACCESS_KEY": CREDENTIALS["aws_secret_access_key"],
        "AWS_DEFAULT_REGION": CREDENTIALS["region_name"],
        "AWS_CONFIG_FILE": os.devnull,
        "AWS_SHARED_CREDENTIALS_FILE": os.devnull,
        "MOTO_PORT": str(aws_port),
    }
    # An invocation takes six descriptors here; many systems allow 1,024 unless asked.
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(most, 65_536) if most > 0 else 65_536, most))
    sys.setrecursionlimit(max(sys.getrecursionlimit(), 5000))  # JSONata's evaluator nests deeply
