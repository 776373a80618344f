# SPDX-License-Identifier: Apache-2.0
"""Every link of a document, citation in code and name of a module of ours leads somewhere."""

from pathlib import Path

import pytest

from tests import dotted_names, links


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


@pytest.mark.parametrize(
    "name",
    [
        "tests.links",
        "tests.links.broken_in()",
        "tests.unit",
        "links.NoClass.md",
        "kata_bridge.start_gate.core.decision.Reason",
        "core.decision.Reason",
        "tenancy.x-k8s.io/cluster",
        "vcnode.bridge.v1.Bridge",
        "gate.needs",
        "ssl.SSLError",
        "pytest.MonkeyPatch",
    ],
)
def test_names_that_exist_or_are_not_ours_are_accepted(name: str) -> None:
    assert list(dotted_names.broken_in(f"see `{name}`", is_python=True)) == []


@pytest.mark.parametrize(
    "name",
    [
        "kata_bridge.nowhere",
        "tests.nowhere.broken",
        "tests.links.nowhere",
        "kata_bridge.start_gate.Nowhere",
        "decision.Nowhere",
        "nowhere.Reason",
    ],
)
def test_names_of_what_is_gone_are_found(name: str) -> None:
    assert list(dotted_names.broken_in(f"see `{name}`", is_python=True)) == [name]


def test_short_names_are_checked_in_python_files_only() -> None:
    text = "`guest.GuestMachine` and `kata_bridge.nowhere`"
    assert list(dotted_names.broken_in(text, is_python=False)) == ["kata_bridge.nowhere"]
