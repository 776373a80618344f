# SPDX-License-Identifier: Apache-2.0
"""A row for each finding: the facts, and what doctor prints."""

from dataclasses import replace

import pytest

from daemonkit.remedies import Cause
from vcnode.core.doctor import diagnose
from vcnode.core.doctor_facts import (
    ConfigFile,
    DaemonAnswer,
    DoctorFacts,
    DoctorPage,
    GroupSocket,
    KernelState,
    ListenPort,
    NamedFile,
    PeerAnswer,
    Runtime,
    SavedFile,
    ServedCertificate,
    Space,
)

AGENT = DaemonAnswer(
    "vn-agent", "/run/a.sock", is_ready=True, page=DoctorPage("vn-agent", 7), version="1.0.0"
)
KUBELET = PeerAnswer(
    "vn-agent", "10.0.0.1:10250", "kubelet", codes=(("/healthz", 200), ("/pods", 200)), skew_s=-0.9
)
SERVER = PeerAnswer("dnsconfig", "10.0.0.9:6443", "superCluster.kubeconfigFile", codes=(("/version", 200),))
SERVED = ServedCertificate("10.0.0.1:10550", "/etc/serving.crt")
PORT = ListenPort("vn-agent", "listen.port", "0.0.0.0", 10550, 7, "vn-agent")  # noqa: S104 - a value
SPACE = Space("logs", "/var/log", 50 << 30, 100 << 30, 900, 1000)
SOCKET = GroupSocket("/run/b.sock", "vcnode", 990, 990, 0o660)
RUNTIME = Runtime("/run/nri.sock", True)
HEALTHY = DoctorFacts(
    version="1.0.0",
    configs=(ConfigFile("vn-agent", "/etc/vn-agent.yaml"),),
    daemons=(AGENT,),
    kubelet=KUBELET,
    api_servers=(SERVER,),
    served=SERVED,
    ports=(PORT,),
    saved=(SavedFile("dnsconfig", "/var/state.json", 60.0),),
    spaces=(SPACE,),
    socket=SOCKET,
    runtime=RUNTIME,
    kernel=KernelState(10, 1000),
)


def kubelet(**values: object) -> DoctorFacts:
    return replace(HEALTHY, kubelet=replace(KUBELET, **values))  # type: ignore[arg-type] # of its fields


def server(**values: object) -> DoctorFacts:
    return replace(HEALTHY, api_servers=(replace(SERVER, **values),))  # type: ignore[arg-type] # of its fields


def served(**values: object) -> DoctorFacts:
    return replace(HEALTHY, served=replace(SERVED, **values))  # type: ignore[arg-type] # of its fields


def space(free_bytes: int, free_inodes: int = 900) -> DoctorFacts:
    return replace(HEALTHY, spaces=(replace(SPACE, free_bytes=free_bytes, free_inodes=free_inodes),))


def test_a_healthy_node_has_no_finding() -> None:
    assert diagnose(HEALTHY) == ()


