# SPDX-License-Identifier: Apache-2.0
"""Reads a file of service cases; a key that is not known is an error. Any section may be missing."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, TypeVar, get_args

import pytest
import yaml

from tests.cases.services.case_file import (
    ApiState,
    CaseFile,
    Check,
    ChoiceEndpoint,
    Conntrack,
    ConntrackEntry,
    EndpointChoiceCase,
    EndpointMap,
    EndpointSpec,
    FlowCase,
    FlowOrigin,
    GuestCase,
    Ingress,
    PortSpec,
    Selection,
    ServiceCaseSpec,
    SlicePort,
    SliceSpec,
    Sync,
    UnreadableCase,
    Word,
)

SHARED = Path(__file__).resolve().parents[4] / "shared" / "cases" / "service-proxy.yaml"
MORE = Path(__file__).with_name("more.yaml")
"""Our own cases, in this repository."""

_SETTINGS_KEYS = frozenset({"version", "world", "guest_world"})
_SECTIONS = frozenset(
    {
        *("flows", "guest", "chain_names", "probabilities", "selection", "slice_rules"),
        *("endpoint_map", "categorize", "conntrack", "sync"),
    }
)
_WORDS = frozenset(get_args(Word))


class ServiceFileError(Exception):
    """The file does not have this format."""


_PARSE_ERRORS = (AttributeError, KeyError, TypeError, ValueError, ServiceFileError)
_T = TypeVar("_T")


def load(path: Path = SHARED) -> CaseFile:
    """Read one file. Raises ServiceFileError, which names the section."""
    file = read(path)
    if file.problems:
        raise ServiceFileError(f"{path}: {file.problems[0].id}: {file.problems[0].text}")
    return file


def load_shared() -> CaseFile:
    """The shared file, for a test module: without it the module is skipped, which fails in CI."""
    if not SHARED.is_file():
        pytest.skip(f"{SHARED} does not exist beside this clone", allow_module_level=True)
    return load()


def read(path: Path) -> CaseFile:
    """Read one file. Malformed groups become its `problems`.

    Raises ServiceFileError for a file of another format.
    """
    try:
        document = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, yaml.YAMLError) as problem:
        raise ServiceFileError(f"{path}: {problem}") from problem
    if not isinstance(document, dict):
        raise ServiceFileError(f"{path}: not a mapping")
    try:
        return _case_file(path, document)
    except _PARSE_ERRORS as problem:
        raise ServiceFileError(f"{path}: {type(problem).__name__} {problem}") from problem


def is_service_file(document: Any) -> bool:
    """Whether a YAML document is a file of service cases."""
    return isinstance(document, dict) and "cases" not in document and not _SECTIONS.isdisjoint(document)


def _case_file(path: Path, document: Mapping[str, Any]) -> CaseFile:
    problems = [
        UnreadableCase(str(name), "an unknown section")
        for name in sorted(set(document) - _SECTIONS - _SETTINGS_KEYS)
    ]

    def each(section: str, read_one: Callable[[Any], _T]) -> tuple[_T, ...]:
        found = []
        for number, raw in enumerate(document.get(section) or (), 1):
            try:
                found.append(read_one(raw))
            except _PARSE_ERRORS as problem:
                identifier = raw.get("id") if isinstance(raw, dict) else None
                name = str(identifier or f"{section} {number}")
                text = str(problem) if isinstance(problem, ServiceFileError) else repr(problem)
                problems.append(UnreadableCase(name, text))
        return tuple(found)

    raw_conntrack = document.get("conntrack")
    read_sections = {
        "flows": each("flows", _flow),
        "guest": each("guest", _guest),
        "selection": each("selection", _selection),
        "endpoint_map": each("endpoint_map", _endpoint_map),
        "endpoint_choices": each("categorize", _endpoint_choice),
        "sync": each("sync", _sync),
    }
    return CaseFile(
        path=path,
        node_origin=_origin(document.get("world") or {}, "world"),
        guest_origin=_origin(document.get("guest_world") or {}, "guest_world"),
        chain_names={raw["input"]: raw["hash"] for raw in document.get("chain_names") or ()},
        probabilities=dict(document.get("probabilities") or {}),
        slice_rules={raw["why"]: raw["effect"] for raw in document.get("slice_rules") or ()},
        conntrack=None if raw_conntrack is None else _conntrack(raw_conntrack),
        problems=tuple(problems),
        **read_sections,  # type: ignore[arg-type]  # each has its own type
    )


def _known(raw: Mapping[str, Any], known: Sequence[str], where: object) -> None:
    unknown = sorted(set(raw) - set(known))
    if unknown:
        raise ServiceFileError(f"{where}: unknown keys {unknown}")


def _plain(kind: Any, raw: Mapping[str, Any], where: object) -> dict[str, Any]:
    """The keys of `raw` as arguments of `kind`; lists become tuples."""
    _known(raw, [one.name for one in fields(kind)], where)
    return {key: tuple(value) if isinstance(value, list) else value for key, value in raw.items()}


def _origin(raw: Mapping[str, Any], section: str) -> FlowOrigin:
    return FlowOrigin(**_plain(FlowOrigin, raw, section))


def _service(raw: Mapping[str, Any]) -> ServiceCaseSpec:
    where = raw.get("svc")
    plain = _plain(ServiceCaseSpec, raw, where)
    plain["ports"] = tuple(PortSpec(**_plain(PortSpec, p, where)) for p in raw.get("ports", ()))
    plain["lb"] = tuple(Ingress(**_plain(Ingress, one, where)) for one in raw.get("lb", ()))
    return ServiceCaseSpec(**plain)


def _slice(raw: Mapping[str, Any]) -> SliceSpec:
    where = raw.get("svc")
    plain = _plain(SliceSpec, raw, where)
    plain["ports"] = tuple(SlicePort(**_plain(SlicePort, p, where)) for p in raw.get("ports", ()))
    plain["eps"] = tuple(EndpointSpec(**_plain(EndpointSpec, ep, where)) for ep in raw.get("eps", ()))
    return SliceSpec(**plain)


def _state(raw: Mapping[str, Any]) -> ApiState:
    services = tuple(_service(one) for one in raw.get("services") or ())
    return ApiState(services, tuple(_slice(one) for one in raw.get("slices") or ()))


def _check(raw: Sequence[Any]) -> Check:
    name, source, protocol, destination, port, expect, masquerade = raw
    if isinstance(expect, str) and expect not in _WORDS:
        raise ServiceFileError(f"check {name!r}: unknown expectation {expect!r}")
    expected = expect if isinstance(expect, str) else tuple(expect)
    return Check(str(name), source, protocol.lower(), destination, int(port), expected, masquerade)  # type: ignore[arg-type]  # one of the words, as checked above


def _flow(raw: Mapping[str, Any]) -> FlowCase:
    _known(raw, ("id", "from", "config", "services", "slices", "checks", "note"), raw.get("id"))
    checks = tuple(_check(one) for one in raw["checks"])
    return FlowCase(raw["id"], str(raw.get("from", "")), _state(raw), checks, raw.get("config") or {})


_GUEST_KEYS = ("id", "live", "given", "when", "then", "so", "need", "note", "run")
_RUN_KEYS = (
    *("how", "catch_all", "before", "services", "slices"),
    *("checks", "networks", "tenant", "within_ms", "pod"),
)


def _guest(raw: Mapping[str, Any]) -> GuestCase:
    _known(raw, _GUEST_KEYS, raw.get("id"))
    run = raw["run"]
    _known(run, _RUN_KEYS, raw["id"])
    return GuestCase(
        id=raw["id"],
        is_live=bool(raw.get("live", False)),
        given=str(raw.get("given", "")),
        state=_state(run),
        checks=tuple(_check(one) for one in run["checks"]),
        how=run.get("how", "load"),
        before=_state(run["before"]) if "before" in run else None,
        has_catch_all=run.get("catch_all", True),
        networks=tuple(run.get("networks", ())),
        tenant=run.get("tenant"),
        within_ms=run.get("within_ms"),
        pod=run.get("pod"),
    )


def _selection(raw: Mapping[str, Any]) -> Selection:
    _known(raw, ("why", "service", "proxied", "service_ports", "ipv4", "ipv6", "note"), raw.get("why"))
    return Selection(
        raw["why"],
        _service(raw["service"]),
        raw["proxied"],
        raw.get("service_ports"),
        raw.get("ipv4"),
        raw.get("ipv6"),
    )


def _endpoint_map(raw: Mapping[str, Any]) -> EndpointMap:
    _known(raw, ("id", "from", "before", "after", "note", "udp_conntrack_pass"), raw.get("id"))
    before, after = ({name: tuple(ips) for name, ips in raw[key].items()} for key in ("before", "after"))
    return EndpointMap(raw["id"], before, after, raw.get("udp_conntrack_pass"))


_CHOICE_KEYS = ("id", "me", "zone", "itp", "etp", "node_port", "eps", "cluster", "local", "all", "any", "why")


def _endpoint_choice(raw: Mapping[str, Any]) -> EndpointChoiceCase:
    _known(raw, _CHOICE_KEYS, raw.get("id"))
    endpoints = []
    for name, location, state, *hints in raw["eps"]:
        zones, nodes = (*hints, [], [])[:2]
        endpoints.append(ChoiceEndpoint(name, location == "L", state, tuple(zones), tuple(nodes)))
    plain = {key: raw[key] for key in ("id", "zone", "me", "itp", "etp", "node_port") if key in raw}
    return EndpointChoiceCase(
        endpoints=tuple(endpoints),
        cluster=_names(raw.get("cluster")),
        local=_names(raw.get("local")),
        all=_names(raw.get("all")),
        has_any=raw["any"],
        **plain,
    )


def _sync(raw: Mapping[str, Any]) -> Sync:
    _known(raw, ("id", "from", "steps", "rule", "unless", "when", "threshold"), raw.get("id"))
    return Sync(raw["id"], tuple(raw.get("steps") or ()), raw.get("rule"))


def _names(raw: Sequence[str] | None) -> frozenset[str] | None:
    return None if raw is None else frozenset(raw)


def _conntrack(raw: Mapping[str, Any]) -> Conntrack:
    _known(raw, ("service", "endpoints", "checks", "later_fixes"), "conntrack")
    entries = tuple(_entry(one) for one in raw["checks"])
    return Conntrack(raw["service"], raw["endpoints"], entries, tuple(raw.get("later_fixes") or ()))


def _entry(raw: Sequence[Any]) -> ConntrackEntry:
    protocol, destination, port, reply_source, reply_port, word = raw
    return ConntrackEntry(
        protocol, destination, port, reply_source, reply_port, {"keep": True, "delete": False}[word]
    )
