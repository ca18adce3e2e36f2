"""What led to a turn's answer: bounded where it is stored, whole where it is shown.

A pausing turn's record stays under 4 KB, so of its evidence only what is small stays there; all of it lies in the
checkpoint, which the resume goes on with and whose evidence the answer's record then holds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from turnkeep.errors import UnreadableError
from turnkeep.ledger.codec import pack, size_of, to_text
from turnkeep.ledger.loading import load_checkpoints

if TYPE_CHECKING:
    from turnkeep.ledger.records import TurnRecord
    from turnkeep.usecases.deps import Deps

MAX_BYTES: Final = 16_000
"""Of an ended turn's evidence, as JSON."""

MAX_PAUSED_BYTES: Final = 1_000
"""Of a pausing turn's evidence in its record, as it is stored."""

_SMALL: Final = ("question", "system", "agent", "window")
_CALLS: Final = ("modelCalls", "toolCalls")


def kept_evidence(evidence: dict[str, Any], *, pausing: bool) -> dict[str, Any]:
    """What of a run's evidence its turn's record keeps.

    Args:
        evidence: the run's, JSON.
        pausing: the turn asks; its checkpoint keeps the whole.

    Raises:
        UnstorableValueError: with the path to what JSON cannot keep.
    """
    size = len(to_text(evidence, name="evidence").encode())
    if size <= MAX_BYTES and not (pausing and _packed_bytes(evidence) > MAX_PAUSED_BYTES):
        return dict(evidence)
    if not pausing:
        return {"cut": "the evidence was over its bound and is not kept"}
    unlisted = dict(evidence.get("notListed") or {})
    for kind in _CALLS:
        calls = evidence.get(kind)
        unlisted[kind] = unlisted.get(kind, 0) + (len(calls) if isinstance(calls, list) else 0)
    small: dict[str, Any] = {
        name: evidence[name] for name in ("question", "system", "agent", "window") if name in evidence
    }
    if _packed_bytes(small) > MAX_PAUSED_BYTES // 2:
        small = {}
    return {**small, "notListed": unlisted, "wholeIn": "checkpoint"}


def evidence_of(deps: Deps, record: TurnRecord) -> dict[str, Any]:
    """A turn's evidence; of a paused turn whose record keeps only some of it, what its checkpoint holds.

    A checkpoint that cannot be read takes nothing away: what the record says is shown.
    """
    if "wholeIn" not in record.evidence or record.checkpoint_segment is None:
        return record.evidence
    (checkpoint,) = load_checkpoints(deps.ledger.store, [record], deps.clock.now_ms())
    if checkpoint is None or isinstance(checkpoint, UnreadableError):
        return record.evidence
    shared = checkpoint.get("sharedState")
    whole = shared.get("evidence") if isinstance(shared, dict) else None
    return whole if isinstance(whole, dict) else record.evidence


def _packed_bytes(value: Any) -> int:
    return size_of(pack(value, name="evidence"))
