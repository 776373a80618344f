# SPDX-License-Identifier: Apache-2.0
import json
import re

import pytest

from devkit.kubelet.pods import (
    MACHINE_ID,
    FakePod,
    cadvisor_page,
    page_for,
    pod_list,
    probes_page,
    resource_page,
    running_pod_list,
    summary,
)

SHOP = FakePod(
    "ten-a-web",
    "shop",
    "s-1",
    containers=("app",),
    init=("setup",),
    ephemeral=("dbg",),
    injected=("mesh-proxy",),
    annotations={"tenancy.x-k8s.io/cluster": "ten-a"},
)
ETCD = FakePod("kube-system", "etcd-node-1", "s-9", containers=("etcd",))
ROW = re.compile(r'[a-z_]+(\{([a-zA-Z_]+="([^"\\]|\\.)*",?)*\})? -?[0-9.e+-]+( [0-9]+)?')


def test_a_pod_lists_containers_by_kind() -> None:
    pod = pod_list([SHOP])["items"][0]
    names = {
        kind: [c["name"] for c in pod["spec"][kind]] for kind in pod["spec"] if kind.endswith("ontainers")
    }
    assert names == {
        "containers": ["app", "mesh-proxy"],
        "initContainers": ["setup"],
        "ephemeralContainers": ["dbg"],
    }
    assert pod["metadata"]["annotations"]["tenancy.x-k8s.io/cluster"] == "ten-a"
    assert SHOP.marker in json.dumps(pod["spec"])


def test_runningpods_lacks_annotations_and_init_containers() -> None:
    pod = running_pod_list([SHOP])["items"][0]
    assert set(pod["metadata"]) == {"name", "namespace", "uid", "creationTimestamp"}
    assert [c["name"] for c in pod["spec"]["containers"]] == ["app", "mesh-proxy", "dbg"]


def test_the_summary_has_data_that_must_not_leak() -> None:
    page = summary([SHOP, ETCD], "node-1")
    assert set(page["node"]) >= {"systemContainers", "rlimit", "runtime", "network"}
    first = page["pods"][0]
    assert first["volume"][0]["pvcRef"] == {"name": "shop-data", "namespace": "ten-a-web"}
    assert "futureField" in first


@pytest.mark.parametrize("page", [resource_page, cadvisor_page, probes_page])
def test_metrics_pages_parse(page: object) -> None:
    assert callable(page)
    text = page([SHOP, ETCD])
    assert text.endswith("\n")
    for line in text.splitlines():
        assert line.startswith("# ") or ROW.fullmatch(line), line
    assert 'pod="shop"' in text
    assert 'namespace="kube-system"' in text


def test_cadvisor_metrics_name_machine_and_cgroups() -> None:
    text = cadvisor_page([SHOP])
    assert MACHINE_ID in text
    assert 'id="/kubepods/burstable/pods-1/' in text


def test_each_path_has_its_page() -> None:
    assert page_for("/nothing", [SHOP], "node-1") is None
    assert page_for("/healthz", [SHOP], "node-1") == ("text/plain; charset=utf-8", b"ok")
    shut = page_for("/logs/", [SHOP], "node-1")
    assert shut is not None
    assert MACHINE_ID.encode() in shut[1]
