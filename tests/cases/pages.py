# SPDX-License-Identifier: Apache-2.0
"""Builds the page that a case describes: a page of the fixtures, then the changes that the words name.

A word that names no change and does not occur in the page is unknown.
"""

import gzip
import json
import re
import zlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from devkit.kubelet.pods import FakePod, page_for

_KINDS = (
    (r"runtime podlist|runningpods( page)?", "/runningpods/"),
    (r"stats summary|summary|stats page", "/stats/summary"),
    (r"cadvisor( page)?", "/metrics/cadvisor"),
    (r"resource (metrics|page)|metrics/resource", "/metrics/resource"),
    (r"probes?( page| metrics)", "/metrics/probes"),
    (r"podlist|pods page", "/pods"),
)
# Words that ask for nothing beyond a page of the fixtures.
_FILLER_WORDS = """
    a an the of with and or then in its their to by is are as that which for from at on but
    all every each real full plausible ordinary whole complete whose also other others both
    pod pods page row rows object objects list node nodes host tenant tenants key keys value values
    label labels field fields series container containers sidecar sidecars system injected static
    own fixture fixtures kubelet environment env volume volumes token
    json text prometheus includes including holding has have given super names name
"""
_FILLER = frozenset(_FILLER_WORDS.split())


class PageError(Exception):
    """The harness does not know this description."""


@dataclass(slots=True)
class PageDraft:
    """A page under construction."""

    content_type: str
    body: bytes
    headers: list[tuple[str, str]] = field(default_factory=list)
    is_cut: bool = False  # the end of the connection delimits the body


def make_page(words: str, path: str, pods: Sequence[FakePod], node_name: str = "node-1") -> PageDraft:
    """The page for `words`; without a kind of page in them, the one at `path`.

    Raises PageError.
    """
    rest = words
    kind = None
    for pattern, page_path in _KINDS:
        rest, found = re.subn(rf"(?i)\b(?:{pattern})\b", " ", rest)
        if found and kind is None:
            kind = page_path
    if kind is None and re.search(r"podref", words, re.IGNORECASE):
        kind = "/stats/summary"
    pods, rest = _more_pods(rest, pods)
    made = page_for(kind or path, pods, node_name)
    if made is None:
        raise PageError(f"harness does not know page {words!r}")
    page = PageDraft(*made)
    for pattern, change in _CHANGES:
        match = re.search(pattern, rest, re.IGNORECASE)
        if match is not None:
            change(page, match)
            rest = rest[: match.start()] + " " + rest[match.end() :]
    _check_rest(words, rest, page.body if not page.headers else made[1])
    return page


def _check_rest(words: str, rest: str, body: bytes) -> None:
    text = body.decode("utf-8", "replace").casefold()
    for word in re.findall(r"[A-Za-z0-9_*/-]+", rest):
        folded = word.casefold().strip("*-/")
        if folded and folded not in _FILLER and folded not in text:
            raise PageError(f"harness does not know {word!r} of the page {words!r}")


def _more_pods(rest: str, pods: Sequence[FakePod]) -> tuple[Sequence[FakePod], str]:
    match = re.search(r"\b(\d+) (?:more |other |foreign |host )?pods\b", rest, re.IGNORECASE)
    if match is None:
        return pods, rest
    missing = int(match[1]) - len(pods)
    more = [FakePod("kube-system", f"filler-{n}", f"f-{n}") for n in range(missing)]
    return (*pods, *more), rest[: match.start()] + " " + rest[match.end() :]


