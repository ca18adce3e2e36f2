"""``python -m turnkeep``."""

from __future__ import annotations

import sys

from turnkeep.cli.main import main

sys.exit(main())
