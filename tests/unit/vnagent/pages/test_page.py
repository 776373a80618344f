# SPDX-License-Identifier: Apache-2.0
"""Every page is free of bytes of other tenants, of the host and of injected containers."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from devkit.kubelet.pods import MACHINE_ID, FakePod, names_pods, page_for
from tenancy.ownership import ContainerPolicy, OwnerIndex
from tests.rebuilt_pages import tenants_page
from vnagent.core.kubelet_request import PAGE_PATHS
from vnagent.core.requests import PAGE_ENDPOINTS
from vnagent.pages.kinds import PAGE_KINDS
from vnagent.pages.node_cpu import NodeCpu
from vnagent.pages.page import JSON, PROMETHEUS_TEXT, PageError, PageKind, View
from vnagent.pages.podlist import owned_pods
from vnagent.pages.stats import SUMMARY_ONLY_CPU_AND_MEMORY

PAGES: list[tuple[str, PageKind[Any]]] = [
    *((PAGE_PATHS[endpoint], page) for endpoint, page in PAGE_KINDS.items()),
    ("/stats/summary", SUMMARY_ONLY_CPU_AND_MEMORY),
]
INJECTED = "injected-proxy"
POLICY = ContainerPolicy(frozenset({INJECTED}))
KEYS = [f"tenancy.x-k8s.io/{word}" for word in ("cluster", "namespace", "uid")]

# The tenants' keys and namespaces collide by prefix and by join as often as can be.
parts = st.from_regex(r"[ab](-[ab]){0,2}", fullmatch=True)


@st.composite
def nodes(draw: st.DrawFn) -> list[FakePod]:
    """A node's pods: tenants' in joined namespaces, and the super cluster's own beside them."""
    pods = []
    for number in range(draw(st.integers(0, 6))):
        tenant, namespace, name = draw(parts), draw(parts), draw(st.sampled_from(["p", "q", f"pod-{number}"]))
        annotations = dict(zip(KEYS, (tenant, namespace, f"tenant-uid-{number}"), strict=True))
        pods.append(
            FakePod(
                f"{tenant}-{namespace}",
                name,
                f"super-uid-{number}",
                init=("setup",) if draw(st.booleans()) else (),
                injected=(INJECTED,) if draw(st.booleans()) else (),
                annotations=annotations if draw(st.integers(0, 5)) else {},
            )
        )
    return pods


def with_planted(value: Any, word: str) -> Any:
    """`value` with a field more in each of its objects, as a coming kubelet might have it."""
    if isinstance(value, dict):
        grown = {key: with_planted(each, word) for key, each in value.items()}
        return grown | {"futureField": word, "message": word}
    return [with_planted(each, word) for each in value] if isinstance(value, list) else value


@pytest.mark.parametrize(("path", "page"), PAGES)
@settings(deadline=None, max_examples=60)
@given(pods=nodes())
def test_no_byte_of_another_tenant_reaches_a_tenant(
    path: str, page: PageKind[Any], pods: list[FakePod]
) -> None:
    listing = page_for("/pods", pods, "node-1")
    made = page_for(path, pods, "node-1")
    assert listing is not None
    assert made is not None
    raw = made[1]
    if page.content_type == JSON:
        raw = json.dumps(with_planted(json.loads(raw), "planted")).encode()
    index = OwnerIndex(owned_pods(listing[1], POLICY)[0])
    parsed, node_cpu = page.parse(raw), NodeCpu()
    if page.read_cpu is not None:
        node_cpu.take(page.read_cpu(parsed), index)
    shown: set[str] = set()
    for tenant in {pod.tenant for pod in index} | {"a", "nobody"}:
        out = page.render(parsed, View(index, tenant, node_cpu.total(tenant)))
        # One reading serves all: rendering for others has not changed it.
        assert out == tenants_page(page, raw, index, tenant)
        text = out.decode()
        mine = index.pods_of(tenant)
        for number, pod in enumerate(pods):
            assert f"super-uid-{number}" not in text, "every marker has it too"
            if pod.uid not in {each.super_uid for each in mine}:
                assert f"tenant-uid-{number}" not in text
                assert f"pod-{number}" not in text
        for word in (INJECTED, MACHINE_ID, "planted", "192.0.2.1", "/kubepods", "tenancy.x-k8s.io"):
            assert word not in text
        named = _names(text) if page.content_type == JSON else _labels(text)
        assert named <= {(each.namespace, each.name) for each in mine}
        shown |= {each.super_uid for each in mine if (each.namespace, each.name) in named}
    if names_pods(path):
        assert shown == {each.super_uid for each in index}, "and nothing of a tenant's own is withheld"


def _names(text: str) -> set[tuple[str, str]]:
    document = json.loads(text)
    references = [
        *(item["metadata"] for item in document.get("items", ())),
        *(pod["podRef"] for pod in document.get("pods", ())),
    ]
    return {(each["namespace"], each["name"]) for each in references}


def _labels(text: str) -> set[tuple[str, str]]:
    """The pods of rows whose labels hold no escapes, as on a fake kubelet's page."""
    found = set()
    for line in text.splitlines():
        if "{" in line and not line.startswith("#"):
            labels = dict(
                each.split("=", 1) for each in line[line.index("{") + 1 : line.index("}")].split(",")
            )
            found.add((labels["namespace"].strip('"'), labels["pod"].strip('"')))
    return found


@pytest.mark.parametrize(("path", "page"), PAGES)
@settings(deadline=None)
@given(at=st.floats(0, 1, exclude_max=True), junk=st.binary(max_size=8))
def test_a_damaged_page_is_an_error_or_a_page(path: str, page: PageKind[Any], at: float, junk: bytes) -> None:
    """No other exception, and still no bytes of another tenant."""
    pods = [
        FakePod("a-b", "p", "super-uid-1", annotations=dict(zip(KEYS, ("a", "b", "t-1"), strict=True))),
        FakePod("c-d", "q", "super-uid-2", annotations=dict(zip(KEYS, ("c", "d", "t-2"), strict=True))),
    ]
    listing, made = page_for("/pods", pods, "node-1"), page_for(path, pods, "node-1")
    assert listing is not None
    assert made is not None
    index = OwnerIndex(owned_pods(listing[1], POLICY)[0])
    cut = int(at * len(made[1]))
    for raw in (made[1][:cut], made[1][:cut] + junk + made[1][cut + len(junk) :]):
        try:
            text = tenants_page(page, raw, index, "a")
        except PageError:
            continue
        assert b"super-uid" not in text
        assert b"t-2" not in text


def test_each_page_endpoint_has_a_path_and_a_kind() -> None:
    assert set(PAGE_ENDPOINTS.values()) == PAGE_PATHS.keys() == PAGE_KINDS.keys()


def test_the_types_of_pages() -> None:
    assert {(path, page.content_type) for path, page in PAGES} == {
        ("/pods", JSON),
        ("/runningpods/", JSON),
        ("/stats/summary", JSON),
        ("/metrics/resource", PROMETHEUS_TEXT),
        ("/metrics/cadvisor", PROMETHEUS_TEXT),
        ("/metrics/probes", PROMETHEUS_TEXT),
    }
