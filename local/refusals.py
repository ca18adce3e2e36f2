"""How an AWS service says no."""

from __future__ import annotations

import json
import uuid
from typing import Any

from local.web import Response


def refuse(service: str, status: int, code: str, message: str, extra: dict[str, Any]) -> Response:
    """An error in the form in which the service's protocol gives it."""
    members: dict[str, Any] = {"__type": f"com.amazonaws.{service}#{code}", "message": message, "Message": message}
    response = aws_json(status, members | extra)
    response.headers.append(("x-amzn-ErrorType", code))
    return response


def aws_json(status: int, members: dict[str, Any]) -> Response:
    """An answer in AWS's JSON protocol."""
    headers = [("Content-Type", "application/x-amz-json-1.0"), ("x-amzn-RequestId", str(uuid.uuid4()))]
    return Response(status, json.dumps(members).encode(), headers)
