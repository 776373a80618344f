# SPDX-License-Identifier: Apache-2.0
"""Reads a file of request cases. An unknown key or word becomes a problem of its case, which then fails.

The head of ../shared/cases/vnagent-requests.yaml explains the format.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

_WORD_LISTS = frozenset(
    {
        *("must_contain", "must_not_contain", "path_must_not_contain"),
        *("upstream_must_contain", "upstream_must_not_contain"),
        *("audit_must_contain", "audit_must_not_contain"),
    }
)
_CASE_KEYS = _WORD_LISTS | {
    *("id", "group", "ref", "note", "identity", "sni", "host", "transport", "config"),
    *("before", "request", "repeat", "then", "upstream", "expect", "otherwise"),
}
_REQUEST_KEYS = frozenset({"line", "headers", "body", "raw", "expand"})
_EXPECT_KEYS = _WORD_LISTS | {
    *("tls", "status", "headers", "after", "within_s", "hold"),
    *("upstream", "upstream_max", "path", "upstream_headers", "decoded_query"),
}
INVARIANTS = frozenset(f"I{number}" for number in range(1, 15))
ALWAYS = frozenset({"I1", "I2", "I3"})


class RequestFileError(Exception):
    """The file does not have this format."""


@dataclass(frozen=True, slots=True)
class Expect:
    """The expectations. `upstream` None: at most one request, as a page cache may answer."""

    tls: str = "ok"
    status: tuple[int, ...] = ()
    upstream: int | None = None
    upstream_max: int | None = None
    path: str | None = None
    upstream_headers: Mapping[str, Sequence[str]] = field(default_factory=dict)
    headers: Mapping[str, Sequence[str]] = field(default_factory=dict)
    decoded_query: Mapping[str, Sequence[str]] | None = None
    after: str | None = None
    within_s: float | None = None
    hold: frozenset[str] = ALWAYS


@dataclass(frozen=True, slots=True)
class RequestCase:
    """One case. `text` is the whole request before expansion, head and body."""

    id: str
    identity: str
    text: str
    has_head_end: bool = True
    is_expanded: bool = False
    sni: str | None = None
    is_tls: bool = True
    config: Mapping[str, Any] = field(default_factory=dict)
    before: tuple[Mapping[str, Any], ...] = ()
    then: tuple[Mapping[str, Any], ...] = ()
    upstream: Mapping[str, Any] | None = None
    expect: Expect = Expect()
    otherwise: Expect | None = None
    repeat: int = 1
    words: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    problems: tuple[str, ...] = ()

    @property
    def method(self) -> str:
        return self.text.split(" ", 1)[0]


@dataclass(frozen=True, slots=True)
class CaseFile:
    """A file's cases and fixtures."""

    path: Path
    cases: tuple[RequestCase, ...]
    fixtures: Mapping[str, Any]
    identities: Mapping[str, Mapping[str, Any]]


def find_file(name: str, shared: Path) -> Path:
    """The file at `name` or below `shared`. Raises RequestFileError."""
    for path in (Path(name), shared / name, shared / f"{name}.yaml"):
        if path.is_file():
            return path
    raise RequestFileError(f"{name}: no such file, nor below {shared}")


def load(path: Path, base: Path | None = None) -> CaseFile:
    """Read one file. `base` has the fixtures and identities that it lacks. Raises RequestFileError."""
    document = _read(path)
    defaults_of_base = _read(base) if base is not None and base != path else {}
    fixtures = document.get("fixtures") or defaults_of_base.get("fixtures")
    identities = {**(defaults_of_base.get("identities") or {}), **(document.get("identities") or {})}
    if not isinstance(fixtures, dict) or not identities:
        raise RequestFileError(f"{path}: no fixtures or identities")
    if not isinstance(document.get("cases"), list):
        raise RequestFileError(f"{path}: no list of cases")
    meta = document.get("meta") or {}
    defaults = meta.get("defaults") or {}
    always = frozenset(defaults.get("hold_always", ALWAYS))
    cases = tuple(_case(raw, defaults, always) for raw in document["cases"])
    duplicates = {c.id for c in cases if [other.id for other in cases].count(c.id) > 1}
    if duplicates:
        raise RequestFileError(f"{path}: ids given twice: {sorted(duplicates)}")
    return CaseFile(path, cases, fixtures, identities)


def _read(path: Path) -> dict[str, Any]:
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError) as problem:
        raise RequestFileError(f"{path}: {problem}") from problem
    if not isinstance(document, dict):
        raise RequestFileError(f"{path}: not a mapping")
    return document


