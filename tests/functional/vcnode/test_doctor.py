# SPDX-License-Identifier: Apache-2.0
"""`vcnode doctor` as a process, on a node of real files, sockets and TLS servers with planted faults."""

import datetime as dt
import os
import socket
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from email.utils import formatdate

import pytest

from devkit.kubelet.replies import FakeReply
from devkit.pki import Authority
from tests.functional.healthy_node import DAY
from tests.functional.vcnode.sick_node import SickNode

NOW = dt.datetime.now(dt.UTC)


@pytest.fixture
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SickNode]:
    node = SickNode(tmp_path_factory.mktemp("n"))
    node.start()
    yield node
    node.stop()


@dataclass(frozen=True)
class PlantedFault:
    """`plant` breaks a healthy node. Doctor then has one finding: level and check, and these words in its
    message and its remedy."""

    plant: Callable[[SickNode], object]
    level: str
    check: str
    message: str
    remedy: str


def untrusted_kubelet(node: SickNode) -> None:
    Authority.create("another").write(node.directory, "kubelet-ca")


def misnamed_kubelet(node: SickNode) -> None:
    kubelet = node.files.documents["vn-agent"]["kubelet"]
    node.files.write_config("vn-agent", kubelet=kubelet | {"serverName": "node-2"})


def kubelet_says(code: int) -> Callable[[SickNode], object]:
    def plant(node: SickNode) -> None:
        node.kubelet.script = lambda seen: FakeReply(code) if seen.path == "/pods" else None

    return plant


def late_kubelet(node: SickNode) -> None:
    date = ("Date", formatdate(time.time() - 300, usegmt=True))
    node.kubelet.script = lambda _: FakeReply(headers=(date,))


def untrusted_apiserver(node: SickNode) -> None:
    node.files.super_authority = Authority.create("another")
    path = node.files.kubeconfig("dnsconfig")
    node.files.write_kubeconfig(path, node.super_authority.issue("dnsconfig"))


def unknown_credentials(node: SickNode) -> None:
    path = node.files.kubeconfig("kubeproxy-ext")
    node.files.write_kubeconfig(path, None, user={"token": "forged"})


def no_rights(node: SickNode) -> None:
    node.apiserver.authorize = lambda seen: seen.resource.plural != "endpointslices"


def exec_plugin(node: SickNode) -> None:
    plugin = {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "aws"}}
    node.files.write_kubeconfig(node.files.kubeconfig("dnsconfig"), None, user=plugin)


def ends_soon(node: SickNode) -> None:
    leaf = node.files.agent_clients.issue("agent", usages=("client",), not_after=NOW + 3 * DAY)
    leaf.write(node.directory, "agent")


def expired_spiffe(node: SickNode) -> None:
    authority = Authority.create("super", not_before=NOW - 3 * DAY, not_after=NOW - DAY)
    path = authority.write(node.directory, "spiffe")
    spiffe = {"caFile": str(path), "trustDomain": "super.example"}
    node.files.write_config("vn-agent", spiffe=spiffe)


def other_key(node: SickNode) -> None:
    (node.directory / "serving.key").write_bytes(node.files.serving.issue("x").key_pem)


def renewed_serving(node: SickNode) -> None:
    leaf = node.files.serving.issue("node-1", sans_dns=["node-1"], sans_ip=["127.0.0.1"])
    leaf.write(node.directory, "serving")


def loop(node: SickNode) -> None:
    (node.directory / "resolv.conf").write_text("nameserver 127.0.0.53\n")


def bad_tenant_file(node: SickNode) -> None:
    (node.directory / "tenants" / "ten-b.yaml").write_text("kind: Tenant\n")


def bad_tenant(node: SickNode) -> None:
    bad = {"source": "ten-b.yaml", "tenant": "ten-b", "reason": "no certificate in it"}
    node.daemons["vn-agent"].status["badTenants"] = [bad]


def unknown_key(node: SickNode) -> None:
    node.files.write_config("kubeproxy-ext", colour="red")


def never_started(node: SickNode) -> None:
    node.daemons["dnsconfig"].path.unlink()


def killed(node: SickNode) -> None:
    node.daemons["kubeproxy-ext"].stop()


def not_ready(node: SickNode) -> None:
    daemon = node.daemons["dnsconfig"]
    daemon.is_ready, daemon.readyz = False, "kata-bridge: not connected\n"


def guest(node: SickNode, **values: object) -> None:
    known = {"pod": "ten-a-shop/web", "tenant": "ten-a", "tenantPod": "shop/web", "state": "current"}
    node.daemons["kata-bridge"].status["guests"] = [known | values]