def _half(page: PageDraft, _: re.Match[str]) -> None:
    page.body = page.body[: len(page.body) // 2]
    page.is_cut = True


def _eof(page: PageDraft, _: re.Match[str]) -> None:
    page.is_cut = True


def _twice(page: PageDraft, match: re.Match[str]) -> None:
    """The key once more before each occurrence with the second value."""
    key, first, second = match["key"], match["first"], match["second"]
    one = f'"{key}":{json.dumps(second)}'.encode()
    both = f'"{key}":{json.dumps(first)},'.encode() + one
    if one not in page.body:
        raise PageError(f"no {key} {second} in the page")
    page.body = page.body.replace(one, both)


def _unknown_key(page: PageDraft, match: re.Match[str]) -> None:
    key, where = match["key"], (match["where"] or "pod").lower()
    added = f'"{key}":{{"value":"marker-unknown-key"}},'.encode()
    if f'"{key}"'.encode() in page.body:
        return
    anchors = {
        "pod": rb'(\{)("podRef"|"metadata":\{"name")',
        "container": rb'(\{)("name":"[^"]*","(?:startTime|image))',
    }
    anchor = anchors.get(where, rb'(^\{|"node":\{)(")')
    page.body = re.sub(anchor, lambda m: m[1] + added + m[2], page.body)


def _large(page: PageDraft, match: re.Match[str]) -> None:
    size = int(match["size"]) * {"k": 1024, "m": 1024 * 1024}[match["unit"][0].lower()]
    missing = max(size - len(page.body), 0)
    if page.body.startswith(b"{"):
        page.body = page.body[:-1] + b',"filler":"' + b"f" * missing + b'"}'
    else:
        page.body += b"# " + b"f" * missing + b"\n"


def _coded(page: PageDraft, match: re.Match[str]) -> None:
    coding = match["coding"].lower()
    page.headers.append(("Content-Encoding", coding))
    if coding == "gzip":
        page.body = gzip.compress(page.body)
    elif coding == "deflate":
        page.body = zlib.compress(page.body)
    else:
        page.body = b"opaque bytes"


def _deep(page: PageDraft, match: re.Match[str]) -> None:
    depth = int(match["depth"] or 100_000)
    page.body = page.body[:-1] + b',"deep":' + b"[" * depth + b"]" * depth + b"}"


def _replaced(content: bytes) -> Callable[[PageDraft, re.Match[str]], None]:
    def change(page: PageDraft, _: re.Match[str]) -> None:
        page.body = content

    return change


def _added(before: bytes, after: bytes) -> Callable[[PageDraft, re.Match[str]], None]:
    def change(page: PageDraft, _: re.Match[str]) -> None:
        page.body = before + page.body + after

    return change


def _bad_utf8(page: PageDraft, _: re.Match[str]) -> None:
    page.body = page.body.replace(b"shop", b"shop\xff\xc0\xaf")


def _host_row_without_pod(page: PageDraft, _: re.Match[str]) -> None:
    page.body += b'container_memory_rss{id="/",namespace=""} 4242\nhost_total 1\n'


_CHANGES: Iterable[tuple[str, Callable[[PageDraft, re.Match[str]], None]]] = (
    (r"first half( of)?", _half),
    (r"\b(then )?(eof|cut off|cut)\b|\btruncated\b", _eof),
    (
        r"(?P<key>\w+) given twice: (?P<first>[\w.-]+),? (?:then|and) (?P<second>[\w.-]+)",
        _twice,
    ),
    (r"unknown (?:(?P<where>pod|node|container|top) )?(?:key|field) (?P<key>\w+)", _unknown_key),
    (r"(?:of |padded to |bigger than )?(?P<size>\d+) ?(?P<unit>KiB|MiB)", _large),
    (r"(?:\bcompressed (?:with|by|as) )?\b(?P<coding>gzip|zstd|deflate|br)\b(?:ped|-coded)?", _coded),
    (r"nest(?:ed|ing)(?: (?P<depth>\d+)(?: deep| levels)?)?", _deep),
    (r"not json|no json|html", _replaced(b"<html>not a page</html>")),
    (r"\bempty( body)?\b", _replaced(b"")),
    (r"\bjson null\b|\bnull\b", _replaced(b"null")),
    (r"\bjson array\b|\barray\b", _replaced(b"[]")),
    (r"invalid utf-?8", _bad_utf8),
    (r"\bBOM\b", _added(b"\xef\xbb\xbf", b"")),
    (r"trailing (garbage|bytes|data)|garbage behind it", _added(b"", b'{"items":[]} garbage')),
    (r"rows? (with(out)?|of) (an )?(empty|no)? ?namespace", _host_row_without_pod),
)
