# SPDX-License-Identifier: Apache-2.0
"""Links, citations, and names of our code that lead nowhere.

A Markdown link counts from its document, with the anchor of a heading as GitHub makes it. In code and in
plain text `docs/...` is cited from the repository's root, and a decision by its number: `decision 18`.
A page that abbreviates folders ("`U` is `tests/unit`") cites tests: `U/test_links.py`, then tests in it.
"""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests import cited_code, dotted_names
from tests.packages import ROOT

_LINK = re.compile(
    r"""\]\(\s*<?(?P<target>[^)\s>]+)>?(?:\s+["'(][^)]*)?\)"""
    r"""|^ {0,3}\[[^\]]+\]:\s+<?(?P<defined>[^\s>]+)"""
    r"""|<(?:a|img)\b[^>]*?\s(?:href|src)\s*=\s*["']?(?P<html>[^"'\s>]+)""",
    re.MULTILINE,
)
# `[text][label]` and `[label][]`, and where labels are defined.
_LABELLED = re.compile(r"\[(?P<text>[^\[\]]*)\]\[(?P<label>[^\[\]]*)\]")
_LABEL = re.compile(r"^ {0,3}\[(?P<label>[^\]]+)\]:", re.MULTILINE)
_CODE = re.compile(r"`+[^`]*`+")
_CITED = re.compile(
    r"(?<![\w/.])(?P<target>(?:docs/[A-Za-z0-9_./-]*[A-Za-z0-9_](?:\.(?:md|json))?|spec/[\w-]+\.md)"
    r"(?P<anchor>#[^\s)`\"'|]*[\w-])?)"
)
_DECISION = re.compile(
    r"\bdecisions?\s+(?:#\s+)?(?P<numbers>[0-9]{1,4}\b(?:(?:,\s*|,?\s+(?:and|or)\s+|-)[0-9]{1,4}\b)*)",
    re.IGNORECASE,
)
_FOLDER = re.compile(r"`(?P<letter>[A-Z])` is `(?P<folder>[\w/]+)`")
_TEST = re.compile(r"(?<![\w/])(?P<letter>[A-Z])/(?P<file>[\w/]+\.py)|`(?P<name>test_\w+)`")
_HEADING = re.compile(r"^#{1,6} (?P<text>.+)$", re.MULTILINE)
_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
# It has broken ones on purpose.
_OWN_TEST = Path("tests/unit/test_links.py")
_SUFFIXES = {".go", ".md", ".proto", ".py", ".sh", ".toml", ".yaml"}
# Decisions and the changelog name the modules of their time, in its words.
_RECORDS = (Path("CHANGELOG.md"), Path("docs/decisions"))
# Their readers follow each path and name.
_WALKTHROUGHS = Path("docs/walkthroughs")


def broken() -> list[str]:
    """`file: target` of each link and citation in the repository that leads nowhere."""
    return [f"{path}: {target}" for path in files() for target in broken_in(path)]


def files() -> list[Path]:
    """The files that may cite others, relative to the root; what is built or installed is not read."""
    found = (
        path.relative_to(ROOT)
        for path in ROOT.rglob("*")
        if path.suffix in _SUFFIXES or path.name == "Makefile"
    )
    return sorted(path for path in found if not _is_made(path) and path != _OWN_TEST)


def is_record(path: Path) -> bool:
    return any(path.is_relative_to(record) for record in _RECORDS)


def _is_made(path: Path) -> bool:
    return path.parts[0] in ("build", "dist") or any(
        part.startswith(".") or part.endswith(".egg-info") for part in path.parts
    )


def broken_in(path: Path) -> Iterator[str]:
    """Those of one file."""
    text = whole = (ROOT / path).read_text(encoding="utf-8")
    if path.suffix == ".md":
        text = _FENCE.sub("", text)
        yield from _broken_links(path, text)
        yield from _broken_tests(text)
    for found in _CITED.finditer(text):
        target = found["target"]
        if not _exists(ROOT / "README.md", f"docs/{target}" if target.startswith("spec/") else target):
            yield target
    for found in _DECISION.finditer(text):
        for number in re.findall("[0-9]+", found["numbers"]):
            if not any((ROOT / "docs" / "decisions").glob(f"{number:0>4}-*.md")):
                yield f"decision {number}"
    if not is_record(path):
        yield from dotted_names.broken_in(text, is_python=path.suffix == ".py")
    if path.is_relative_to(_WALKTHROUGHS):
        yield from cited_code.broken_in(whole)
    elif not is_record(path):
        yield from cited_code.broken_paths(whole, (ROOT / path).parent)
        if not _FOLDER.search(text):
            yield from cited_code.broken_tests(text)


def _broken_links(path: Path, text: str) -> Iterator[str]:
    for found in _LINK.finditer(text):
        target = found["target"] or found["defined"] or found["html"]
        if not re.match("[a-z]+:", target) and not _exists(ROOT / path, target):
            yield target
    labels = {found["label"].lower() for found in _LABEL.finditer(text)}
    for found in _LABELLED.finditer(_CODE.sub("", text)):
        if (found["label"] or found["text"]).lower() not in labels:
            yield found[0]


def _broken_tests(text: str) -> Iterator[str]:
    folders = dict(_FOLDER.findall(text))
    if not folders:
        return
    tests = ""
    for found in _TEST.finditer(text):
        if found["name"] is None:
            path = ROOT / folders.get(found["letter"], "") / found["file"]
            tests = path.read_text(encoding="utf-8") if path.is_file() else ""
            is_broken = not path.is_file()
        else:
            is_broken = f"def {found['name']}(" not in tests
        if is_broken:
            yield found[0]


def _exists(document: Path, target: str) -> bool:
    name, _, anchor = target.partition("#")
    there = document if not name else (document.parent / name).resolve()
    if not there.exists() and re.fullmatch(r"[0-9]{4}", there.name):
        return any(there.parent.glob(f"{there.name}-*.md"))
    if not there.exists():
        return False
    return not anchor or (there.suffix == ".md" and anchor in anchors(there))


@cache
def anchors(document: Path) -> frozenset[str]:
    """The anchors of a document's headings."""
    text = _FENCE.sub("", document.read_text(encoding="utf-8"))
    return frozenset(_anchor(found["text"]) for found in _HEADING.finditer(text))


def _anchor(heading: str) -> str:
    words = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading.strip().lower())
    return re.sub(r"[^\w\- ]", "", words).replace(" ", "-")