def locked_guest(node: SickNode) -> None:
    guest(node, state="notInjectable", message="the guest's agent policy denies SetIPTablesRequest")


def silent_guest(node: SickNode) -> None:
    guest(node, state="unreachable", message="the guest's agent has not attached", behindSeconds=600.0)


def old_guest(node: SickNode) -> None:
    guest(node, channel="agent", version="0.0.9")


def old_runtime(node: SickNode) -> None:
    node.daemons["kata-bridge"].status |= {"runtime": "containerd 2.1.4", "startGate": {"blocked": []}}


def old_daemon(node: SickNode) -> None:
    node.daemons["vn-agent"].version = "0.0.1"


def stolen_port(node: SickNode) -> None:
    node.daemons["vn-agent"].status["pid"] = 1


def no_nri(node: SickNode) -> None:
    (node.directory / "run" / "nri.sock").unlink()


def state(node: SickNode, text: str, age_s: float) -> None:
    directory = node.directory / "state" / "kubeproxy-ext"
    directory.mkdir(mode=0o700)
    path = directory / "ten-a.json"
    path.write_text(text)
    os.utime(path, (time.time() - age_s, time.time() - age_s))


def opened_state(node: SickNode) -> None:
    (node.directory / "state" / "dnsconfig").mkdir()
    (node.directory / "state" / "dnsconfig").chmod(0o777)


def no_audit_directory(node: SickNode) -> None:
    (node.directory / "audit").rmdir()


def socket_group(node: SickNode) -> None:
    listen = node.files.documents["kata-bridge"]["listen"]
    node.files.write_config("kata-bridge", listen=listen | {"group": "root"})
    (node.directory / "run" / "bridge.sock").chmod(0o600)


FAULTS = {
    "kubelet of another authority": PlantedFault(
        untrusted_kubelet, "failed", "kubelet", "certificate verify failed", "give kubelet.caFile the CA of"
    ),
    "kubelet of another name": PlantedFault(
        misnamed_kubelet, "failed", "kubelet", "Hostname mismatch", "set kubelet.serverName to a name"
    ),
    "kubelet that does not run": PlantedFault(
        lambda node: node.kubelet.pause(), "failed", "kubelet", "connection refused", "start the kubelet"
    ),
    "kubelet that refuses the certificate": PlantedFault(
        kubelet_says(401), "failed", "kubelet", "401", "issue kubelet.clientCertificateFile"
    ),
    "kubelet that grants nothing": PlantedFault(
        kubelet_says(403), "failed", "rights", "403 for /pods", "apply packaging/rbac/vn-agent.yaml"
    ),
    "clocks that differ": PlantedFault(
        late_kubelet, "failed", "clock", "ahead of that of kubelet", "start chrony or systemd-timesyncd"
    ),
    "API server of another authority": PlantedFault(
        untrusted_apiserver,
        "failed",
        "apiserver",
        "certificate verify failed",
        "that issued the API server's",
    ),
    "API server that does not know us": PlantedFault(
        unknown_credentials, "failed", "apiserver", "401", "renew the client certificate or token"
    ),
    "missing rights": PlantedFault(
        no_rights,
        "failed",
        "rights",
        "403 for /apis/discovery.k8s.io/v1/endpointslices",
        "apply packaging/rbac/kubeproxy-ext.yaml",
    ),
    "exec plugin": PlantedFault(
        exec_plugin, "failed", "file", "exec: credential plugins", "write a new one for this daemon"
    ),
    "certificate that expires soon": PlantedFault(
        ends_soon, "warning", "file", "kubelet.clientCertificateFile", "renew the certificate"
    ),
    "expired authority": PlantedFault(
        expired_spiffe, "failed", "file", "spiffe.caFile", "renew the certificate"
    ),
    "key of another certificate": PlantedFault(
        other_key, "failed", "file", "serving.keyFile", "write both at once"
    ),
    "certificate that was not reloaded": PlantedFault(
        renewed_serving, "warning", "serving", "shows another certificate", "systemctl reload vn-agent"
    ),
    "resolv.conf that leads to the pod": PlantedFault(
        loop, "warning", "file", "its nameserver 127.0.0.53", "name a file with the real servers"
    ),
    "bad file of a tenant": PlantedFault(
        bad_tenant_file, "failed", "file", "ten-b.yaml", "repair or remove the file"
    ),
    "tenant that is not served": PlantedFault(
        bad_tenant, "failed", "tenant", "no certificate in it; it is not served", "`vcnode tenant list`"
    ),
    "unknown key": PlantedFault(
        unknown_key,
        "failed",
        "configuration",
        "colour: unknown key",
        "kubeproxy-ext --config DIR/kubeproxy-ext",
    ),
    "daemon that never started": PlantedFault(
        never_started, "failed", "daemon", "No such file or directory", "systemctl status dnsconfig"
    ),
    "daemon that was killed": PlantedFault(
        killed, "failed", "daemon", "connection refused", "journalctl -u kubeproxy-ext"
    ),
    "daemon that is not ready": PlantedFault(
        not_ready, "failed", "readiness", "kata-bridge: not connected", "as the lines advise"
    ),
    "guest with a locked policy": PlantedFault(
        locked_guest, "failed", "guest", "agent policy denies", "set stock.policyFile"
    ),
    "guest that is away": PlantedFault(
        silent_guest, "failed", "guest", "unreachable for 10 min 0 s", "see the log of the guest's agent"
    ),
    "guest's agent of another release": PlantedFault(
        old_guest, "warning", "version", "its agent has version 0.0.9", "build the guest's image"
    ),
    "containerd that is too old": PlantedFault(
        old_runtime, "warning", "version", "containerd 2.1.4", "upgrade containerd to 2.2"
    ),
    "daemon of another release": PlantedFault(
        old_daemon, "warning", "version", "runs version 0.0.1", "systemctl restart vn-agent"
    ),
    "port that another process holds": PlantedFault(
        stolen_port, "failed", "port", f"pid {os.getpid()}", "stop that process"
    ),
    "runtime without NRI": PlantedFault(
        no_nri, "failed", "nri", "no NRI socket", "start the runtime, with NRI"
    ),
    "damaged state": PlantedFault(
        lambda node: state(node, "{", 0.0), "warning", "state", "it is damaged", "remove the file"
    ),
    "old state": PlantedFault(
        lambda node: state(node, "{}", 3 * 86_400.0),
        "warning",
        "state",
        "confirmed 3 d 0 h ago",
        "find out why kubeproxy-ext has not synced",
    ),
    "state that others can write": PlantedFault(
        opened_state, "failed", "file", "users other than its owner", "chmod go-w"
    ),
    "audit log without its directory": PlantedFault(
        no_audit_directory, "failed", "file", "audit.file", "create it, or correct the path"
    ),
    "socket closed to its group": PlantedFault(
        socket_group, "failed", "socket", "group root may not connect", "restart kata-bridge"
    ),
}


