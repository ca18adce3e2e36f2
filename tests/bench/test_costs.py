"""What docs/operations.md says of costs: the units that are counted here, times the prices that stand there."""

from __future__ import annotations

import pytest

from bench.costs import prices
from bench.costs.life import Life
from bench.costs.measure import Units, idle_reconciler, question, turns
from bench.costs.page import Measured, dynamodb_usd, section, services_usd
from bench.sections import sections
from local.settings import ROOT

PAGE = (ROOT / "docs" / "operations.md").read_text("utf-8")


def test_the_page_has_the_units_that_are_counted() -> None:
    written = sections(PAGE)["bench/costs"]
    for units in (*turns(), *question()):
        assert f"| {units.what} | {units.writes} | {units.reads:g} | {units.calls} |" in written
    assert f"reconciler: {idle_reconciler().reads:g} read units a minute" in written


def test_the_page_has_the_prices_that_it_is_computed_by() -> None:
    written = sections(PAGE)["bench/costs"]
    for price in prices.ALL:
        assert f"| {price.what} | " in written
    assert prices.REGION in written
    assert prices.AS_OF in written
    assert "Check yours" in written


def test_dollars_are_units_times_prices() -> None:
    assert dynamodb_usd(Units("x", 1_000_000, 1_000_000, 0)) == pytest.approx(0.75)
    nothing = Life(0, 0, 0, 0, 0, 0)
    assert services_usd(nothing) == 0
    assert services_usd(Life(0, 0, 4_000, 0, 0, 0)) == pytest.approx(0.1)
    assert services_usd(Life(1_000_000, 1_000_000, 0, 0, 0, 0)) == pytest.approx(1.2)
    assert services_usd(Life(0, 0, 0, 0, 1, 0)) == pytest.approx(3 * 0.5 / 1e6), "sent, received, deleted"


def test_a_dearer_price_is_a_dearer_page(monkeypatch: pytest.MonkeyPatch) -> None:
    units = Units("a turn", 6, 6, 6)
    life = Life(1, 1, 4, 1, 1, 800)
    found = Measured([units], [units], units, {"turn": life, "question": life, "queued turn": life})
    before = section(found)
    monkeypatch.setattr(prices, "WRITES", prices.Price("w", 6.25, prices.MILLION, "a million", prices.NOBODY))
    assert "| a turn | 6 | 6 | 6 | $4.50 |" in before
    assert "| a turn | 6 | 6 | 6 | $38.25 |" in section(found)
