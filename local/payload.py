"""Payload format 2.0 of an HTTP API: the event that a function gets, and what becomes of its answer."""

from __future__ import annotations

import base64
import json
import time
import uuid
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl

from local.settings import ACCOUNT
from local.web import Request, Response

if TYPE_CHECKING:
    from local.routes import Match

API_ID = "local"
_TEXT = ("application/json", "application/javascript", "application/xml", "application/problem+json")


def build_event(
    request: Request, path: str, match: Match, claims: dict[str, str] | None, host: str, request_id: str
) -> dict[str, Any]:
    """The event for a request.

    Args:
        request: The request as it came.
        path: Its path, decoded.
        match: The route that it goes to.
        claims: A verified token's claims, as text; None where nobody authorized the request.
        host: The name and port by which the API was called.
        request_id: The gateway's id of the request.
    """
    folded: dict[str, str] = {}
    cookies: list[str] = []
    for name, value in request.headers:
        key = name.lower()
        if key == "cookie":
            cookies += [part.strip() for part in value.split(";") if part.strip()]
        elif key not in ("connection", "transfer-encoding", "expect"):
            folded[key] = f"{folded[key]},{value}" if key in folded else value
    now_s = time.time()
    trace = f"Root=1-{int(now_s):08x}-{uuid.uuid4().hex[:24]}"
    folded = {
        **folded,
        "content-length": str(len(request.body)),
        "x-amzn-trace-id": folded.get("x-amzn-trace-id", trace),
        "x-forwarded-for": ", ".join(filter(None, [folded.get("x-forwarded-for"), request.client])),
        "x-forwarded-port": host.rpartition(":")[2],
        "x-forwarded-proto": "http",
    }
    context: dict[str, Any] = {
        "accountId": ACCOUNT,
        "apiId": API_ID,
        "domainName": host,
        "domainPrefix": host.split(".", maxsplit=1)[0],
        "http": {
            "method": request.method,
            "path": path,
            "protocol": "HTTP/1.1",
            "sourceIp": request.client,
            "userAgent": folded.get("user-agent", ""),
        },
        "requestId": request_id,
        "routeKey": match.route.key,
        "stage": "$default",
        "time": time.strftime("%d/%b/%Y:%H:%M:%S +0000", time.gmtime(now_s)),
        "timeEpoch": int(now_s * 1000),
    }
    if claims is not None:
        context["authorizer"] = {"jwt": {"claims": claims, "scopes": None}}
    event: dict[str, Any] = {
        "version": "2.0",
        "routeKey": match.route.key,
        "rawPath": path,
        "rawQueryString": request.query,
        "headers": folded,
        "requestContext": context,
        "isBase64Encoded": False,
    }
    if cookies:
        event["cookies"] = cookies
    if match.variables:
        event["pathParameters"] = match.variables
    if query := query_parameters(request.query):
        event["queryStringParameters"] = query
    if request.body:
        event["body"], event["isBase64Encoded"] = _body(request.body, folded.get("content-type"))
    return event


def query_parameters(query: str) -> dict[str, str]:
    """Decoded parameters; one that comes more than once has its values joined by commas."""
    found: dict[str, str] = {}
    for name, value in parse_qsl(query, keep_blank_values=True, errors="replace"):
        found[name] = f"{found[name]},{value}" if name in found else value
    return found


def _body(body: bytes, content_type: str | None) -> tuple[str, bool]:
    kind = (content_type or "").split(";")[0].strip().lower()
    if not kind or kind.startswith("text/") or kind in _TEXT or kind.endswith(("+json", "+xml")):
        try:
            return body.decode("utf-8"), False
        except UnicodeDecodeError:
            pass
    return base64.b64encode(body).decode(), True


class BadAnswer(ValueError):
    """The function's answer is none that an HTTP API can send."""


def shape_response(payload: bytes) -> Response:
    """The HTTP answer for a function's result.

    A result without `statusCode` is the body of a 200, as payload 2.0 has it.

    Raises:
        BadAnswer: The gateway would answer 500.
    """
    result = json.loads(payload)
    if not isinstance(result, dict) or "statusCode" not in result:
        text = result if isinstance(result, str) else json.dumps(result, ensure_ascii=False)
        return Response(200, text.encode("utf-8", "surrogatepass"), [("content-type", "application/json")])
    try:
        status = int(result["statusCode"])
    except (TypeError, ValueError) as error:
        raise BadAnswer("statusCode is not a number") from error
    body = result.get("body")
    if not isinstance(body, str | None) or not 100 <= status <= 599:
        raise BadAnswer("body is not text, or statusCode is none of HTTP")
    headers: list[tuple[str, str]] = []
    for name, value in (result.get("headers") or {}).items():
        if isinstance(value, dict | list):
            raise BadAnswer("a header is not text")
        headers.append((str(name), json.dumps(value) if isinstance(value, bool) else str(value)))
    headers += [("set-cookie", str(cookie)) for cookie in result.get("cookies") or []]
    data = (body or "").encode("utf-8", "surrogatepass")
    if result.get("isBase64Encoded"):
        try:
            data = base64.b64decode(data, validate=True)
        except ValueError as error:
            raise BadAnswer("the body is not base64") from error
    if not any(name.lower() == "content-type" for name, _ in headers):
        headers.append(("content-type", "text/plain;charset=UTF-8"))
    return Response(status, data, headers)
