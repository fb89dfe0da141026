"""A measured table goes between its marks and leaves the rest of the page alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from rl.pages import write_between


def test_only_what_lies_between_the_marks_changes(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("before\n<a>\nold\n</a>\nafter\n")
    write_between(page, "<a>", "</a>", "new")
    assert page.read_text() == "before\n<a>\nnew\n</a>\nafter\n"


@pytest.mark.parametrize("text", ["", "<a>\n", "</a>\n"])
def test_a_missing_mark_is_named_and_the_page_stays(tmp_path: Path, text: str) -> None:
    page = tmp_path / "page.md"
    page.write_text(text)
    with pytest.raises(ValueError, match=r"page\.md: expected the marks <a> and </a>"):
        write_between(page, "<a>", "</a>", "new")
    assert page.read_text() == text
