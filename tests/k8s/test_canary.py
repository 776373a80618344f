# SPDX-License-Identifier: Apache-2.0
"""The init container for nodes whose runtime has no NRI, as it is shipped."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml

from tests.k8s.ring import daemons, services
from tests.k8s.ring.api import JsonObject
from tests.k8s.ring.cluster import Ring
from tests.k8s.ring.daemons import NodeDaemon, ProxySettings
from tests.k8s.ring.images import BUSYBOX
from tests.k8s.ring.processes import wait_for
from tests.k8s.ring.serving import KATA, OWN_IP, web_address
from tests.k8s.ring.tenants import Tenant

_SHIPPED = Path(__file__).resolve().parents[2] / "packaging" / "canary" / "init-container.yaml"
_WAITS_S = 20.0


@pytest.fixture(scope="module")
def bridge(ring: Ring, acme: Tenant) -> Iterator[NodeDaemon]:
    """kata-bridge that hears of sandboxes by lists alone; it is not started yet."""
    services.create_runtime_classes(ring, KATA)
    made = daemons.kata_bridge(ring, sys.executable, has_nri=False)
    proxy = daemons.kubeproxy_ext(ring, sys.executable)
    daemons.configure_proxy(ring, proxy, ProxySettings(canary="192.0.2.61"))
    with ExitStack() as stack:
        stack.callback(made.stop)
        stack.callback(proxy.stop)
        proxy.start(is_ready=False)
        stack.enter_context(services.service(ring, acme, web_address(ring, acme), own_ip=OWN_IP))
        yield made


def with_canary(spec: JsonObject) -> JsonObject:
    """The pod with what is shipped as its first init container, from an image that the ring has."""
    (container,) = yaml.safe_load(_SHIPPED.read_text())["initContainers"]
    return {**spec, "initContainers": [{**container, "image": BUSYBOX, "imagePullPolicy": "Never"}]}


def test_a_pod_waits_for_its_rules_and_then_its_first_connection_works(
    ring: Ring, acme: Tenant, bridge: NodeDaemon
) -> None:
    with services.pod(ring, acme, KATA, with_canary(services.first_act(OWN_IP))) as pod:

        def said() -> str:
            log = ring.super_kubectl("logs", pod.name, "--namespace", pod.namespace, "-c", "vcnode-canary")
            return log.text

        wait_for("it says why it waits", lambda: "waiting: the Services" in said(), timeout_s=_WAITS_S)
        (init,) = pod.status()["initContainerStatuses"]
        assert "running" in init["state"]
        bridge.start()
        pod.wait("Succeeded")
        assert said().splitlines()[-1] == "the Services of this pod are in its guest"
        log = pod.log()
        assert log.startswith("page of acme\n")
        assert services.retransmitted(log) == 0
