"""AWS's prices as they are told in public: US East (N. Virginia), on demand, without free tiers. Check yours."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

REGION: Final = "US East (N. Virginia)"
AS_OF: Final = "November 2024"
"""When DynamoDB's on-demand prices last fell; the others are older."""

AWS, OTHERS, NOBODY = "AWS's own page", "other people's pages", "not looked up"


@dataclass(frozen=True)
class Price:
    """A price.

    Attributes:
        what: what is paid for.
        usd: dollars for so many.
        per: how many.
        unit: of the price, in words.
        seen: where it was looked up.
    """

    what: str
    usd: float
    per: float
    unit: str
    seen: str

    def of(self, count: float) -> float:
        """Dollars for a count."""
        return count * self.usd / self.per


MILLION: Final = 1_000_000
WRITES: Final = Price("DynamoDB, write request units", 0.625, MILLION, "a million", OTHERS)
READS: Final = Price("DynamoDB, read request units", 0.125, MILLION, "a million", OTHERS)
TRANSITIONS: Final = Price("Step Functions, standard, state transitions", 0.025, 1_000, "a thousand", AWS)
INVOCATIONS: Final = Price("Lambda, requests", 0.20, MILLION, "a million", OTHERS)
GB_SECONDS: Final = Price("Lambda, arm64, GB-seconds", 0.0000133334, 1, "one", OTHERS)
API_REQUESTS: Final = Price("API Gateway, HTTP API, requests", 1.00, MILLION, "a million", OTHERS)
QUEUE_REQUESTS: Final = Price("SQS, FIFO, requests", 0.50, MILLION, "a million", NOBODY)
EVENTS: Final = Price("EventBridge, own events", 1.00, MILLION, "a million", NOBODY)
LOG_GB: Final = Price("CloudWatch, logs taken in, GB", 0.50, 1, "one", NOBODY)
ALARMS: Final = Price("CloudWatch, metrics of alarms, a month", 0.10, 1, "one", NOBODY)
METRICS: Final = Price("CloudWatch, custom metrics, a month", 0.30, 1, "one", OTHERS)
DASHBOARDS: Final = Price("CloudWatch, dashboards, a month", 3.00, 1, "one", OTHERS)
ALL: Final = (
    WRITES, READS, TRANSITIONS, INVOCATIONS, GB_SECONDS, API_REQUESTS, QUEUE_REQUESTS, EVENTS, LOG_GB,
    ALARMS, METRICS, DASHBOARDS,
)  # fmt: skip
