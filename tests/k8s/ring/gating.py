# SPDX-License-Identifier: Apache-2.0
"""Fixtures for tests of the start gate: a client that submits resolvers, a DNS server, and kata-bridge's
rights in the super cluster as shipped."""

from __future__ import annotations

import asyncio
import sys
from dataclasses import replace

from bridge_api.client import BridgeClient
from bridge_api.messages import GuestResult, SetResolvConfRequest
from tests.k8s.ring import services, shipped
from tests.k8s.ring.api import JsonObject, KubernetesApi
from tests.k8s.ring.cluster import Ring
from tests.k8s.ring.daemons import DaemonHost, bridge_socket
from tests.k8s.ring.pods import container
from tests.k8s.ring.processes import RingProcess
from tests.k8s.ring.tenants import RingTenant

# The bridge that CNI makes on the node: the first address that a pod can reach.
DNS_ADDRESS = "10.88.0.1"
DNS_NAME = "first.connection.test"
RESOLV_CONF = f"nameserver {DNS_ADDRESS}\noptions timeout:1 attempts:1\n"
REQUIRED = {"required-plugins.noderesource.dev": "[vcnode]"}
LACKS_PLUGIN = 'required plugin "vcnode" not present'
_DNS_PORT = 53

# Answers each query for an IPv4 address with the same address.
_DNS_SERVER = """
import socket
s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
s.bind(("0.0.0.0", 53))
while True:
    q, peer = s.recvfrom(512)
    end = q.index(b"\\0", 12) + 5
    is_a = q[end - 4:end - 2] == b"\\0\\1"
    head = q[:2] + b"\\x85\\x80\\0\\1\\0" + (b"\\1" if is_a else b"\\0") + b"\\0\\0\\0\\0"
    record = b"\\xc0\\x0c\\0\\1\\0\\1\\0\\0\\0\\5\\0\\4\\x0a\\x58\\0\\1" if is_a else b""
    s.sendto(head + q[12:end] + record, peer)
"""


def start_dns_server(ring: Ring) -> RingProcess:
    """Start it on the node; stop it when done."""
    argv = [*ring.node.enter, sys.executable, "-c", _DNS_SERVER]
    return RingProcess("dns", argv, ring.directory / "dns.log", enters_pid_namespace=True)


def allow_bridge(ring: DaemonHost) -> JsonObject:
    """Give kata-bridge its shipped rights; returns its settings below `gate`."""
    kubeconfig = shipped.let_in(
        ring.super_cluster, "kata-bridge", ring.node.name, ring.directory / "kata-bridge"
    )
    return {
        "superCluster.kubeconfigFile": str(kubeconfig),
        "superCluster.nodeName": ring.node.name,
    }


def as_bridge(ring: Ring, node: str = "") -> KubernetesApi:
    """The super cluster with the credentials of the bridge of a node, by default the ring's."""
    user = shipped.issue_user(ring.super_cluster, "kata-bridge", node or ring.node.name)
    return KubernetesApi(replace(ring.super_cluster.api.endpoint, leaf=user))


def first_connection(
    ip: str, server: str = DNS_ADDRESS, page: str = "acme", *, has_agent: bool = False
) -> JsonObject:
    """A pod that connects and looks up a name at once; its termination message has the failures.

    `server` must be in its resolv.conf, and `page` must be served at `ip`. Each is tried once: a packet
    that is earlier than its rules is a failure. The kernel counts the SYNs that the namespace sent again,
    with `has_agent` also our agent's to a busy node. There the duration decides: a connection's first
    packet is retransmitted after a second.
    """
    is_late = "$(awk -v began=$began '{ print ($1 - began >= 1) }' /proc/uptime)" if has_agent else "1"
    script = f"""
began=$(cut -d ' ' -f 1 /proc/uptime)
page=$(printf 'GET / HTTP/1.0\\r\\n\\r\\n' | nc -w 2 {ip} {services.PORT} 2>&1 | tail -n 1)
[ "$page" = 'page of {page}' ] || echo "connect: $page" >> /dev/termination-log
is_late={is_late}
name=$(nslookup -retry=1 -timeout=3 -type=a {DNS_NAME} 2>&1) || echo "lookup: $name" >> /dev/termination-log
again=$(awk '/^TcpExt:/ {{ for (i = 1; i <= NF; i++) if ($i == "TCPSynRetrans") at = i; n = $at }}
  END {{ print n }}' /proc/net/netstat)
[ "$again" = 0 ] || [ $is_late = 0 ] || echo "sent again: $again" >> /dev/termination-log
grep -q '^nameserver {server}$' /etc/resolv.conf || cat /etc/resolv.conf >> /dev/termination-log
"""
    return {"restartPolicy": "Never", "containers": [container("main", ["sh", "-c", script])]}


def gated_pod(
    ring: Ring,
    tenant: RingTenant,
    name: str,
    handler: str,
    spec: JsonObject,
    *,
    namespace: str = "",
    network: str = "",
) -> services.TenantPod:
    """Create a tenant's pod that requires the plugin; without a `network` it is in the default one."""
    value = services.pod_value(tenant, name, ring.node.name, handler, spec, network)
    value["metadata"]["annotations"] |= REQUIRED
    made = services.TenantPod(ring, namespace or tenant.super_namespace("default"), name)
    ring.super_cluster.api.create(made.path.rpartition("/")[0], value)
    return made


def waiting(status: JsonObject) -> str:
    """Why the first container of a pod waits; empty if it does not."""
    statuses = status.get("containerStatuses") or [{}]
    state = statuses[0].get("state", {}).get("waiting", {})
    return f"{state.get('reason', '')}: {state.get('message', '')}" if state else ""


def submit_resolver(ring: Ring, uid: str, text: str, wait_message: str = "") -> GuestResult:
    """Call SetResolvConf once."""

    async def submit() -> GuestResult:
        async with BridgeClient(bridge_socket(ring), timeout_s=5) as bridge:
            return await bridge.set_resolv_conf(
                SetResolvConfRequest("", text, wait_message=wait_message, pod_uid=uid)
            )

    return asyncio.run(submit())
