"""On real shapes: every Python block of the README and the docs runs as printed, one page after the other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = [
    "README.md", "docs/how_it_works.md", "docs/adding_a_scheme.md", "docs/range_joins.md", "docs/multi_way.md",
    "docs/bucketed.md", "docs/streams.md", "docs/adaptive.md",
]  # fmt: skip
_BLOCK = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


@pytest.fixture(scope="module")
def names(spark):
    return {"spark": spark}


@pytest.mark.parametrize("page", PAGES)
def test_blocks_run(page, names, capsys):
    blocks = _BLOCK.findall((ROOT / page).read_text())
    assert blocks
    for i, block in enumerate(blocks):
        exec(compile(block, f"{page}:block{i}", "exec"), names)


def test_every_page_with_code_is_run():
    pages = [p for p in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")] if _BLOCK.search(p.read_text())]
    assert sorted(str(p.relative_to(ROOT)) for p in pages) == sorted(PAGES)


def test_links_lead_somewhere():
    for page in [ROOT / "README.md", *(ROOT / "docs").rglob("*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
