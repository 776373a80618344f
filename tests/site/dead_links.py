# SPDX-License-Identifier: Apache-2.0
"""Links of a built site that lead to no file, or to no element of a page."""

from __future__ import annotations

import os
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

# What may lead away: the theme names its author, documents name sources.
_ELSEWHERE = frozenset({"http", "https", "mailto", "data"})
_TARGETS = frozenset({("a", "href"), ("link", "href"), ("img", "src"), ("script", "src"), ("iframe", "src")})


class _HtmlPage(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[tuple[str, str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name in ("id", "name") and value:
                self.anchors.add(value)
            if (tag, name) in _TARGETS and value:
                self.links.append((tag, value))


def find(site: Path) -> Iterator[str]:
    """`page: link` for each one; and each script, style or image that comes from another server."""
    pages = {path: _read(path) for path in sorted(site.rglob("*.html"))}
    for path, page in pages.items():
        for tag, link in page.links:
            if _is_dead(site, pages, path, tag, link):
                yield f"{path.relative_to(site)}: {link}"


def _is_dead(site: Path, pages: dict[Path, _HtmlPage], path: Path, tag: str, link: str) -> bool:
    parts = urlsplit(link)
    if parts.scheme:
        # Only a reader who follows a link may leave the site.
        return parts.scheme not in _ELSEWHERE or (tag != "a" and parts.scheme != "data")
    named = Path(os.path.normpath(path.parent / unquote(parts.path))) if parts.path else path
    target = named / "index.html" if named.is_dir() else named
    if not target.is_file() or not target.is_relative_to(site):
        return True
    anchor = unquote(parts.fragment)
    return bool(anchor) and target in pages and anchor not in pages[target].anchors


def _read(path: Path) -> _HtmlPage:
    page = _HtmlPage()
    page.feed(path.read_text(encoding="utf-8"))
    return page
