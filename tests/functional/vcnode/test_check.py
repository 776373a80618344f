# SPDX-License-Identifier: Apache-2.0
"""`vcnode check` beside a fake runtime and a fake kubelet, and what it reads of a machine."""

import asyncio
import json
import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from devkit.kata.fake_cri import FakeCri
from tests.functional.vcnode.sick_node import ROOT, SickNode
from vcnode import machine, node_facts, node_probes
from vcnode.core.doctor_facts import KernelState, ListenPort, Runtime


@pytest.fixture
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SickNode]:
    node = SickNode(tmp_path_factory.mktemp("n"))
    node.start()
    yield node
    node.stop()


async def check(node: SickNode, *arguments: str) -> tuple[int, dict[str, list[tuple[str, str]]]]:
    """Exit code; level and message of each result, by check."""
    command = [
        sys.executable,
        "-m",
        "vcnode",
        "check",
        "--config-directory",
        str(node.directory),
        "-o",
        "json",
    ]
    command += ["--nri-socket", str(node.directory / "run" / "nri.sock"), *arguments]
    process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdout=asyncio.subprocess.PIPE)
    async with asyncio.timeout(60):
        out, _ = await process.communicate()
    found: dict[str, list[tuple[str, str]]] = {}
    for each in json.loads(out.decode().replace(str(node.directory), "DIR"))["items"]:
        assert (each["level"] == "ok") == (each["remedy"] == ""), each
        found.setdefault(each["check"], []).append((each["level"], each["message"]))
    assert process.returncode is not None
    return process.returncode, found


@pytest.mark.asyncio
async def test_runtime_kubelet_and_configurations_are_examined(node: SickNode) -> None:
    cri = node.directory / "cri.sock"
    async with FakeCri(cri):
        _, found = await check(node, "--cri-socket", str(cri))
    assert found["runtime"] == [("ok", "containerd v2.2.0")]
    assert found["nri"] == [("ok", "DIR/run/nri.sock")]
    assert found["kubelet"] == [("ok", f"127.0.0.1:{node.kubelet.port} answers")]
    assert {level for level, _ in found["configuration"]} == {"ok"}
    assert len(found["configuration"]) == 7
    (port,) = found["port"]
    # The test process serves in the place of vn-agent.
    assert port[0] == "failed"
    assert f"for vn-agent is held by {machine.PROC.joinpath('self/comm').read_text().strip()}, pid" in port[1]


@pytest.mark.asyncio
async def test_faults_of_the_node_fail_the_check(node: SickNode) -> None:
    node.kubelet.pause()
    (node.directory / "run" / "nri.sock").unlink()
    (node.directory / "resolv.conf").unlink()
    node.files.write_config("vc-syncer", colour="red")
    code, found = await check(node, "--cri-socket", str(node.directory / "none.sock"))
    assert code == 1
    assert found["runtime"] == [("failed", "DIR/none.sock: no such socket")]
    assert found["nri"] == [("failed", "the container runtime has no NRI socket DIR/run/nri.sock")]
    assert found["kubelet"] == [("failed", f"127.0.0.1:{node.kubelet.port}: connection refused")]
    failures = sorted(message for level, message in found["configuration"] if level == "failed")
    assert failures == [
        "DIR/vc-syncer.yaml: colour: unknown key",
        "dnsconfig-webhook: resolvConf: DIR/resolv.conf: it does not exist",
        "dnsconfig: resolvConf: DIR/resolv.conf: it does not exist",
    ]


# ---- what is read of a machine


def test_the_holder_of_a_port_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = ListenPort("vn-agent", "listen.port", "127.0.0.1", listener.getsockname()[1])
        (held,) = machine.port_holders([port])
        assert (held.holder_pid, held.holder != "") == (os.getpid(), True)
        assert not machine.is_port_free("127.0.0.1", port.port)
    assert machine.is_port_free("127.0.0.1", port.port)


@pytest.mark.parametrize(
    ("text", "disabled"),
    [
        ('[plugins."io.containerd.nri.v1.nri"]\ndisable = true\n', True),
        ('[plugins."io.containerd.nri.v1.nri"]\ndisable = false\n', False),
        ("version = 3\n", False),
        ("plugins = 1\n", False),
        ("not toml", False),
    ],
)
def test_nri_is_off_where_containerd_disables_it(tmp_path: Path, text: str, disabled: bool) -> None:
    config = tmp_path / "config.toml"
    config.write_text(text)
    path = tmp_path / "nri.sock"
    assert machine.nri(path, config) == Runtime(str(path), False, str(config) if disabled else "")
    path.touch()
    assert machine.nri(path, config) == Runtime(str(path), True)


def test_conntrack_and_the_xtables_lock_are_read(tmp_path: Path) -> None:
    netfilter = tmp_path / "sys" / "net" / "netfilter"
    lock = tmp_path / "run" / "xtables.lock"
    assert machine.kernel_state(tmp_path, lock) == KernelState(None, None)
    netfilter.mkdir(parents=True)
    (netfilter / "nf_conntrack_count").write_text("12\n")
    (netfilter / "nf_conntrack_max").write_text("1024\n")
    missing = KernelState(12, 1024, f"{lock.parent} does not exist")
    assert machine.kernel_state(tmp_path, lock, needs_lock=True) == missing
    lock.mkdir(parents=True)
    directory = KernelState(12, 1024, f"{lock} is a directory; remove it")
    assert machine.kernel_state(tmp_path, lock, needs_lock=True) == directory
    lock.rmdir()
    assert machine.kernel_state(tmp_path, lock, needs_lock=True) == KernelState(12, 1024)


def test_a_part_of_the_kernel_is_found_where_it_is(tmp_path: Path) -> None:
    assert node_facts.kernel_part("nf_tables", tmp_path) is None
    modules = tmp_path / "lib" / "modules" / os.uname().release
    modules.mkdir(parents=True)
    (modules / "modules.dep").write_text("kernel/net/netfilter/nf_tables.ko.zst: kernel/x.ko\n")
    assert node_facts.kernel_part("nf_tables", tmp_path) is True
    assert node_facts.kernel_part("nf_conntrack", tmp_path) is False
    (tmp_path / "sys" / "module" / "nf_conntrack").mkdir(parents=True)
    assert node_facts.kernel_part("nf_conntrack", tmp_path) is True


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("serverTLSBootstrap: true\n", True),
        ("kind: KubeletConfiguration\n", False),
        ("[", None),
        (None, None),
    ],
)
def test_the_kubelets_configuration_is_read(tmp_path: Path, text: str | None, expected: bool | None) -> None:
    config = tmp_path / "config.yaml"
    if text is not None:
        config.write_text(text)
    assert node_facts.kubelet_state(("127.0.0.1", 1), config).has_tls_bootstrap is expected


def test_a_probe_that_hangs_is_reported_as_late() -> None:
    never = socket.socketpair()
    try:
        results, late = node_probes.run_probes({"one": lambda: 1, "stuck": lambda: never[0].recv(1)}, 0.5)
        assert (results, late) == ({"one": 1}, ("stuck",))
        assert node_facts.is_clock_synchronized() in (True, False, None)
    finally:
        for each in never:
            each.close()
