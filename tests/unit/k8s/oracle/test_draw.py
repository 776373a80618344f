# SPDX-License-Identifier: Apache-2.0
"""Which drawn namespaces are left out, as kube-proxy decides them by the order of a Go map."""

from typing import Any

import pytest

from tests.k8s.oracle.draw import DrawnNamespace, rules_left_to_chance

IP = "10.128.0.6"
ENDS = {"ready": False, "serving": True, "terminating": True}
ENDS_READY = {"terminating": True}
RUNS = {"ready": True}


def endpoint(conditions: dict[str, bool], node: str = "node-a") -> dict[str, Any]:
    return {"addresses": [IP], "conditions": conditions, "nodeName": node}


def left_to_chance(*slices: tuple[int, list[dict[str, Any]]]) -> str:
    """The rule that one Service leaves to chance; each slice has a port number and endpoints."""
    drawn = DrawnNamespace(0, {"svc": {"spec": {"ports": [{"port": 80, "protocol": "UDP"}]}}})
    for number, (port, endpoints) in enumerate(slices):
        drawn.slices[f"svc-{number}"] = {
            "metadata": {"labels": {"kubernetes.io/service-name": "svc"}},
            "ports": [{"port": port, "protocol": "UDP"}],
            "endpoints": endpoints,
        }
    return rules_left_to_chance(drawn)


@pytest.mark.parametrize(
    "slices",
    [
        ((8080, [endpoint(ENDS), endpoint(RUNS)]),),
        ((8080, [endpoint(ENDS), endpoint(ENDS_READY), endpoint(RUNS)]),),
        ((8080, [endpoint(ENDS), endpoint(ENDS_READY)]), (8080, [endpoint(RUNS)])),
        ((8080, [endpoint(RUNS), endpoint(RUNS)]),),
        # Two endpoints, as their ports differ.
        ((8080, [endpoint(RUNS)]), (8443, [endpoint(RUNS, "node-b")])),
    ],
)
def test_copies_of_which_one_counts_are_drawn(slices: tuple[tuple[int, list[dict[str, Any]]], ...]) -> None:
    assert left_to_chance(*slices) == ""


@pytest.mark.parametrize(
    "slices",
    [
        ((8080, [endpoint(ENDS), endpoint(ENDS_READY)]),),
        ((8080, [endpoint(RUNS), endpoint(RUNS, "node-b")]),),
        ((8080, [endpoint(RUNS)]), (8080, [endpoint(RUNS, "node-b")])),
        # The one that runs is an endpoint of another port: none of this one's does.
        ((8080, [endpoint(ENDS), endpoint(ENDS_READY)]), (8443, [endpoint(RUNS)])),
    ],
)
def test_copies_left_to_chance_are_not_drawn(slices: tuple[tuple[int, list[dict[str, Any]]], ...]) -> None:
    assert left_to_chance(*slices) == f"svc has several {IP} at  UDP 8080"
