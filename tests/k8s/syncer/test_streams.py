# SPDX-License-Identifier: Apache-2.0
"""kubectl at the tenant's own apiserver reaches its running pods: vNodes lead to vn-agent."""

from __future__ import annotations

import re
import socket
from pathlib import Path

import pytest

from tests.k8s.ring.images import BUSYBOX
from tests.k8s.ring.processes import wait_for
from tests.k8s.syncer.shops import Shop, agnhost, pod, pod_spec

pytestmark = pytest.mark.timeout(300)


def _start(shop: Shop) -> None:
    script = f"echo page of {shop.tenant.key}"
    shop.apply(pod("web", pod_spec(script, "exec sleep 100000"), labels={"app": "web"}))


def test_logs_and_exec_in_both_tenants(shops: tuple[Shop, Shop]) -> None:
    for shop in shops:
        _start(shop)
    for shop in shops:
        shop.wait_running("app=web")
        assert shop.kubectl("logs", "web").check().text == f"page of {shop.tenant.key}\n"
        assert shop.sh("web", "echo one; echo two >&2; exit 3").code == 3
        done = shop.kubectl("exec", "-i", "web", "--", "cat", stdin=b"typed").check()
        assert done.text == "typed"


def test_copy_in_and_out(shop: Shop, tmp_path: Path) -> None:
    """`kubectl cp` runs tar in the container."""
    _start(shop)
    shop.wait_running("app=web")
    content = bytes(range(256)) * 4096
    source, target = tmp_path / "in", tmp_path / "out"
    source.write_bytes(content)
    shop.kubectl("cp", str(source), "web:/tmp/copied").check()
    shop.kubectl("cp", "web:/tmp/copied", str(target)).check()
    assert target.read_bytes() == content


def test_port_forward(shop: Shop) -> None:
    spec = {"containers": [agnhost("netexec", "--http-port=8080")], "terminationGracePeriodSeconds": 1}
    shop.apply(pod("web", spec, labels={"app": "web"}))
    shop.wait_running("app=web")
    forward = shop.kubectl.start("port-forward", "pod/web", ":8080")
    try:
        assert forward.stdout is not None
        line = forward.stdout.readline().decode()
        found = re.search(r"127\.0\.0\.1:(\d+)", line)
        assert found is not None, line
        connection = shop.tenant.kubectl.network.connect("127.0.0.1", int(found[1]))
        with connection:
            connection.sendall(b"GET /hostname HTTP/1.0\r\n\r\n")
            assert _all_of(connection).endswith(b"\r\n\r\nweb")
    finally:
        forward.terminate()
        forward.communicate(timeout=10)


def test_debug_with_an_ephemeral_container(shop: Shop) -> None:
    _start(shop)
    shop.wait_running("app=web")
    command = ("--image-pull-policy=Never", "--container=look", "--", "sh", "-c", "echo looked; sleep 100000")
    shop.kubectl("debug", "web", f"--image={BUSYBOX}", *command).check()

    def runs() -> bool:
        statuses = shop.get("pods", "web")["status"].get("ephemeralContainerStatuses", [])
        return any(s["name"] == "look" and "running" in s["state"] for s in statuses)

    shop.wait("the container runs, and its status is in the tenant", runs)
    assert shop.kubectl("logs", "web", "-c", "look").check().text == "looked\n"
    done = shop.kubectl("exec", "web", "-c", "look", "--", "sh", "-c", "echo from inside").check()
    assert done.text == "from inside\n"


def test_metrics_that_top_is_made_of(shop: Shop) -> None:
    """metrics-server reads this page of each node: the tenant's pods, by the tenant's names."""
    _start(shop)
    (web,) = shop.wait_running("app=web")
    page = f"/api/v1/nodes/{web['spec']['nodeName']}/proxy/metrics/resource"

    def has_pod() -> bool:
        text = shop.kubectl("get", "--raw", page).text
        expected = f'namespace="{shop.namespace}",pod="web"'
        return any("container_memory_working_set_bytes" in t and expected in t for t in text.splitlines())

    shop.wait("the pod's memory is on its node's page", has_pod)
    assert shop.tenant.key not in shop.kubectl("get", "--raw", page).check().text


def test_attach_reads_and_writes(shop: Shop) -> None:
    script = 'echo ready; while read -r line; do echo "received $line"; done; exec sleep 100000'
    spec = pod_spec(script)
    spec["containers"][0]["stdin"] = True
    shop.apply(pod("web", spec, labels={"app": "web"}))
    shop.wait_running("app=web")
    shop.kubectl("attach", "-i", "web", stdin=b"a word\n", timeout_s=30)
    wait_for(
        "the container read it",
        lambda: "received a word" in shop.kubectl("logs", "web").text,
        timeout_s=20,
    )


def test_vnodes_are_ready_and_lead_to_vn_agent(shops: tuple[Shop, Shop]) -> None:
    for shop in shops:
        _start(shop)
    for shop in shops:
        (web,) = shop.wait_running("app=web")
        node = shop.api.get(f"/api/v1/nodes/{web['spec']['nodeName']}")
        real = shop.super_api.get(f"/api/v1/nodes/{web['spec']['nodeName']}")
        assert node["metadata"]["labels"]["tenancy.x-k8s.io/virtualnode"] == "true"
        assert node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"] == 10550
        addresses = {a["address"] for a in node["status"]["addresses"] if a["type"] == "InternalIP"}
        assert addresses == {a["address"] for a in real["status"]["addresses"] if a["type"] == "InternalIP"}
        ready = [c["status"] for c in node["status"]["conditions"] if c["type"] == "Ready"]
        assert ready == ["True"]
        lease = shop.api.get(
            f"/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases/{web['spec']['nodeName']}"
        )
        assert lease["spec"]["renewTime"]


def _all_of(connection: socket.socket) -> bytes:
    received = bytearray()
    while chunk := connection.recv(65536):
        received += chunk
    return bytes(received)
