"""A model's reasoning in the shape that Bedrock's Converse API and Strands share."""

from __future__ import annotations

import base64
import binascii
from typing import Any


def reasoning_block(block: dict[str, Any]) -> dict[str, Any]:
    """A thinking block of ours (CONTRACT.md 1) as a content block, what it says kept byte for byte."""
    if block.get("type") == "redacted_thinking":
        return {"reasoningContent": {"redactedContent": _bytes_of(block["content"])}}
    text = {"text": block["content"]}
    if "signature" in block:
        text["signature"] = block["signature"]
    return {"reasoningContent": {"reasoningText": text}}


def _bytes_of(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return text.encode()  # another provider's; its bytes are its own
