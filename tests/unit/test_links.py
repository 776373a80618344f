# SPDX-License-Identifier: Apache-2.0
"""Every link of a document, citation in code and name of a module of ours leads somewhere."""

from pathlib import Path

import pytest

from tests import cited_code, dotted_names, links
from tests.packages import ROOT


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
        ("a.py", "docs/spec/b.md#two-Words, docs/spec/b.md#one", ["docs/spec/b.md#two-Words"]),
        ("a.py", "spec/b.md#one, spec/c.md, other/spec/c.md", ["spec/c.md"]),
        ("a.py", "# docs/decisions/0001 and decision 0001, not decision 0002", ["decision 0002"]),
        ("a.py", "decision 1, Decision 99", ["decision 99"]),
        (
            "a.py",
            "decisions 0001, 7 and 0099;\n# decisions 1-3",
            ["decision 7", "decision 0099", "decision 3"],
        ),
        ("a.py", "decision\n# 99; 5 decisions, 12 tenants, decision 20000", ["decision 99"]),
        ("a.md", '[b](b.md "title"), [c](c.md "title"), [c](<c.md>)', ["c.md", "c.md"]),
        ("a.md", "[b][d], [E][], `a[0][1]`\n\n[d]: b.md\n[e]: c.md", ["c.md"]),
        ("a.md", "[b][d], [d][]", ["[b][d]", "[d][]"]),
        ("a.md", '<a href="b.md#one">b</a> <a class=x href="c.md">', ["c.md"]),
        ("a.md", '<img alt="" src="c.png"/> <a href=\'mailto:a@b\'>', ["c.png"]),
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
    ("cited", "expected"),
    [
        ("U/a/test_b.py `test_one`, `test_two`", []),
        ("U/a/test_none.py", ["U/a/test_none.py"]),
        ("F/a/test_b.py", ["F/a/test_b.py"]),
        ("U/a/test_b.py `test_three`", ["`test_three`"]),
        ("U/a/test_b.py, U/test_c.py `test_one`", ["`test_one`"]),
    ],
)
def test_broken_citations_of_tests_are_found(
    cited: str, expected: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(links, "ROOT", tmp_path)
    for name, text in (("a/test_b.py", "def test_one():\n\ndef test_two():\n"), ("test_c.py", "")):
        (tmp_path / "tests/unit" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "tests/unit" / name).write_text(text)
    (tmp_path / "a.md").write_text(
        f"`F` is `tests/functional`, `U` is `tests/unit`.\n\n| attack | {cited} |\n"
    )
    assert list(links.broken_in(Path("a.md"))) == expected


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
def test_names_of_removed_modules_are_found(name: str) -> None:
    assert list(dotted_names.broken_in(f"see `{name}`", is_python=True)) == [name]


def test_short_names_are_checked_in_python_files_only() -> None:
    text = "`guest.GuestMachine` and `kata_bridge.nowhere`"
    assert list(dotted_names.broken_in(text, is_python=False)) == ["kata_bridge.nowhere"]


@pytest.mark.parametrize(
    "text",
    [
        "`tests/links.py`, `test_links.py`, `tests/unit/` and `CONTRIBUTING.md`",
        "`broken_in()` in `tests/links.py`, `GateState.x` of `other.py` <!-- new: GateState.x other.py -->",
        "`decide()`\n   in `kata_bridge/start_gate/core/decision.py`",
        "`tests/links.py`, `broken()`; `files` (`links.py`)",
        "`GatedPod.waits_for_network` in `gated_pod.py`",
        "`tests/links.py:12`, `tests/unit/`, `nodes/configz`, `make t F=x.py`, make it so",
        "`tests/links.py::broken`, `tests/unit/test_links.py::test_names[a/b]` <!-- new: test_names -->",
        "```\nmake check\ntests/links.py  what\n'vcnode.io/hold'\nfrom tests.links import files\n```",
        "`/configz`, `../shared/cases/none.yaml`, `vcnode.io/hold`, `v1`, `Endpoint.CONFIGZ: CONFIGZ`",
    ],
)
def test_paths_and_names_in_walkthroughs_are_accepted(text: str) -> None:
    assert list(cited_code.broken_in(text)) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("`core/requests.py` is relative", ["core/requests.py"]),
        ("`nowhere_at_all.py`", ["nowhere_at_all.py"]),
        ("`tests/nowhere/`", ["tests/nowhere/"]),
        ("`CONTRIBUTING.md` and `NOWHERE.md`", ["NOWHERE.md"]),
        ("`none_such`, `nonesuch()`, `NoneSuch`", ["none_such", "nonesuch", "NoneSuch"]),
        ("`OwnerIndex` in\n   `tests/links.py`", ["OwnerIndex in tests/links.py"]),
        ("`decide` of `links.py`", ["decide in links.py"]),
        ("`decide` (`tests/links.py`)", ["decide in tests/links.py"]),
        ("`tests/links.py`, `decide()`", ["decide in tests/links.py"]),
        ("`vnagent/core/nowhere`", ["vnagent/core/nowhere"]),
        ("`vnagent/core/nowhere.py:12`", ["vnagent/core/nowhere.py"]),
        ("`tests/unit/nowhere.py::test_y`", ["tests/unit/nowhere.py"]),
        ("`tests/links.py::none_such`", ["tests/links.py::none_such"]),
        ("`tests/links.py::none_such[a-b]`", ["tests/links.py::none_such"]),
        ("`make nowhere`", ["make nowhere"]),
        ("```\na -> vnagent/core/nowhere  what it does\n```", ["vnagent/core/nowhere"]),
        ("1. See\n   ```sh\n   $ make nowhere\n   ```\n", ["make nowhere"]),
        (
            "```python\nfrom tests.links import broken, NoneSuch\n```",
            ["from tests.links import broken, NoneSuch"],
        ),
        ("`decide` in `nowhere_at_all.py`", ["nowhere_at_all.py", "decide in nowhere_at_all.py"]),
    ],
)
def test_broken_paths_and_names_in_walkthroughs_are_found(text: str, expected: list[str]) -> None:
    assert list(cited_code.broken_in(text)) == expected


