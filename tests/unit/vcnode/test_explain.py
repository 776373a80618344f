# SPDX-License-Identifier: Apache-2.0
"""Which guest and which destination are meant. tests/functional queries the two daemons."""

import argparse

import pytest

from bridge_api.messages import Guest
from vcnode import explain
from vcnode.terminal import ToolError

FRONT_A = Guest(
    id="aaa1", namespace="vc-a-web", name="front", tenant="vc-a", tenant_namespace="web", tenant_name="front"
)
FRONT_B = Guest(
    id="aab2", namespace="vc-b-web", name="front", tenant="vc-b", tenant_namespace="web", tenant_name="front"
)
ALL = (FRONT_A, FRONT_B)


@pytest.mark.parametrize(
    ("pod", "tenant", "found"),
    [
        ("vc-a-web/front", None, FRONT_A),
        ("web/front", "vc-b", FRONT_B),
        ("vc-b-web/front", "vc-b", FRONT_B),
        ("aab2", None, FRONT_B),
        ("aaa", None, FRONT_A),
    ],
)
def test_guest_is_found_by_its_two_names_and_its_id(pod: str, tenant: str | None, found: Guest) -> None:
    assert explain.choose(ALL, pod, tenant, is_whole=True) is found


@pytest.mark.parametrize(
    ("pod", "tenant", "why"),
    [
        ("web/front", None, "tenants vc-a, vc-b have a pod of that name: add --tenant"),
        ("web/back", None, r"no guest on this node has that name \(see `vcnode guests`\)"),
        ("vc-a-web/front", "vc-b", "no guest on this node"),
        ("aa", None, "tenants vc-a, vc-b"),
    ],
)
def test_name_of_no_guest_or_of_several_is_an_error(pod: str, tenant: str | None, why: str) -> None:
    with pytest.raises(ToolError, match=why):
        explain.choose(ALL, pod, tenant, is_whole=True)


def test_two_sandboxes_of_one_pod_need_the_id() -> None:
    old = Guest(id="old", namespace="vc-a-web", name="front", tenant="vc-a")
    with pytest.raises(ToolError, match="guests aaa1, old have that name: give the id instead"):
        explain.choose((*ALL, old), "vc-a-web/front", None, is_whole=True)


def test_missing_guest_before_the_first_sync_is_explained() -> None:
    with pytest.raises(ToolError, match="has not listed all sandboxes"):
        explain.choose((), "web/front", None, is_whole=False)


@pytest.mark.parametrize(
    ("text", "expected"),
    [("10.0.0.1:80", ("10.0.0.1", 80)), ("[fd00:0::1]:443", ("fd00::1", 443))],
)
def test_destination_is_an_address_with_port(text: str, expected: tuple[str, int]) -> None:
    top = argparse.ArgumentParser()
    explain.add_to(top.add_subparsers())
    assert top.parse_args(["explain", "web/front", text]).to == expected


@pytest.mark.parametrize(
    "text",
    [
        "10.0.0.1",
        "10.0.0.1:0",
        "10.0.0.1:65536",
        "fd00::1:80",
        "[10.0.0.1]:80",
        "[fd00::1]",
        "shop:80",
        "[::1:80",
        ":",
    ],
)
def test_other_destination_is_wrong_usage(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    top = argparse.ArgumentParser()
    explain.add_to(top.add_subparsers())
    with pytest.raises(SystemExit):
        top.parse_args(["explain", "web/front", text])
    assert "neither ADDRESS:PORT" in capsys.readouterr().err
