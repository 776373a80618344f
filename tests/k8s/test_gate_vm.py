# SPDX-License-Identifier: Apache-2.0
"""The gate in front of a guest with a kernel of its own: real containerd and kubelet ask, and the rules
that they wait for go into User-mode Linux.

The VM has our agent in its image; its credentials come by the node's other means (`kata_bridge/README.md`):
what stands for the VMM copies the three files of the sandbox.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

from tests.k8s.ring import gating, services
from tests.k8s.ring.api import JsonObject
from tests.k8s.ring.cluster import Ring
from tests.k8s.ring.daemons import credentials_of
from tests.k8s.ring.pods import container
from tests.k8s.ring.processes import wait_for
from tests.k8s.ring.serving import AGENT, OWN_IP, ServingNode, print_figure, serving
from tests.k8s.ring.tenants import RingTenant
from tests.k8s.ring.vm_guest import vm_of, watching

_NAME = "in-a-vm"
_BLOCKED_S, _BOOTED_S = 40.0, 60.0
# It ends on this signal, and the kubelet starts it again.
_UNTIL_ENDED = "until [ -e /tmp/end ]; do sleep 0.1; done"


@pytest.fixture(scope="module")
def node(ring: Ring) -> Iterator[ServingNode]:
    settings: JsonObject = {
        "directory": str(ring.directory / "pods-vm"),
        **gating.allow_bridge(ring),
    }
    with serving(ring, settings) as made:
        yield made


@pytest.mark.timeout(240)
def test_containers_wait_for_rules_in_a_guest_kernel(node: ServingNode, acme: RingTenant) -> None:
    spec = {"containers": [container("main", ["sh", "-c", _UNTIL_ENDED])]}
    with watching(node.ring, _NAME) as plugins:
        pod = gating.gated_pod(node.ring, acme, _NAME, AGENT, spec)
        try:
            with vm_of(pod, *plugins) as vm:
                uid = node.ring.super_cluster.api.get(pod.path)["metadata"]["uid"]
                gating.submit_resolver(node.ring, uid, gating.RESOLV_CONF)
                sandbox = vm.sandbox().id
                # The VM is not booted.
                words = (
                    "the pod's guest cannot be reached, so the Services of network default are not applied"
                )
                wait_for("blocked", lambda: words in gating.waiting(pod.status()), timeout_s=_BLOCKED_S)
                assert vm.rules_at_admission == []

                began_s = time.monotonic()
                vm.machine.start()
                vm.machine.share_credentials(credentials_of(node.bridge) / sandbox)
                pod.wait("Running")
                print_figure(f"from the VM's power on to the container: {time.monotonic() - began_s:.1f} s")
                # Read in the VM when the runtime had been allowed to make the container.
                (rules,) = vm.rules_at_admission
                assert OWN_IP in rules
                assert node.web_address(acme) in rules
                assert vm.fetch(OWN_IP) == "page of acme\n"
                # None of it is in the kernel that all pods share.
                assert "vcnode" not in services.rules_in(vm.namespace.path)
                assert "VCN-" not in vm.namespace.run("iptables-legacy-save")

                boot_id = vm.machine.output("cat", "/proc/sys/kernel/random/boot_id")
                attached = len(node.bridge.lines("guest attached", sandbox=sandbox))
                vm.machine.reboot()
                wait_for(
                    "attached again",
                    lambda: len(node.bridge.lines("guest attached", sandbox=sandbox)) > attached,
                    timeout_s=_BOOTED_S,
                )
                node.wait_current(sandbox)
                assert vm.machine.output("cat", "/proc/sys/kernel/random/boot_id") != boot_id
                assert vm.fetch(OWN_IP) == "page of acme\n"
                assert set(node.applied(sandbox).values()) == {2}, "once for each boot"

                pod.sh("touch /tmp/end")
                wait_for("started again", lambda: len(vm.rules_at_admission) == 2, timeout_s=_BLOCKED_S)
                assert OWN_IP in vm.rules_at_admission[1]
        finally:
            node.ring.super_cluster.api.delete(pod.path)
