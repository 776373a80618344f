# SPDX-License-Identifier: Apache-2.0
"""Every link of a document and every citation in code leads somewhere."""

from pathlib import Path

import pytest

from tests import links


def test_links_and_citations_lead_somewhere() -> None:
    assert links.broken() == []


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("a.md", "[b](b.md)", []),
        ("a.md", "[b](b.md#two-words)", []),
        ("a.md", "[b](b.md#other)", ["b.md#other"]),
        ("a.md", "[c](c.md)", ["c.md"]),
        ("a.md", "[here](#a)\n# A", []),
        ("a.md", "```\n[c](c.md)\n```", []),
        ("a.md", "[out](https://kubernetes.io/docs/#nowhere)", []),
        ("a.py", '"""See docs/spec/b.md#two-words."""', []),
        (
            "a.py",
            '"""See docs/spec/b.md#none and docs/spec/c.md."""',
            ["docs/spec/b.md#none", "docs/spec/c.md"],
        ),
        ("a.py", "# docs/decisions/0001 and decision 0001, not decision 0002", ["decision 0002"]),
    ],
)
def test_broken_links_are_found(
    name: str, text: str, expected: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(links, "ROOT", tmp_path)
    links.anchors.cache_clear()
    for made in ("docs/spec/b.md", "b.md", "docs/decisions/0001-first.md"):
        (tmp_path / made).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / made).write_text("# One\n\n## Two words\n")
    (tmp_path / name).write_text(text)
    assert list(links.broken_in(Path(name))) == expected