def test_a_healthy_node_has_no_finding(node: SickNode) -> None:
    assert node.doctor("--serving-ca", str(node.files.serving.write(node.directory, "ca"))) == (0, [], "")


@pytest.mark.parametrize("name", FAULTS)
def test_a_planted_fault_is_found_with_its_remedy(node: SickNode, name: str) -> None:
    fault = FAULTS[name]
    fault.plant(node)
    code, found, errors = node.doctor()
    assert (code, len(found), errors) == (1, 1, ""), found
    level, check, message, remedy = found[0]
    assert (level, check) == (fault.level, fault.check), found
    assert fault.message in message
    assert fault.remedy in remedy


def test_the_tenants_ca_is_compared_with_the_certificate(node: SickNode) -> None:
    other = Authority.create("another").write(node.directory, "other")
    code, found, _ = node.doctor("--serving-ca", str(other))
    assert (code, [each[:2] for each in found]) == (1, [("failed", "serving")]), found
    assert "the given CA does not verify its certificate" in found[0][2]


def test_a_peer_that_never_answers_is_bounded(node: SickNode) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        kubelet = node.files.documents["vn-agent"]["kubelet"]
        port = silent.getsockname()[1]
        node.files.write_config("vn-agent", kubelet=kubelet | {"port": port})
        code, found, _ = node.doctor()
    assert (code, [each[:3] for each in found]) == (
        1,
        [("failed", "kubelet", f"kubelet 127.0.0.1:{port}: no answer in time")],
    )


def test_an_apiserver_that_is_down_is_found_by_each_daemon(node: SickNode) -> None:
    node.stop_apiserver()
    code, found, _ = node.doctor()
    assert (code, {each[1] for each in found}, len(found)) == (1, {"apiserver"}, 6), found


def test_without_configuration_nothing_is_examined(node: SickNode) -> None:
    code, found, errors = node.doctor("--config-directory", "/nowhere")
    assert (code, found) == (3, [])
    assert "/nowhere has no configuration of a daemon: vn-agent.yaml" in errors
