"""Parts of a page that a measurement writes: what stands between its marks is made anew, and nothing else."""

from __future__ import annotations

import re
from typing import Final

END: Final = "<!-- end -->"


def begin(script: str) -> str:
    """The mark before what a script writes, such as ``bench/start.py``."""
    return f"<!-- measured by {script}: begin -->"


def marked(script: str, content: str) -> str:
    """A section with its marks."""
    return f"{begin(script)}\n\n{content.strip()}\n\n{END}"


def sections(page: str) -> dict[str, str]:
    """Every section of a page with its marks, by the script that writes it."""
    pattern = re.escape(begin("SCRIPT")).replace("SCRIPT", r"(\S+)") + r".*?" + re.escape(END)
    return {found[1]: found[0] for found in re.finditer(pattern, page, re.DOTALL)}


def with_section(page: str, script: str, content: str) -> str:
    """The page with a script's section made anew; it goes to the end of a page that has none yet."""
    new = marked(script, content)
    old = sections(page).get(script)
    return page.replace(old, new) if old else f"{page.rstrip()}\n\n{new}\n"


def carried_over(old: str, new: str) -> str:
    """A page that was written anew as a whole, with what others had measured for the old one at its end."""
    kept = [section for script, section in sections(old).items() if script not in sections(new)]
    return "\n\n".join([new.rstrip(), *kept]) + "\n"
