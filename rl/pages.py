"""Pages that hold a measured table between two marks."""

from __future__ import annotations

from pathlib import Path


def write_between(page: Path, begin: str, end: str, content: str) -> None:
    """Put `content` between the marks of `page` in place of what is there; raises ValueError where one is missing."""
    text = page.read_text()
    if begin not in text or end not in text:
        raise ValueError(
            f"{page}: expected the marks {begin} and {end}; put them back where the table belongs"
        )
    before, _, rest = text.partition(begin)
    page.write_text(f"{before}{begin}\n{content}\n{end}{rest.partition(end)[2]}")
