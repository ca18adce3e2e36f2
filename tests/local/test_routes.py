"""Paths are decoded and matched as an HTTP API does it, not as a web framework would."""

from __future__ import annotations

import pytest

from local.routes import Route, decode_path, match_route

ROUTES = [
    Route("POST", "/things", "make"),
    Route("GET", "/things/{id}", "read"),
    Route("GET", "/things/latest", "latest"),
    Route("GET", "/things/{id}/parts/{number}", "part"),
    Route("ANY", "/files/{path+}", "files"),
    Route("GET", "/files/{path+}", "read files"),
]


def find(method: str, raw: str) -> tuple[str, dict[str, str]] | None:
    match = match_route(ROUTES, method, decode_path(raw))
    return (match.route.function, match.variables) if match else None


@pytest.mark.parametrize(
    ("raw", "decoded"),
    [
        ("/things/a", "/things/a"),
        ("/things/a%20b", "/things/a b"),
        ("/things/a+b", "/things/a+b"),
        ("/things/%C3%A9", "/things/é"),
        ("/things/%7Eabc", "/things/~abc"),
        ("/things/a%2Fb", "/things/a/b"),
        ("/things/a%3Fb", "/things/a"),
        ("/things/a%253Fb", "/things/a%3Fb"),
        ("/things/a%23b", "/things/a#b"),
        ("/things/%zz", "/things/%zz"),
        ("/things/%FF", "/things/\ufffd"),
    ],
)
def test_a_path_is_decoded_once_and_cut_at_an_encoded_question_mark(raw: str, decoded: str) -> None:
    assert decode_path(raw) == decoded


@pytest.mark.parametrize(
    ("method", "raw", "expected"),
    [
        ("POST", "/things", ("make", {})),
        ("GET", "/things/a", ("read", {"id": "a"})),
        ("GET", "/things/a%20b", ("read", {"id": "a b"})),
        ("GET", "/things/a%3Fb", ("read", {"id": "a"})),
        ("GET", "/things/a.b", ("read", {"id": "a.b"})),
        ("GET", "/things/a%0Ab", ("read", {"id": "a\nb"})),
        ("GET", "/things/latest", ("latest", {})),
        ("GET", "/things/a/parts/3", ("part", {"id": "a", "number": "3"})),
        ("GET", "/files/a/b", ("read files", {"path": "a/b"})),
        ("PUT", "/files/a%2Fb", ("files", {"path": "a/b"})),
    ],
)
def test_a_route_is_matched_on_the_decoded_path(method: str, raw: str, expected: tuple[str, dict[str, str]]) -> None:
    assert find(method, raw) == expected


@pytest.mark.parametrize(
    ("method", "raw"),
    [
        ("GET", "/things/a%2Fb"),
        ("GET", "/things/"),
        ("GET", "/things/%3F"),
        ("GET", "/things/a/"),
        ("GET", "//things/a"),
        ("DELETE", "/things/a"),
        ("HEAD", "/things/a"),
        ("GET", "/Things/a"),
        ("GET", "/files/"),
    ],
)
def test_what_no_route_matches_matches_none(method: str, raw: str) -> None:
    assert find(method, raw) is None


def test_the_default_route_takes_what_is_left() -> None:
    routes = [*ROUTES, Route("ANY", "$default", "rest")]
    match = match_route(routes, "DELETE", "/nowhere")
    assert match is not None
    assert (match.route.function, match.route.key) == ("rest", "$default")
    other = match_route(routes, "GET", "/things/a")
    assert other is not None
    assert other.route.function == "read"