def _broken_in_other_text(text: str) -> list[str]:
    folder = ROOT / "tests"
    return [*cited_code.broken_paths(text, folder), *cited_code.broken_tests(text)]


@pytest.mark.parametrize(
    "text",
    [
        "`tests/links.py`, `unit/test_links.py`, `test_links.py`, `tests/links.py::broken`, `tests/unit/`",
        "`P/M.py`, `tests/unit/P/test_M_TOPIC.py`, `docs/...`, `../shared/cases/none.yaml`",
        "`acme.yaml`, `none_such()`, `vcnode.io/none`, `/etc/none.yaml`, `make nowhere`, `pkg/proxy.go`",
        "`test_no_name_has_a_third_meaning`, `test_links`\n```\ntests/links.py other/none.py\n```",
    ],
)
def test_paths_and_tests_in_other_texts_are_accepted(text: str) -> None:
    assert _broken_in_other_text(text) == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("`tests/unit/gone.py` and `kubeproxy_ext/gone.py`", ["tests/unit/gone.py", "kubeproxy_ext/gone.py"]),
        ("`gone_at_all.py`, `GONE.md`, `core/gone.yaml`", ["gone_at_all.py", "GONE.md", "core/gone.yaml"]),
        ("`vnagent/core/gone`, `vnagent/gone/`", ["vnagent/core/gone", "vnagent/gone/"]),
        ("`tests/links.py::test_gone`", ["tests/links.py::test_gone"]),
        ("`test_that_is_gone`", ["test_that_is_gone"]),
        ("```\npython tests/gone.py\n```", ["tests/gone.py"]),
    ],
)
def test_broken_paths_and_tests_in_other_texts_are_found(text: str, expected: list[str]) -> None:
    assert _broken_in_other_text(text) == expected


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("a.md", ["gone_at_all.py", "test_gone"]),
        ("a.py", ["gone_at_all.py", "test_gone"]),
        ("docs/walkthroughs/a.md", ["gone_at_all.py", "none_such", "test_gone"]),
        ("docs/decisions/0001-a.md", []),
    ],
)
def test_records_may_name_what_is_gone(
    name: str, expected: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And names of code other than tests are checked in walk-throughs only."""
    monkeypatch.setattr(links, "ROOT", tmp_path)
    (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / name).write_text("`gone_at_all.py`; `none_such`, `test_gone`")
    assert list(links.broken_in(Path(name))) == expected
