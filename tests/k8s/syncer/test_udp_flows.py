# SPDX-License-Identifier: Apache-2.0
"""UDP flows of a guest to Services that change while nobody watches them."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from tests.k8s.ring import daemons
from tests.k8s.ring.api import JsonObject
from tests.k8s.ring.daemons import NodeDaemon
from tests.k8s.ring.processes import RingError, run
from tests.k8s.ring.serving import KATA, sandbox_of
from tests.k8s.syncer import policies
from tests.k8s.syncer.cluster import SyncedRing
from tests.k8s.syncer.node import SuperNode
from tests.k8s.syncer.shops import Shop, agnhost, object_of, pod, pod_spec

pytestmark = pytest.mark.timeout(300)

_CLASSES = "/apis/node.k8s.io/v1/runtimeclasses"
_PORT = 8081
# Sends from a port of its own, for which its namespace has one flow to each destination.
_ASK = """
import socket, sys
with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
    one.bind(("0.0.0.0", 40000))
    one.settimeout(2)
    one.sendto(b"hostname", (sys.argv[1], int(sys.argv[2])))
    sys.stdout.write(one.recv(100).decode())
"""


@pytest.fixture
def proxy(synced_ring: SyncedRing) -> Iterator[NodeDaemon]:
    """kubeproxy-ext of the first node, which has kata-bridge too, and where pods are guests."""
    api, node = synced_ring.super_cluster.api, synced_ring.nodes[0]
    with ExitStack() as stack:
        api.create(_CLASSES, object_of("node.k8s.io/v1", "RuntimeClass", KATA, handler=KATA))
        stack.callback(api.delete, f"{_CLASSES}/{KATA}")
        stack.enter_context(policies.applied(api, pods={"runtimeClass": KATA}))
        made = [maker(node, sys.executable) for maker in (daemons.kata_bridge, daemons.kubeproxy_ext)]
        for daemon in made:
            stack.callback(daemon.stop)
            daemon.start()
        yield made[1]


def test_flows_end_with_what_went_unwatched(proxy: NodeDaemon, shop: Shop) -> None:
    """By the tenant's own addresses, which nobody but the guest's own rules translates."""
    node = shop.ring.nodes[0]
    there = {"nodeSelector": {"kubernetes.io/hostname": node.name}}
    server = {"containers": [agnhost("netexec", f"--udp-port={_PORT}")], "terminationGracePeriodSeconds": 1}
    shop.apply(
        *(_service(name) for name in ("stays", "dropped", "deleted")),
        pod("web", server, labels={"app": "web"}),
        pod("guest", pod_spec(**there), labels={"app": "guest"}),
    )
    shop.wait_running("app=web")
    shop.wait_running("app=guest")
    guest = _network_of(shop, node)
    _keep_flows(guest)
    own = {name: shop.get("services", name)["spec"]["clusterIP"] for name in ("stays", "dropped", "deleted")}
    for name, address in own.items():
        shop.wait(f"{name} answers", partial(_is_answered, guest, address))
    assert _flows(guest) == {(address, _PORT) for address in own.values()}
    proxy.stop()
    shop.kubectl("delete", "service", "deleted").check()
    port = {"name": "other", "protocol": "UDP", "port": _PORT + 1, "targetPort": _PORT}
    shop.api.patch(shop.path("services", "dropped"), {"spec": {"ports": [port]}})
    shop.wait_gone("services", "deleted")
    shop.wait("the port has gone below", lambda: _ports_below(shop, "dropped") == [_PORT + 1])
    assert _flows(guest) == {(address, _PORT) for address in own.values()}
    proxy.start()
    shop.wait("their flows have ended", lambda: _flows(guest) == {(own["stays"], _PORT)})


def _service(name: str) -> JsonObject:
    spec = {"selector": {"app": "web"}, "ports": [{"name": "udp", "protocol": "UDP", "port": _PORT}]}
    return object_of("v1", "Service", name, spec=spec)


def _ports_below(shop: Shop, name: str) -> list[int]:
    found = shop.in_super("services", name)
    return [] if found is None else [int(each["port"]) for each in found["spec"]["ports"]]


def _network_of(shop: Shop, node: SuperNode) -> Path:
    """The network namespace of the guest, as it is reached from here."""
    return node.node.outside(sandbox_of(node.node, shop.super_namespace, "guest").netns)


def _keep_flows(guest: Path) -> None:
    """The kernel forgets a flow that is silent for 30 s, which this test may be."""
    timeout = "/proc/sys/net/netfilter/nf_conntrack_udp_timeout"
    run(["nsenter", f"--net={guest}", "tee", timeout, f"{timeout}_stream"], stdin=b"600")


def _is_answered(guest: Path, address: str) -> bool:
    """Whether the server is behind an address, by a flow of the guest."""
    argv = ["nsenter", f"--net={guest}", sys.executable, "-c", _ASK, address, str(_PORT)]
    try:
        return run(argv, timeout_s=10) == b"web"
    except RingError:
        return False


def _flows(guest: Path) -> set[tuple[str, int]]:
    """The original destinations of the guest's UDP flows to addresses of its tenant."""
    listed = run(["nsenter", f"--net={guest}", "conntrack", "-L", "-p", "udp"]).decode()
    return {(ip, int(port)) for ip, port in re.findall(r"dst=(10\.32\.\S+) sport=\d+ dport=(\d+)", listed)}
