# SPDX-License-Identifier: Apache-2.0
"""The rules about EndpointSlices that a file states in words, as changes of objects."""

import copy
import json
from collections.abc import Callable
from typing import Any

from ruleset.model import EndpointSet
from tests.cases.services import rendering
from tests.cases.services.case_file import (
    ApiState,
    EndpointSpec,
    PortSpec,
    ServiceCaseSpec,
    SlicePort,
    SliceSpec,
)
from tests.cases.services.packet_checks import UnknownWordError
from tests.cases.services.rendering import RenderedGuest

_NODE = "test-node"
_POD = "10.0.0.2"
_STATE = ApiState(
    (ServiceCaseSpec("a/s", vip=("172.30.0.41",), ports=(PortSpec("p", port=80),), itp="Cluster"),),
    (SliceSpec("a/s", (SlicePort("p", port=8080),), (EndpointSpec("10.1.0.3"), EndpointSpec("10.1.0.4"))),),
)
_BOTH = {"10.1.0.3:8080", "10.1.0.4:8080"}
_SECOND = {"10.1.0.4:8080"}

SliceEdit = Callable[[dict[str, Any]], object]
# By the rule in the file's words: its effect, a change to a slice of two endpoints, and the Service's
# endpoints then. The port of the Service is named `p`; "" stands for an unnamed one.
_RULES: dict[str, tuple[str, SliceEdit, set[str]]] = {
    "no service-name label": ("slice ignored", lambda s: s["metadata"]["labels"].clear(), set()),
    "addressType FQDN": ("slice ignored", lambda s: s.update(addressType="FQDN"), set()),
    "port without a name pointer": (
        "that port ignored (an empty string name is a name)",
        lambda s: s["ports"][0].pop("name"),
        set(),
    ),
    "port number nil or 0": ("that port ignored", lambda s: s["ports"][0].pop("port"), set()),
    "endpoint with no address": (
        "that endpoint ignored",
        lambda s: s["endpoints"][0].update(addresses=[]),
        _SECOND,
    ),
    "endpoint with several addresses": (
        "only the first is used",
        lambda s: s["endpoints"][0]["addresses"].append("10.1.0.9"),
        _BOTH,
    ),
    "address of the wrong family for the slice": (
        "endpoint ignored",
        lambda s: s["endpoints"][0].update(addresses=["fd00::3"]),
        _SECOND,
    ),
    "ready unset": ("true", lambda s: s["endpoints"][0]["conditions"].pop("ready"), _BOTH),
    "serving unset": ("true", lambda s: _terminating(s)["conditions"].pop("serving"), {"10.1.0.3:8080"}),
    "terminating unset": ("false", lambda s: _terminating(s)["conditions"].pop("terminating"), set()),
}
_DUPLICATE = "same ip:port in two slices of a service port"


def check(rule: str, effect: str) -> tuple[list[str], str]:
    """Apply one rule's change and compare the daemon's endpoints. Raises UnknownWordError."""
    if rule == _DUPLICATE:
        return _duplicate(effect)
    known, change, expected = _RULES.get(rule, ("", lambda _: None, set()))
    if known != effect:
        raise UnknownWordError(f"the runner does not know the slice rule {rule!r}: {effect!r}")
    items = _STATE.objects(_NODE)
    change(items[-1])
    found = _compared(items, expected)
    if rule == "port number nil or 0":
        items[-1]["ports"][0]["port"] = 0
        found += _compared(items, expected)
    if rule == "port without a name pointer":
        found += _unnamed()
    return found, effect


def _unnamed() -> list[str]:
    items = copy.deepcopy(_STATE.objects(_NODE))
    del items[-2]["spec"]["ports"][0]["name"]
    items[-1]["ports"][0]["name"] = ""
    return _compared(items, _BOTH)


def _duplicate(effect: str) -> tuple[list[str], str]:
    """The copy on this node wins, as the endpoints of a Local policy show."""
    if effect != "one endpoint; a copy that is on this node wins":
        raise UnknownWordError(f"the runner does not know the slice rule {_DUPLICATE!r}: {effect!r}")
    found = []
    for is_local_first in (True, False):
        copies = (EndpointSpec("10.1.0.3", "elsewhere"), EndpointSpec("10.1.0.3", _NODE))
        ports = (SlicePort("p", port=8080),)
        slices = tuple(
            SliceSpec("a/s", ports, (one,)) for one in (reversed(copies) if is_local_first else copies)
        )
        service = ServiceCaseSpec("a/s", vip=("172.30.0.41",), ports=(PortSpec("p", port=80),), itp="Local")
        found += _compared(ApiState((service,), slices).objects(_NODE), {"10.1.0.3:8080"})
    return found, effect


def _terminating(slice_: dict[str, Any]) -> dict[str, Any]:
    """The first endpoint, as the only one: terminating, and serving, so that it is a last resort."""
    del slice_["endpoints"][1]
    endpoint: dict[str, Any] = slice_["endpoints"][0]
    endpoint["conditions"] = {"ready": False, "serving": True, "terminating": True}
    return endpoint


def _compared(items: list[dict[str, Any]], expected: set[str]) -> list[str]:
    data = json.dumps({"apiVersion": "v1", "kind": "List", "items": items}).encode()
    seen = {
        str(endpoint)
        for frontend in rendering.rules_for(data, RenderedGuest(_POD, _NODE)).frontends()
        if isinstance(frontend.to, EndpointSet)
        for endpoint in frontend.to.endpoints
    }
    return [] if seen == expected else [f"{sorted(seen)}, not {sorted(expected)}"]
