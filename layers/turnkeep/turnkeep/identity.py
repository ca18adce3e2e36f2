"""Whose data a key belongs to: identities as storage keys, without two identities ever sharing one.

This file is the only home of the namespace's encoding (CONTRACT.md 6.2). A namespace is a storage key and not a file
path: nothing is trimmed, folded or shortened, and ``..`` is a name like any other.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

NAMESPACE_FIELDS: Final = ("tenant", "principal", "conversationId")
"""The identity's fields in the order of a namespace's segments."""

_ABSENT_SEGMENT: Final = "_"
_UNDERSCORE_SEGMENT: Final = "%5F"
# What namespace_segment can have written: no slash, and no percent sign but in front of the two escapes.
_ENCODED: Final = re.compile(r"(?:[^%/]|%25|%2F)+", re.DOTALL)


def namespace_segment(value: Any) -> str:
    """Encodes one field of an identity. Different fields give different segments.

    Args:
        value: the field; None and the empty string are both "nobody".

    Returns:
        ``_`` for nobody, else the text with ``%`` and ``/`` escaped; the text ``_`` itself becomes ``%5F``.

    Raises:
        TypeError: the value is not a string (the message names its type, never the value).
    """
    if value is None or value == "":
        return _ABSENT_SEGMENT
    if not isinstance(value, str):
        raise TypeError(f"A field of an identity is a string or absent; this one is of type {type(value).__name__}.")
    # Percent signs first: the other way round, the escape of a slash would be escaped again.
    segment = value.replace("%", "%25").replace("/", "%2F")
    return _UNDERSCORE_SEGMENT if segment == _ABSENT_SEGMENT else segment


def identity_namespace(identity: Mapping[str, Any]) -> str:
    """The storage key of an identity: ``tenant/principal/conversationId``, each field encoded.

    Two identities share a namespace only if the three fields agree, where absent, None and the empty string are one.
    Other keys of the mapping are ignored.

    Raises:
        TypeError: a field is neither a string nor absent (the message names the type, never the value).
    """
    return "/".join(namespace_segment(identity.get(field)) for field in NAMESPACE_FIELDS)


def segment_field(segment: str) -> str | None:
    """Decodes one segment: the inverse of ``namespace_segment``; None for nobody.

    Raises:
        ValueError: ``namespace_segment`` never writes such a segment (the message does not repeat it).
    """
    if segment == _ABSENT_SEGMENT:
        return None
    if segment == _UNDERSCORE_SEGMENT:
        return "_"
    if not _ENCODED.fullmatch(segment):
        raise ValueError("This is no segment of a namespace: % and / have to be escaped as %25 and %2F.")
    return segment.replace("%2F", "/").replace("%25", "%")


def split_namespace(ns: str) -> dict[str, str]:
    """Decodes a namespace: the inverse of ``identity_namespace``.

    Returns:
        The identity, fields that nobody fills left out: ``{"tenant"?, "principal"?, "conversationId"?}``.

    Raises:
        ValueError: ``identity_namespace`` never writes such a key (the message does not repeat it).
    """
    segments = ns.split("/")
    if len(segments) != len(NAMESPACE_FIELDS):
        raise ValueError(f"A namespace has {len(NAMESPACE_FIELDS)} segments; this key has {len(segments)}.")
    fields = zip(NAMESPACE_FIELDS, map(segment_field, segments), strict=True)
    return {name: value for name, value in fields if value is not None}