FILE = NamedFile("dnsconfig", "resolvConf", "/etc/r", "it does not exist", "repair it")
ROWS = [
    (
        replace(HEALTHY, configs=(ConfigFile("vn-agent", "/a.yaml", ("zone: unknown key",)),)),
        "failed configuration /a.yaml: zone: unknown key",
        "`vn-agent --config /a.yaml --check-config`",
    ),
    (
        replace(HEALTHY, files=(FILE,)),
        "failed file dnsconfig: resolvConf: /etc/r: it does not exist",
        "repair it",
    ),
    (
        replace(HEALTHY, files=(replace(FILE, is_warning=True),)),
        "warning file dnsconfig: resolvConf: /etc/r: it does not exist",
        "repair it",
    ),
    (
        kubelet(cause=Cause.UNTRUSTED, problem="certificate verify failed", codes=()),
        "failed kubelet kubelet 10.0.0.1:10250: certificate verify failed",
        "give kubelet.caFile the CA of the kubelet's serving certificate",
    ),
    (
        kubelet(cause=Cause.EXPIRED, problem="certificate verify failed", codes=()),
        "failed kubelet kubelet 10.0.0.1:10250: certificate verify failed",
        "renew the kubelet's serving certificate",
    ),
    (
        kubelet(codes=(("/healthz", 401), ("/pods", 401))),
        "failed kubelet kubelet 10.0.0.1:10250: 401: it does not know vn-agent's client certificate",
        "issue kubelet.clientCertificateFile",
    ),
    (
        kubelet(codes=(("/healthz", 403), ("/pods", 403))),
        "failed rights kubelet 10.0.0.1:10250: 403 for /pods: vn-agent lacks its rights",
        "apply packaging/rbac/vn-agent.yaml",
    ),
    (
        kubelet(codes=(("/pods", 500),)),
        "failed kubelet kubelet 10.0.0.1:10250: 500 for /pods",
        "see the kubelet's log",
    ),
    (
        kubelet(skew_s=30.0),
        "warning clock this node's clock is 30 s behind that of kubelet 10.0.0.1:10250",
        "start chrony",
    ),
    (
        server(skew_s=-90.0),
        "failed clock this node's clock is 1 min 30 s ahead of that of dnsconfig: API server 10.0.0.9:6443",
        "start chrony",
    ),
    (
        server(cause=Cause.REFUSED, problem="connection refused", codes=()),
        "failed apiserver dnsconfig: API server 10.0.0.9:6443: connection refused",
        "check that the API server runs, and `server` in superCluster.kubeconfigFile",
    ),
    (
        server(codes=(("/version", 401),)),
        "failed apiserver dnsconfig: API server 10.0.0.9:6443: 401: it does not know these credentials",
        "renew the client certificate or token in superCluster.kubeconfigFile",
    ),
    (
        server(codes=(("/version", 200), ("/api/v1/pods", 403))),
        "failed rights dnsconfig: API server 10.0.0.9:6443: 403 for /api/v1/pods",
        "apply packaging/rbac/dnsconfig.yaml",
    ),
    (
        served(problem="connection refused"),
        "failed serving vn-agent 10.0.0.1:10550: no TLS handshake: connection refused",
        "see vn-agent's log",
    ),
    (
        served(is_current=False),
        "warning serving vn-agent 10.0.0.1:10550 shows another certificate than /etc/serving.crt has",
        "systemctl reload vn-agent",
    ),
    (
        served(untrusted="unable to get issuer"),
        "failed serving vn-agent 10.0.0.1:10550: the given CA does not verify its certificate: unable to get"
        " issuer",
        "issue serving.certificateFile by the tenants' kubelet CA",
    ),
    (
        served(missing_name="10.0.0.1"),
        "failed serving /etc/serving.crt has no name 10.0.0.1, which tenants' apiservers dial",
        "issue it with this address",
    ),
    (
        replace(HEALTHY, ports=(replace(PORT, holder_pid=12, holder="nginx"),)),
        "failed port vn-agent: listen.port 10550 is held by nginx, pid 12",
        "stop that process, or give vn-agent another listen.port",
    ),
    (
        replace(HEALTHY, saved=(SavedFile("dnsconfig", "/s.json", 0.0, "it is damaged: not JSON"),)),
        "warning state dnsconfig: saved state /s.json: it is damaged: not JSON",
        "remove the file: dnsconfig writes it anew",
    ),
    (
        replace(HEALTHY, saved=(SavedFile("dnsconfig", "/s.json", 90_000.0),)),
        "warning state dnsconfig: saved state /s.json was confirmed 1 d 1 h ago",
        "find out why dnsconfig has not synced",
    ),
    (space(1 << 20), "failed disk logs /var/log: 1 MiB free", "free space below /var/log"),
    (space(4 << 30), "warning disk logs /var/log: 4096 MiB free, 4%", "free space below /var/log"),
    (space(50 << 30, 40), "warning disk logs /var/log: 40 inodes free", "remove files"),
    (space(50 << 30, 0), "failed disk logs /var/log: 0 inodes free", "remove files"),
    (
        replace(HEALTHY, socket=replace(SOCKET, owner_group_id=0)),
        "failed socket /run/b.sock belongs to group 0, not to vcnode",
        "restart kata-bridge",
    ),
    (
        replace(HEALTHY, socket=replace(SOCKET, mode=0o600)),
        "failed socket /run/b.sock has mode 0600: group vcnode may not connect",
        "restart kata-bridge",
    ),
    (
        replace(HEALTHY, runtime=replace(RUNTIME, has_socket=False)),
        "failed nri the container runtime has no NRI socket /run/nri.sock",
        "start the runtime, with NRI enabled",
    ),
    (
        replace(
            HEALTHY, runtime=replace(RUNTIME, has_socket=False, disabled_in="/etc/containerd/config.toml")
        ),
        "failed nri NRI is disabled in /etc/containerd/config.toml",
        "set disable = false",
    ),
    (
        replace(HEALTHY, kernel=KernelState(950, 1000)),
        "warning conntrack the conntrack table has 950 of 1000 entries: new connections are dropped at"
        " the limit",
        "raise net.netfilter.nf_conntrack_max",
    ),
    (
        replace(HEALTHY, kernel=KernelState(1000, 1000)),
        "failed conntrack the conntrack table has 1000 of 1000 entries: new connections are dropped at"
        " the limit",
        "raise net.netfilter.nf_conntrack_max",
    ),
    (
        replace(HEALTHY, kernel=KernelState(lock_problem="/run/xtables.lock is a directory; remove it")),
        "failed xtables the xtables lock cannot be used: /run/xtables.lock is a directory; remove it",
        "mount /run writable for kata-bridge",
    ),
    (replace(HEALTHY, late=("kubelet",)), "unknown probe kubelet: no result in time", "run it again"),
]


@pytest.mark.parametrize(("facts", "text", "remedy"), ROWS, ids=[row[1][:50] for row in ROWS])
def test_each_fault_has_one_finding_and_its_remedy(facts: DoctorFacts, text: str, remedy: str) -> None:
    (found,) = diagnose(facts)
    assert f"{found.level.value} {found.check} {found.message}" == text
    assert remedy in found.remedy


def test_warnings_of_absent_sockets_are_left_to_the_probes() -> None:
    absent = replace(FILE, key="bridge.socket", is_warning=True)
    assert diagnose(replace(HEALTHY, files=(absent,))) == ()


def test_a_daemon_that_is_down_is_one_finding() -> None:
    """Its port and its certificate are not findings of their own then."""
    down = replace(AGENT, problem="connection refused", is_ready=False, page=None, version="")
    facts = replace(served(problem="connection refused"), daemons=(down,), ports=())
    assert [each.check for each in diagnose(facts)] == ["daemon"]


def test_a_port_without_a_visible_holder_is_no_finding() -> None:
    assert diagnose(replace(HEALTHY, ports=(replace(PORT, holder_pid=0),))) == ()
