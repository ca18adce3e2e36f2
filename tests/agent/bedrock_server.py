"""A local stand-in for Bedrock's Converse API, on loopback.

It takes a request only if botocore's own service model of Converse takes it (types, required members, unknown members,
lengths, patterns, enumerations) and if it keeps the rules that the API documents beside the model: user first, turns
alternate, results behind their calls, no blank text, a tool configuration where calls are mentioned. Everything else
gets the ValidationException that AWS would send. Its own replies go through the same check.
"""

from __future__ import annotations

import base64
import json
import re
import threading
import time
import urllib.parse
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import botocore.session

if TYPE_CHECKING:
    from collections.abc import Iterator

MODEL = botocore.session.get_session().get_service_model("bedrock-runtime").operation_model("Converse")


@dataclass(frozen=True)
class Fails:
    """A reply that is an error of AWS's, or something worse."""

    code: str = ""
    message: str = "as told by the test"
    status: int | None = None
    cut: bool = False
    after_s: float = 0.0
    raw: bytes | None = None


Reply = dict[str, Any] | Fails


@dataclass
class Bedrock:
    """What the stand-in answers next, and what it was asked."""

    replies: list[Reply] = field(default_factory=list)
    requests: list[dict[str, Any]] = field(default_factory=list)
    refused: list[list[str]] = field(default_factory=list)
    endpoint_url: str = ""


def says(*blocks: dict[str, Any], stop: str = "end_turn", **usage: int) -> dict[str, Any]:
    """A reply in Converse's shape."""
    counted = {"inputTokens": 11, "outputTokens": 5} | usage
    counted["totalTokens"] = counted["inputTokens"] + counted["outputTokens"]
    return {
        "output": {"message": {"role": "assistant", "content": list(blocks)}},
        "stopReason": stop,
        "usage": counted,
        "metrics": {"latencyMs": 3},
    }


@contextmanager
def bedrock(*replies: Reply) -> Iterator[Bedrock]:
    """Runs the stand-in on a free port of loopback."""
    state = Bedrock(list(replies))

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            found = re.fullmatch(r"/model/([^/]+)/converse", self.path)
            if found is None or "authorization" not in self.headers:
                self.answer(403, {"message": "no"}, "AccessDeniedException")
                return
            request = {"modelId": urllib.parse.unquote(found[1]), **json.loads(body)}
            state.requests.append(request)
            faults = [*shape_faults(MODEL.input_shape, request, "request"), *rule_faults(request)]
            if faults:
                state.refused.append(faults)
                self.answer(400, {"message": "; ".join(faults)}, "ValidationException")
                return
            reply = state.replies.pop(0)
            if isinstance(reply, Fails):
                self.fail(reply)
                return
            assert shape_faults(MODEL.output_shape, reply, "reply") == []
            self.answer(200, reply)

        def fail(self, reply: Fails) -> None:
            time.sleep(reply.after_s)
            if reply.cut:
                self.close_connection = True
                return
            status = reply.status or next(
                (one.metadata["error"]["httpStatusCode"] for one in MODEL.error_shapes if one.name == reply.code), 500
            )
            self.answer(status, {"message": reply.message}, reply.code, reply.raw)

        def answer(self, status: int, body: dict[str, Any], error: str = "", raw: bytes | None = None) -> None:
            text = (
                json.dumps(body, default=lambda blob: base64.b64encode(blob).decode()).encode() if raw is None else raw
            )
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(text)))
            if error:
                self.send_header("x-amzn-errortype", error)
            self.end_headers()
            self.wfile.write(text)

        def log_message(self, format: str, *args: Any) -> None:
            """Keeps quiet."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    state.endpoint_url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield state
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def shape_faults(shape: Any, value: Any, path: str) -> list[str]:
    """Where a value differs from a shape of botocore's service model."""
    if getattr(shape, "is_document_type", False):
        return []
    if shape.type_name == "structure":
        return _structure_faults(shape, value, path)
    kind = _KINDS[shape.type_name]
    if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
        return [f"{path} is no {shape.type_name}"]
    if shape.type_name == "list":
        faults = [fault for n, one in enumerate(value) for fault in shape_faults(shape.member, one, f"{path}[{n}]")]
        return [*_range_faults(shape, len(value), path), *faults]
    return _text_faults(shape, value, path) if shape.type_name == "string" else _range_faults(shape, value, path)


_KINDS: dict[str, Any] = {
    "blob": (str, bytes),
    "boolean": bool,
    "double": (int, float),
    "float": (int, float),
    "integer": int,
    "list": list,
    "long": int,
    "map": dict,
    "string": str,
}


def _text_faults(shape: Any, value: str, path: str) -> list[str]:
    faults = _range_faults(shape, len(value), path)
    pattern, names = shape.metadata.get("pattern"), getattr(shape, "enum", None)
    if pattern and not re.fullmatch(pattern, value):
        faults.append(f"{path} does not match {pattern}")
    if names and value not in names:
        faults.append(f"{path} is none of {names}")
    return faults


def _structure_faults(shape: Any, value: Any, path: str) -> list[str]:
    if not isinstance(value, dict):
        return [f"{path} is no object"]
    faults = [f"{path}.{name} is missing" for name in shape.required_members if name not in value]
    faults += [f"{path}.{name} is unknown" for name in value if name not in shape.members]
    if getattr(shape, "is_tagged_union", False) and len(value) != 1:
        faults.append(f"{path} has {len(value)} members, not one")
    for name, one in value.items():
        if name in shape.members:
            faults += shape_faults(shape.members[name], one, f"{path}.{name}")
    return faults


def _range_faults(shape: Any, value: Any, path: str) -> list[str]:
    size = value if isinstance(value, int | float) else len(value)
    low, high = shape.metadata.get("min"), shape.metadata.get("max")
    if (low is not None and size < low) or (high is not None and size > high):
        return [f"{path} is outside of {low} to {high}"]
    return []


def rule_faults(request: dict[str, Any]) -> list[str]:
    """Where a request breaks a rule that is documented beside the model."""
    faults: list[str] = []
    roles = [message.get("role") for message in request["messages"]]
    if roles != [("user", "assistant")[n % 2] for n in range(len(roles))]:
        faults.append("A conversation must start with a user message and alternate between user and assistant roles.")
    if roles[-1:] != ["user"]:
        faults.append("The last message must be the user's.")
    waiting: list[str] = []
    seen: set[str] = set()
    for message in request["messages"]:
        results = [block["toolResult"]["toolUseId"] for block in message["content"] if "toolResult" in block]
        if results != waiting:
            faults.append(f"Expected toolResult blocks for {waiting}, found {results}.")
        if any("toolResult" not in block for block in message["content"][: len(results)]):
            faults.append("toolResult blocks come first.")
        waiting = [block["toolUse"]["toolUseId"] for block in message["content"] if "toolUse" in block]
        if seen & set(waiting) or len(set(waiting)) < len(waiting):
            faults.append("toolUse ids must be unique.")
        seen |= set(waiting)
        for block in message["content"]:
            faults += _blank_faults(block)
        if not message["content"]:
            faults.append("A message's content is empty.")
    mentioned = seen or any("toolResult" in block for message in request["messages"] for block in message["content"])
    if mentioned and "toolConfig" not in request:
        faults.append("The toolConfig field must be defined when using toolUse and toolResult content blocks.")
    return faults


def _blank_faults(block: dict[str, Any]) -> list[str]:
    texts = [block.get("text", "x"), *(one.get("text", "x") for one in block.get("toolResult", {}).get("content", []))]
    return [] if all(text.strip() for text in texts) else ["The text field in the ContentBlock object is blank."]
