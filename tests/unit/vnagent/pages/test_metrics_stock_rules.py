# SPDX-License-Identifier: Apache-2.0
"""Every selector of stock rules that matches rows of a tenant's pods on the kubelet's page matches rows of
the same pods and containers on the tenant's."""

import itertools
import re
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families

from tenancy.ownership import ContainerPolicy, OwnerIndex
from tests import stock_rules
from tests.rebuilt_pages import tenants_page
from vnagent.pages.metrics import CADVISOR
from vnagent.pages.podlist import owned_pods

TESTS = Path(__file__).parents[3]
SAMPLES = TESTS / "k8s" / "samples"
SPEC = (TESTS.parent / "docs" / "spec" / "kubelet-api.md").read_text()
# The injected container is the super cluster's.
POLICY = ContainerPolicy(frozenset({"mesh-proxy"}))
EXPRESSIONS = (*stock_rules.RULES.values(), *stock_rules.PANELS, *stock_rules.PANELS_OF_SOME_NODES)
_SELECTOR = re.compile(r"(container_[a-z_]{1,60})\{([^{}]{0,400})\}")
_MATCHER = re.compile(r'([a-z_]+)(=~|!~|!=|=)"([^"]*)"')
_OPERATORS: dict[str, Callable[[str, str], bool]] = {
    "=": lambda value, wanted: value == wanted,
    "!=": lambda value, wanted: value != wanted,
    "=~": lambda value, wanted: re.fullmatch(wanted, value) is not None,
    "!~": lambda value, wanted: re.fullmatch(wanted, value) is None,
}

PageRowLabels = tuple[str, Mapping[str, str]]


def rows_of(page: str) -> list[PageRowLabels]:
    families = text_string_to_metric_families(page)
    # Each target's job is Prometheus' own.
    return [(each.name, {**each.labels, "job": "kubelet"}) for one in families for each in one.samples]


def selectors() -> list[tuple[str, str]]:
    return sorted({found for each in EXPRESSIONS for found in _SELECTOR.findall(each)})


def matching(rows: list[PageRowLabels], name: str, matchers: str) -> list[PageRowLabels]:
    wanted = _MATCHER.findall(matchers)
    return [
        row
        for row in rows
        if row[0] == name and all(_OPERATORS[by](row[1].get(label, ""), text) for label, by, text in wanted)
    ]


PAGE = (SAMPLES / "metrics-cadvisor.txt").read_text()
# Rows that this node's kubelet has not, as another's has them: for the same containers.
OF_OTHER_NODES = {
    "container_cpu_cfs_periods_total": "",
    "container_cpu_cfs_throttled_periods_total": "",
    **{
        f"container_fs_{way}_{what}": 'device="/dev/vda",'
        for way in ("reads", "writes")
        for what in ("total", "bytes_total")
    },
}


def page() -> str:
    containers = {
        line.partition("{")[2].rpartition("}")[0]
        for line in PAGE.splitlines()
        if line.startswith("container_memory_rss{")
    }
    return PAGE + "".join(
        f"{name}{{{labels}{block}}} 1\n"
        for (name, labels), block in itertools.product(OF_OTHER_NODES.items(), sorted(containers))
    )


@pytest.mark.parametrize(("name", "matchers"), selectors())
def test_a_stock_selector_finds_its_rows(name: str, matchers: str) -> None:
    text = page()
    index = OwnerIndex(owned_pods((SAMPLES / "pods.json").read_bytes(), POLICY)[0])
    kubelets = matching(rows_of(text), name, matchers)
    compared = 0
    for pod in index:
        tenants = matching(
            rows_of(tenants_page(CADVISOR, text.encode(), index, pod.tenant).decode()), name, matchers
        )
        wanted = {
            labels["container"]
            for _, labels in kubelets
            if (labels["namespace"], labels["pod"]) == (pod.super_namespace, pod.super_name)
            and (not labels["container"] or labels["container"] in pod.containers)
            # The sandbox of a pod has its image, and no name: see the specification.
            and (labels["container"] or 'image!=""' not in matchers)
        }
        found = {
            labels["container"]
            for _, labels in tenants
            if (labels["namespace"], labels["pod"]) == (pod.namespace, pod.name)
        }
        assert found == wanted
        compared += len(wanted)
    assert compared


def test_each_label_of_stock_rules_is_on_the_page_or_explained() -> None:
    """Also those that are of Prometheus' own targets, and of kube-state-metrics."""
    named = {label for _, matchers in selectors() for label, _, _ in _MATCHER.findall(matchers)}
    for group in re.findall(r"(?:by|on|group_left) ?\(([a-z_, ]+)\)", " ".join(EXPRESSIONS)):
        named |= set(group.split(", "))
    index = OwnerIndex(owned_pods((SAMPLES / "pods.json").read_bytes(), POLICY)[0])
    tenant = next(iter(index)).tenant
    served = {
        label
        for _, labels in rows_of(tenants_page(CADVISOR, page().encode(), index, tenant).decode())
        for label in labels
    }
    explained = {label for label in named - served if f"`{label}`" in SPEC.partition("## Metric pages")[2]}
    assert named - served - explained == set()
    assert {"image", "container", "namespace", "pod", "device"} <= named & served
