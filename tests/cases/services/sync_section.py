# SPDX-License-Identifier: Apache-2.0
"""The `sync` section: the writes of a change, as deltas to a guest.

These expectations have no meaning here, and the note says so. `total_delta` counts rules of upstream's
shape. Chains of single endpoints and comments are never written: so Services have two endpoints here, where
the file has one, and large clusters need no mode of their own. Stale chains go at once. A guest neither
forwards nor masquerades.
"""

import re
from collections.abc import Mapping
from typing import Any

from ruleset.delta import BaseMismatch, RulesetDelta, apply_delta, difference
from ruleset.document import Document, make_ruleset
from ruleset.model import EndpointSet, Protocol
from ruleset.names import Backend, endpoint_set_chain
from tests.cases.services import rendering
from tests.cases.services.case_file import (
    ApiState,
    EndpointSpec,
    PortSpec,
    ServiceCaseSpec,
    SlicePort,
    SliceSpec,
    Sync,
)
from tests.cases.services.packet_checks import UnknownWordError
from tests.cases.services.rendering import RenderedGuest

_NODE = "test-node"
_GUEST = RenderedGuest("10.0.0.2", _NODE)
_DISPATCH, _REFUSALS = "nat/VCN-SERVICES", "filter/VCN-SERVICES"
_STEP_WORDS = frozenset(
    {
        *("do", "note", "service_chains_written", "top_level_lists", "total_delta", "chains_deleted"),
        *("filter_reject", "needs_full", "partial_failures", "comments_on_endpoint_rules"),
        "written_endpoints",
    }
)
_NOT_OF_GUESTS = {
    "drop conntrack INVALID in forward": ("FORWARD", "a guest forwards nothing"),
    "MASQUERADE carries --random-fully": ("MASQUERADE", "a guest's packets have its own address already"),
}


def check(case: Sync) -> tuple[list[str], str]:
    """One sequence or rule of the section."""
    if case.rule is not None:
        return _rule_of_nodes(case.rule)
    guest = _SyncedGuest()
    found = []
    for number, step in enumerate(case.steps, 1):
        unknown = sorted(set(step) - _STEP_WORDS)
        if unknown:
            raise UnknownWordError(f"the runner does not know {unknown} of step {number}")
        found += [f"step {number}, {step['do']}: {difference}" for difference in guest.step(step)]
    return found, "by deltas; rules of upstream's shape are not counted, and there are no comments"


def _rule_of_nodes(rule: str) -> tuple[list[str], str]:
    if rule not in _NOT_OF_GUESTS:
        raise UnknownWordError(f"the runner does not know the rule {rule!r}")
    word, reason = _NOT_OF_GUESTS[rule]
    services = {"ns1/svc1": 2}
    text = _document(services).text()
    return ([f"the text has {word}"] if word in text else []), f"no such rule: {reason}"


class _SyncedGuest:
    """Services by their number of endpoints, and the guest's installed ruleset."""

    def __init__(self) -> None:
        self._services: dict[str, int] = {}
        self._generation = 0
        self._installed = make_ruleset(0, ())
        self._is_broken = False

    def step(self, step: Mapping[str, Any]) -> list[str]:
        """Do one step, and return its differences from the expectations."""
        before = set(self._services)
        is_push_lost = self._apply_step(str(step["do"]))
        document = _document(self._services)
        self._generation += 1
        expected = make_ruleset(self._generation, (document,))
        delta = difference(self._installed, expected)
        if is_push_lost:
            return self._check_lost_push(step)
        needs_full = self._is_broken
        self._is_broken = False
        found = _differences(step, document, delta, before, self._services, is_full=needs_full)
        if (
            delta is not None
            and not needs_full
            and apply_delta(self._installed, delta).digest != expected.digest
        ):
            found.append("the delta does not lead to the new ruleset")
        self._installed = expected
        return found

    def _check_lost_push(self, step: Mapping[str, Any]) -> list[str]:
        """A push fails: the guest has another ruleset, to which no delta may be applied."""
        self._is_broken = True
        other = make_ruleset(1, (_document({"ns9/svc9": 2}),))
        after = make_ruleset(2, (_document({**self._services, "ns8/svc8": 2}),))
        delta = difference(self._installed, after)
        assert delta is not None
        try:
            apply_delta(other, delta)
        except BaseMismatch:
            return [] if step.get("needs_full") is True else [f"needs_full is not {step.get('needs_full')}"]
        return ["a delta was applied to another base"]

    def _apply_step(self, words: str) -> bool:
        """Change the Services as `words` describe. Returns whether the push is lost."""
        if found := re.fullmatch(r"first sync with (\S+) and (\S+) one endpoint each", words):
            self._services = {found[1]: 2, found[2]: 2}
        elif found := re.fullmatch(r"add (\S+) with one endpoint", words):
            self._services[found[1]] = 2
        elif found := re.fullmatch(r"add (\S+) without endpoints", words):
            self._services[found[1]] = 0
        elif found := re.fullmatch(r"add endpoints of (\S+)", words):
            self._services[self._named(found[1])] = 2
        elif found := re.fullmatch(r"delete (\S+/\S+)", words):
            del self._services[found[1]]
        elif found := re.fullmatch(r"(\d+) endpoints", words):
            self._services = {"ns1/svc1": int(found[1])}
        elif found := re.fullmatch(r"add (\d+) more in another service", words):
            self._services["ns2/svc2"] = int(found[1])
        elif words == "forced full sync":
            self._is_broken = True
        elif words.startswith("delete a service soon after"):
            del self._services["ns2/svc2"]
        elif words == "restore fails":
            return True
        elif words not in ("sync with no change", "next sync", "sync after more than one sync period"):
            raise UnknownWordError(f"the runner does not know how to do {words!r}")
        return False

    def _named(self, short: str) -> str:
        return next(name for name in self._services if name.endswith(f"/{short}"))


