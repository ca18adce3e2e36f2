"""``make costs``: counts, computes and writes the tables of ``docs/operations.md`` anew.

python -m bench.costs [--page docs/operations.md]
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def main() -> None:
    """Counts and writes."""
    parser = argparse.ArgumentParser(prog="bench.costs", description=__doc__)
    parser.add_argument("--page", type=Path, default=ROOT / "docs" / "operations.md")
    page: Path = parser.parse_args().page
    sys.path[:0] = [str(ROOT / "layers" / "turnkeep"), str(ROOT)]
    from bench.alone import stand_alone
    from bench.costs.life import lives
    from bench.costs.measure import idle_reconciler, question, turns
    from bench.costs.page import Measured, section
    from bench.sections import with_section

    counted = lives()
    stand_alone()  # the meter's moto is in this process
    found = Measured(turns(), question(), idle_reconciler(), counted)
    page.write_text(with_section(page.read_text("utf-8"), "bench/costs", section(found)), "utf-8")
    sys.stdout.write(f"wrote {page}\n")


if __name__ == "__main__":
    main()
