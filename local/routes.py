"""The HTTP API's routes, read from the template, and how an HTTP API matches a path."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_to_bytes

if TYPE_CHECKING:
    from local.intrinsics import Resolver


@dataclass(frozen=True)
class Route:
    """One route. `key` is what the function reads as `routeKey`; `open` has no authorizer."""

    method: str
    path: str
    function: str
    open: bool = False

    @property
    def key(self) -> str:
        """`POST /things/{id}`, or `$default`."""
        return self.path if self.path == "$default" else f"{self.method} {self.path}"


@dataclass(frozen=True)
class Cors:
    """The API's CORS configuration."""

    origins: tuple[str, ...]
    methods: tuple[str, ...]
    headers: tuple[str, ...]
    exposed: tuple[str, ...]
    credentials: bool
    max_age_s: int | None


@dataclass(frozen=True)
class Match:
    """A matched route with its path's variables, decoded."""

    route: Route
    variables: dict[str, str]


def decode_path(raw: str) -> str:
    """A path as an HTTP API sees it: percent-decoded as a whole, then cut at a question mark that was encoded."""
    return unquote_to_bytes(raw).decode("utf-8", "replace").split("?", 1)[0]


def match_route(routes: list[Route], method: str, path: str) -> Match | None:
    """The most specific route for a decoded path: fixed segments before variables before `{proxy+}` before default."""
    best: tuple[tuple[Any, ...], Match] | None = None
    for route in routes:
        if route.path != "$default" and route.method not in (method, "ANY"):
            continue
        variables = _variables(route.path, path)
        if variables is None:
            continue
        rank = (
            route.path == "$default",
            "+}" in route.path,
            tuple("{" in segment for segment in route.path.split("/")),
            route.method == "ANY",
        )
        if best is None or rank < best[0]:
            best = (rank, Match(route, variables))
    return best[1] if best else None


def _variables(template: str, path: str) -> dict[str, str] | None:
    if template == "$default":
        return {}
    expression = ""
    for part in re.split(r"(\{[^}]+\})", template):
        if part.endswith("+}"):
            expression += f"(?P<v{len(expression)}>.+)"
        elif part.startswith("{"):
            expression += f"(?P<v{len(expression)}>[^/]+)"
        else:
            expression += re.escape(part)
    found = re.fullmatch(expression, path, re.DOTALL)
    if found is None:
        return None
    names = [name.rstrip("+") for name in re.findall(r"\{([^}]+)\}", template)]
    return dict(zip(names, found.groups(), strict=True))


def read_routes(source: dict[str, Any], plain: dict[str, Any], resolver: Resolver) -> list[Route]:
    """Every `HttpApi` event of every function; a path on which the API's definition wants no security is open."""
    unsecured = _unsecured(plain, resolver)
    routes = []
    for logical_id, resource in source["Resources"].items():
        if resource["Type"] != "AWS::Serverless::Function" or not resolver.holds(resource.get("Condition")):
            continue
        for event in resource["Properties"].get("Events", {}).values():
            if event["Type"] != "HttpApi":
                continue
            facts = resolver.value(event.get("Properties", {}))
            path = facts.get("Path", "$default")
            method = str(facts.get("Method", "ANY")).upper()
            method = "ANY" if method in ("*", "X-AMAZON-APIGATEWAY-ANY-METHOD") else method
            is_open = facts.get("Auth", {}).get("Authorizer") == "NONE" or (method, path) in unsecured
            routes.append(Route(method, path, resolver.physical[logical_id], is_open))
    return routes


def _api_definitions(plain: dict[str, Any]) -> list[dict[str, Any]]:
    return [
        resource.get("Properties", {})
        for resource in plain["Resources"].values()
        if resource["Type"] == "AWS::ApiGatewayV2::Api"
    ]


def _unsecured(plain: dict[str, Any], resolver: Resolver) -> set[tuple[str, str]]:
    found = set()
    for api in _api_definitions(plain):
        for path, item in (api.get("Body") or {}).get("paths", {}).items():
            for method, operation in item.items():
                if not isinstance(operation, dict) or "security" not in operation:
                    continue
                if resolver.value(operation["security"]) in ([], None, [{"NONE": []}]):
                    found.add((method.upper(), path))
    return found


def read_cors(plain: dict[str, Any], resolver: Resolver) -> Cors | None:
    """The API's CORS configuration, or None where the template has none."""
    for api in _api_definitions(plain):
        raw = api.get("CorsConfiguration") or (api.get("Body") or {}).get("x-amazon-apigateway-cors")
        facts = resolver.value(raw)
        if not facts:
            continue
        folded = {name.lower(): value for name, value in facts.items()}

        def several(name: str, folded: dict[str, Any] = folded) -> tuple[str, ...]:
            value = folded.get(name) or []
            parts = value.split(",") if isinstance(value, str) else value
            return tuple(str(part).strip() for part in parts if str(part).strip())

        if not several("alloworigins"):
            continue
        return Cors(
            origins=several("alloworigins"),
            methods=several("allowmethods"),
            headers=several("allowheaders"),
            exposed=several("exposeheaders"),
            credentials=str(folded.get("allowcredentials", "false")).lower() == "true",
            max_age_s=int(folded["maxage"]) if folded.get("maxage") is not None else None,
        )
    return None
