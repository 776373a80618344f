# SPDX-License-Identifier: Apache-2.0
"""A row for each check: the facts, and what `vcnode check` prints."""

from dataclasses import replace

import pytest

from vcnode.core.doctor_facts import ListenPort, Runtime, Space
from vcnode.core.findings import Level
from vcnode.core.node_check import (
    KERNEL_PARTS,
    ContainerRuntime,
    KubeletState,
    NodeFacts,
    PortState,
    judge,
)

PORT = ListenPort("vn-agent", "listen.port", "10.0.0.1", 10550)
RUNTIME = ContainerRuntime("/c.sock", "containerd", "v2.2.1")
KUBELET = KubeletState("127.0.0.1:10250", has_tls_bootstrap=True, config="/kubelet.yaml")
SPACE = Space("state", "/var/lib", 1 << 30, 2 << 30, 5, 10)
FIT = NodeFacts(
    python=(3, 11),
    kernel=dict.fromkeys(KERNEL_PARTS, True),
    runtime=RUNTIME,
    nri=Runtime("/nri.sock", True),
    kubelet=KUBELET,
    ports=(PortState(PORT, True),),
    is_clock_synchronized=True,
    spaces=(SPACE,),
    service_proxies=("kube-proxy",),
)


def test_a_fit_node_passes_each_check() -> None:
    assert [(each.level.value, each.check, each.message, each.remedy) for each in judge(FIT)] == [
        ("ok", "python", "Python 3.11", ""),
        ("ok", "kernel", "nf_tables", ""),
        ("ok", "kernel", "nf_conntrack", ""),
        ("ok", "kernel", "vhost_vsock", ""),
        ("ok", "runtime", "containerd v2.2.1", ""),
        ("ok", "nri", "/nri.sock", ""),
        ("ok", "kubelet", "127.0.0.1:10250 answers", ""),
        (
            "ok",
            "kubelet-certificate",
            "serverTLSBootstrap in /kubelet.yaml: kubelet.caFile is the cluster's CA",
            "",
        ),
        ("ok", "accounts", "users and groups exist", ""),
        ("ok", "port", "10.0.0.1:10550 for vn-agent is free", ""),
        ("ok", "clock", "synchronized", ""),
        ("ok", "disk", "state /var/lib: 1024 MiB free", ""),
        ("ok", "descriptors", "hard limit of 65536 open files", ""),
        (
            "ok",
            "service-proxy",
            "kube-proxy runs; it serves the node and pods without rules of their own",
            "",
        ),
    ]


def runtime(**values: str) -> NodeFacts:
    return replace(FIT, runtime=replace(RUNTIME, **values))


def wanted(**values: object) -> NodeFacts:
    port = replace(PORT, **values)  # type: ignore[arg-type] # of its fields
    return replace(FIT, ports=(PortState(port, False),))


ROWS = [
    (replace(FIT, python=(3, 9)), "failed python Python 3.9", "install Python 3.11 or newer"),
    (
        replace(FIT, kernel={"nf_tables": False}),
        "warning kernel nf_tables: this kernel has no such module",
        "`modprobe nf_tables`",
    ),
    (
        replace(FIT, kernel={"vhost_vsock": None}),
        "unknown kernel vhost_vsock: this kernel's modules are not listed here",
        "look with `modprobe -n vhost_vsock`",
    ),
    (
        runtime(problem="no such socket"),
        "failed runtime /c.sock: no such socket",
        "start the container runtime",
    ),
    (runtime(version="1.6.9"), "failed runtime containerd 1.6.9 has no NRI", "upgrade containerd to 2.2"),
    (
        runtime(version="v2.1.0"),
        "warning runtime containerd v2.1.0: a container starts if the start gate answers too late",
        "upgrade containerd to 2.2",
    ),
    (runtime(name="cri-o"), "warning runtime cri-o v2.2.1: not tested with vcnode", "use containerd 2.2"),
    (
        replace(FIT, nri=Runtime("/nri.sock", False)),
        "failed nri the container runtime has no NRI socket /nri.sock",
        "start the runtime, with NRI enabled",
    ),
    (
        replace(FIT, nri=Runtime("/nri.sock", False, "/c.toml")),
        "failed nri NRI is disabled in /c.toml",
        "set disable = false",
    ),
    (
        replace(FIT, kubelet=replace(KUBELET, problem="connection refused")),
        "failed kubelet 127.0.0.1:10250: connection refused",
        "start the kubelet",
    ),
    (
        replace(FIT, kubelet=replace(KUBELET, has_tls_bootstrap=False)),
        "warning kubelet-certificate no serverTLSBootstrap in /kubelet.yaml: the kubelet signs its serving"
        " certificate itself",
        "/var/lib/kubelet/pki/kubelet.crt",
    ),
    (
        replace(FIT, missing_users=("dnsconfig",)),
        "failed accounts user dnsconfig does not exist",
        "useradd --system",
    ),
    (
        replace(FIT, missing_groups=("vcnode",)),
        "failed accounts group vcnode does not exist",
        "groupadd --system vcnode",
    ),
    (
        wanted(holder_pid=12, holder="nginx"),
        "failed port 10.0.0.1:10550 for vn-agent is held by nginx, pid 12",
        "stop that process, or give vn-agent another listen.port",
    ),
    (wanted(), "failed port 10.0.0.1:10550 for vn-agent is held by another process", "ss -ltnp"),
    (replace(FIT, is_clock_synchronized=False), "warning clock not synchronized", "start chrony"),
    (
        replace(FIT, is_clock_synchronized=None),
        "unknown clock the kernel does not tell whether it is synchronized",
        "timedatectl",
    ),
    (
        replace(FIT, spaces=(replace(SPACE, free_bytes=1 << 20),)),
        "failed disk state /var/lib: 1 MiB free",
        "free space below /var/lib",
    ),
    (
        replace(FIT, spaces=(replace(SPACE, free_bytes=100 << 20),)),
        "warning disk state /var/lib: 100 MiB free, less than 256 MiB",
        "free space below /var/lib",
    ),
    (
        replace(FIT, spaces=(replace(SPACE, free_inodes=0),)),
        "failed disk state /var/lib: no inodes free",
        "free space below /var/lib",
    ),
    (
        replace(FIT, descriptors=1024),
        "warning descriptors hard limit of 1024 open files",
        "set LimitNOFILE=65536",
    ),
    (
        replace(FIT, old_agents=("vn-agent, pid 9",)),
        "failed old-agent vn-agent, pid 9 runs",
        "stop it before",
    ),
]


@pytest.mark.parametrize(("facts", "text", "remedy"), ROWS, ids=[row[1][:50] for row in ROWS])
def test_each_misfit_has_one_result_and_its_remedy(facts: NodeFacts, text: str, remedy: str) -> None:
    (found,) = (each for each in judge(facts) if each.level is not Level.OK)
    assert f"{found.level.value} {found.check} {found.message}" == text
    assert remedy in found.remedy


def test_a_port_that_its_daemon_holds_is_ok() -> None:
    held = PortState(replace(PORT, holder_pid=7, holder="vn-agent"), False, is_ours=True)
    assert {each.level for each in judge(replace(FIT, ports=(held,)))} == {Level.OK}