def _case(raw: Any, defaults: Mapping[str, Any], always: frozenset[str]) -> RequestCase:
    if not isinstance(raw, dict) or not isinstance(raw.get("id"), str):
        raise RequestFileError(f"a case without an id: {str(raw)[:80]}")
    problems = [f"harness does not know the key {key!r}" for key in raw if key not in _CASE_KEYS]
    text, has_head_end, is_expanded = _request(raw, defaults, problems)
    expect = _expect(raw.get("expect") or {}, always, problems)
    otherwise = raw.get("otherwise")
    transport = raw.get("transport", "tls")
    if transport not in ("tls", "tcp"):
        problems.append(f"harness does not know the transport {transport!r}")
    upstream = raw.get("upstream", defaults.get("upstream", "ok"))
    if isinstance(upstream, str) and upstream != "ok":
        problems.append(f"harness does not know the upstream {upstream!r}")
    return RequestCase(
        id=raw["id"],
        identity=str(raw.get("identity", "none")),
        text=text,
        has_head_end=has_head_end,
        is_expanded=is_expanded,
        sni=raw.get("sni", defaults.get("sni")),
        is_tls=transport == "tls",
        config=raw.get("config") or {},
        before=tuple(raw.get("before") or ()),
        then=tuple(raw.get("then") or ()),
        upstream=upstream if isinstance(upstream, dict) else None,
        expect=expect,
        otherwise=None if otherwise is None else _expect(otherwise, always, problems),
        repeat=int(raw.get("repeat", 1)),
        words=_words(raw),
        problems=tuple(problems),
    )


def _words(raw: Mapping[str, Any]) -> dict[str, tuple[str, ...]]:
    """The lists of words, which stand beside `expect` or in it."""
    expect = raw.get("expect") or {}
    found = {}
    for key in _WORD_LISTS:
        words = [*_listed(raw.get(key)), *_listed(expect.get(key))]
        found[key] = tuple(str(word) for word in words)
    return found


def _listed(value: Any) -> list[Any]:
    if value is None:
        return []
    return value if isinstance(value, list) else [value]


def _request(
    raw: Mapping[str, Any], defaults: Mapping[str, Any], problems: list[str]
) -> tuple[str, bool, bool]:
    request = raw.get("request")
    if isinstance(request, str):
        request = {"line": request}
    if not isinstance(request, dict):
        problems.append("harness does not know a case without a request")
        return "", True, False
    problems += [f"harness does not know the request key {k!r}" for k in request if k not in _REQUEST_KEYS]
    is_expanded = request.get("expand", False)
    if is_expanded not in (True, False):
        problems.append(f"harness does not know expand: {is_expanded!r}")
    if "raw" in request:
        return str(request["raw"]), False, bool(is_expanded)
    if "line" not in request:
        problems.append("harness does not know a request without line or raw")
    host = raw.get("host", defaults.get("host", "node-1:10550"))
    headers = request.get("headers", [f"Host: {host}"])
    if isinstance(headers, dict):
        headers = [f"{name}: {value}" for name, value in headers.items()]
    return join(request.get("line", ""), headers, request.get("body", "")), True, bool(is_expanded)


def join(line: str, headers: Sequence[str], body: str = "") -> str:
    """A request as text: lines joined with CRLF, a blank line, and the body."""
    return "\r\n".join([line, *headers, "", ""]) + str(body)


def _expect(raw: Mapping[str, Any], always: frozenset[str], problems: list[str]) -> Expect:
    problems += [f"harness does not know expect.{key}" for key in raw if key not in _EXPECT_KEYS]
    status = raw.get("status", ())
    hold = frozenset(_listed(raw.get("hold"))) | always
    problems += [f"harness does not know the invariant {name}" for name in hold - INVARIANTS]
    tls, after = raw.get("tls", "ok"), raw.get("after")
    if tls not in ("ok", "fail"):
        problems.append(f"harness does not know tls: {tls!r}")
    if after not in ("open", "close", None):
        problems.append(f"harness does not know after: {after!r}")
    return Expect(
        tls=tls,
        status=tuple(status) if isinstance(status, (list, tuple)) else (int(status),),
        upstream=raw.get("upstream"),
        upstream_max=raw.get("upstream_max"),
        path=raw.get("path"),
        upstream_headers=_header_values(raw.get("upstream_headers")),
        headers=_header_values(raw.get("headers")),
        decoded_query=_header_values(raw["decoded_query"]) if "decoded_query" in raw else None,
        after=after,
        within_s=raw.get("within_s"),
        hold=hold,
    )


def _header_values(raw: Any) -> dict[str, list[str]]:
    return {str(k): [str(v) for v in _listed(values)] for k, values in (raw or {}).items()}


def path_of(text: str) -> str:
    """The path of a request's text, without its query; empty where there is none."""
    match = re.match(r"\S+ (\S+)", text)
    return match[1].partition("?")[0] if match else ""