def _differences(
    step: Mapping[str, Any],
    document: Document,
    delta: RulesetDelta | None,
    before: set[str],
    services: Mapping[str, int],
    *,
    is_full: bool,
) -> list[str]:
    changes = delta.documents if delta is not None else ()
    touched = {name for change in changes for name in (*change.changed, *change.edited)}
    removed = {name for change in changes for name in change.removed}
    written = set(document.objects) if is_full else touched
    names = {*services, *before}
    chains = {name: f"nat/{_chain(name)}" for name in names}
    short = {name: name.partition("/")[2] for name in names}
    found = []

    def expect(key: str, expected: set[str], seen: set[str]) -> None:
        if expected != seen:
            found.append(f"{key}: {sorted(seen)}, not {sorted(expected)}")

    if "service_chains_written" in step:
        chains_written = step["service_chains_written"]
        has_chain = {short[name] for name, count in services.items() if count}
        seen = {short[name] for name, chain in chains.items() if chain in written}
        expect("service_chains_written", has_chain if chains_written == "all" else set(chains_written), seen)
    if "top_level_lists" in step:
        dispatch = " ".join(document.objects[_DISPATCH])
        seen = {short[name] for name in services if f"-j {_chain(name)}" in dispatch}
        expect("top_level_lists", set(step["top_level_lists"]), seen)
    if "filter_reject" in step:
        refused = " ".join(document.objects[_REFUSALS])
        seen = {short[name] for name in services if f"-d {_vip(name)}/32 " in refused}
        expect("filter_reject", set(step["filter_reject"]), seen)
    if step.get("chains_deleted") and any(name not in services for name in before):
        gone = {chains[name] for name in before if name not in services}
        expect("chains_deleted", gone, removed)
    if "needs_full" in step and step["needs_full"] is not False:
        found.append("needs_full after a successful push")
    if "written_endpoints" in step:
        lines = [line for change in changes for lines in change.changed.values() for line in lines]
        if is_full:
            lines = [line for lines in document.objects.values() for line in lines]
        count = sum("-j DNAT" in line for line in lines)
        if count != step["written_endpoints"]:
            found.append(f"{count} endpoints written")
    if "--comment" in document.text():
        found.append("the text has comments")
    return found


def _chain(name: str) -> str:
    return endpoint_set_chain(EndpointSet(f"{name}:p80", Protocol.TCP, False, ()))


def _vip(name: str) -> str:
    return f"172.30.0.{int(name.rpartition('svc')[2])}"


def _document(services: Mapping[str, int]) -> Document:
    made = tuple(
        ServiceCaseSpec(name, vip=(_vip(name),), ports=(PortSpec("p80", port=80),)) for name in services
    )
    slices = tuple(
        SliceSpec(
            name,
            (SlicePort("p80", port=80),),
            tuple(
                EndpointSpec(f"10.{20 + int(_vip(name).rpartition('.')[2])}.{n // 250}.{n % 250}")
                for n in range(count)
            ),
        )
        for name, count in services.items()
    )
    data = rendering.objects_list(ApiState(made, slices), _NODE)
    return rendering.document_for(data, _GUEST, Backend.IPTABLES)
