# SPDX-License-Identifier: Apache-2.0
"""What `vcnode init` plans is what the examples, README.md and packaging/rbac have."""

import dataclasses
from typing import Any

import pytest

from daemonkit.config import yaml_values
from tests.packages import ROOT
from vcnode.core import init_plan
from vcnode.core.init_plan import NodeDaemon, NodeSettings, Signer
from vcnode.terminal import ToolError

NODE = NodeSettings(
    "node-1", "10.0.0.11", "https://10.0.0.1:6443", tuple(NodeDaemon), service_cidrs=("10.96.0.0/16",)
)


def document(name: str) -> Any:
    return yaml_values.decode((ROOT / "examples" / name).read_text())


# They run in the super cluster, where their examples are for.
IN_PODS = (NodeDaemon.VC_SYNCER, NodeDaemon.VC_OPERATOR)


@pytest.mark.parametrize("daemon", [each for each in NodeDaemon if each not in IN_PODS])
def test_configuration_is_the_example(daemon: NodeDaemon) -> None:
    expected = document(f"{daemon.value}.yaml")
    del expected["apiVersion"], expected["kind"]
    assert init_plan.configuration(daemon, NODE) == expected


def test_vc_syncer_reads_virtual_clusters_by_its_kubeconfig() -> None:
    assert init_plan.configuration(NodeDaemon.VC_SYNCER, NODE) == {
        "superCluster": {"kubeconfigFile": "/etc/vcnode/vc-syncer.kubeconfig"},
        "tenants": {"virtualClusters": {}},
        "status": {"socket": "/run/vcnode/vc-syncer/status.sock"},
    }


def test_vc_operator_has_a_lease_and_its_kubeconfig() -> None:
    assert init_plan.configuration(NodeDaemon.VC_OPERATOR, NODE) == {
        "superCluster": {
            "kubeconfigFile": "/etc/vcnode/vc-operator.kubeconfig",
            "serviceCidrs": ["10.96.0.0/16"],
        },
        "nodes": {"servingCaFile": "/etc/vcnode/pki/vn-agent-ca.crt"},
        "leaderElection": {},
        "status": {"socket": "/run/vcnode/vc-operator/status.sock"},
    }


def test_vn_agent_reads_virtual_clusters_if_asked() -> None:
    node = dataclasses.replace(NODE, daemons=(NodeDaemon.VN_AGENT,), virtual_clusters=True)
    by_files = init_plan.configuration(NodeDaemon.VN_AGENT, NODE)
    expected = {**by_files, "tenants": {"kubeconfigFile": "/etc/vcnode/vn-agent.kubeconfig"}}
    assert init_plan.configuration(NodeDaemon.VN_AGENT, node) == expected
    client = node.certificates()[-1]
    assert (client.name, client.certificate_path, client.signer, client.common_name, client.organization) == (
        "vn-agent-client",
        "/etc/vcnode/pki/vn-agent/client.crt",
        Signer.CLIENT,
        "vcnode:vn-agent:node-1",
        "vcnode:vn-agents",
    )
    assert node.manifests() == ("vn-agent.yaml", "options/vn-agent-tenants.yaml")
    rights = (ROOT / "packaging/rbac" / node.manifests()[-1]).read_text()
    assert f"name: {client.organization}\n" in rights
    without = dataclasses.replace(node, server="")
    assert list(without.problems()) == ["--server: expected https://HOST:PORT, got ''"]


def test_kubeconfig_is_the_example() -> None:
    example = (ROOT / "examples" / "kubeconfig.yaml").read_text().replace("DAEMON", "dnsconfig")
    assert yaml_values.decode(init_plan.kubeconfig(NodeDaemon.DNSCONFIG, NODE)) == yaml_values.decode(example)


def test_certificates_are_those_of_the_readme() -> None:
    rows = [
        (each.certificate_path, each.common_name, each.organization, each.signer)
        for each in NODE.certificates()
    ]
    pki = "/etc/vcnode/pki"
    assert rows == [
        (f"{pki}/vn-agent/serving.crt", "node-1", None, Signer.SERVING),
        (f"{pki}/vn-agent/kubelet-client.crt", "vcnode:vn-agent:node-1", None, Signer.KUBELET_CLIENT),
        *(
            (f"{pki}/{name}/client.crt", f"vcnode:{name}:node-1", f"vcnode:{name}s", Signer.CLIENT)
            for name in ("kata-bridge", "kubeproxy-ext", "dnsconfig", "vc-syncer", "vc-operator")
        ),
    ]
    readme = (ROOT / "README.md").read_text()
    for spec in NODE.certificates():
        if spec.signer is not Signer.SERVING and spec.daemon not in IN_PODS:
            assert spec.daemon is not None
            group = f", O={spec.organization}" if spec.organization else ""
            assert f"{spec.daemon.value}/{spec.stem}.{{crt,key}}" in readme
            assert f"CN={spec.common_name}{group}" in readme


def test_the_serving_certificate_has_all_names_once() -> None:
    node = dataclasses.replace(NODE, names=("10.0.0.11", "fd00:0::1", "node-1.example.com", "node-1"))
    serving = node.certificates()[0]
    assert serving.dns_names == ("node-1", "node-1.example.com")
    assert serving.addresses == ("10.0.0.11", "fd00::1")


def test_scrapers_have_a_listener_of_each_daemon() -> None:
    node = dataclasses.replace(NODE, names=("node-1.example.com",), scrapers=("prometheus", "other"))
    for daemon in NodeDaemon:
        metrics = init_plan.configuration(daemon, node)["metrics"]
        (spec,) = (
            each for each in node.certificates() if (each.daemon, each.signer) == (daemon, Signer.METRICS)
        )
        assert spec.is_serving
        assert (spec.dns_names, spec.addresses) == (("node-1",), ("10.0.0.11",)), (
            "vn-agent's names are not its"
        )
        assert (metrics["certificateFile"], metrics["keyFile"]) == (spec.certificate_path, spec.key_path)
        assert (metrics["address"], metrics["clientNames"]) == ("10.0.0.11", ["prometheus", "other"])


def test_metrics_ports_are_those_of_the_documentation() -> None:
    document = (ROOT / "docs" / "observability.md").read_text()
    for daemon in NodeDaemon:
        assert f"| {daemon.value} | {daemon.metrics_port} |\n" in document


def test_without_scrapers_nothing_listens() -> None:
    assert all("metrics" not in init_plan.configuration(daemon, NODE) for daemon in NodeDaemon)
    assert Signer.METRICS not in NODE.signers()


@pytest.mark.parametrize("daemon", list(NodeDaemon))
def test_rights_of_a_daemon_are_those_of_its_user(daemon: NodeDaemon) -> None:
    """Its certificate's user or group is a subject of its shipped file, also for another node."""
    node = NodeSettings("node-7", "10.0.0.17", "https://10.0.0.1:6443", (daemon,))
    texts = [
        init_plan.manifest((ROOT / "packaging" / "rbac" / name).read_text(), "node-7")
        for name in node.manifests()
    ]
    spec = node.certificates()[-1]
    assert any(f"name: {spec.organization or spec.common_name}\n" in text for text in texts)
    assert "node-1" not in "".join(texts)


def test_policies_are_applied_before_rights() -> None:
    assert NODE.manifests()[1:3] == ("kata-bridge-policy.yaml", "kata-bridge.yaml")


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"node_name": "Node_1"}, "--node-name: expected the name of a node, got 'Node_1'"),
        ({"address": "node-1"}, "--address: expected an IP address of the node, got 'node-1'"),
        ({"address": "0.0.0.0"}, "--address: expected an IP address of the node, got '0.0.0.0'"),  # noqa: S104 - refused
        ({"address": "::1"}, "--address: expected an IP address of the node, got '::1'"),
        ({"names": ("a b",)}, "--name: expected a DNS name or an IP address, got 'a b'"),
        ({"server": "http://10.0.0.1"}, "--server: expected https://HOST:PORT, got 'http://10.0.0.1'"),
        ({"server": 'https://a"b'}, "--server: expected https://HOST:PORT, got 'https://a\"b'"),
        ({"server": "https://a:x"}, "--server: expected https://HOST:PORT, got 'https://a:x'"),
        ({"service_cidrs": ("10.0.0.1/8",)}, "--service-cidr: expected an address range, got '10.0.0.1/8'"),
        ({"resolv_conf": "resolv"}, "--resolv-conf: expected an absolute path, got 'resolv'"),
        ({"daemons": ()}, "--daemons: expected at least one"),
        ({"scrapers": ("",)}, "--scraper: expected at most 64 printable characters, got ''"),
        ({"scrapers": ("a\nb",)}, "--scraper: expected at most 64 printable characters, got 'a\\nb'"),
    ],
)
def test_settings_that_cannot_be_used_are_named(changed: dict[str, Any], problem: str) -> None:
    assert list(dataclasses.replace(NODE, **changed).problems()) == [problem]


def test_good_settings_have_no_problem() -> None:
    assert list(NODE.problems()) == []
    alone = NodeSettings("node-1", "10.0.0.11", "", (NodeDaemon.VN_AGENT,))
    assert list(alone.problems()) == [], "vn-agent needs no API server"
    alone = NodeSettings("control", "", "https://10.0.0.1:6443", (NodeDaemon.VC_SYNCER,))
    assert list(alone.problems()) == [], "no other program connects to vc-syncer"
    scraped = dataclasses.replace(alone, scrapers=("prometheus",))
    assert list(scraped.problems()) == ["--address: expected an IP address of the node, got ''"]


def test_a_bundle_has_the_settings() -> None:
    for changed in ({}, {"scrapers": ("prometheus",)}, {"virtual_clusters": True}):
        node = dataclasses.replace(NODE, **changed)
        assert NodeSettings(**init_plan.read_settings(init_plan.settings_json(node))) == node


@pytest.mark.parametrize("data", [b"", b"[]", b"\xff", b'{"nodeName": "a"}', b'{"daemons": ["x"]}'])
def test_other_files_are_no_settings(data: bytes) -> None:
    with pytest.raises(ToolError, match=r"node.json is not one of vcnode init bundle"):
        init_plan.read_settings(data)


def test_an_edit_is_recognized() -> None:
    text = init_plan.marked("a: 1\nb: 2\n")
    assert init_plan.is_as_written(text)
    assert not init_plan.is_as_written(text.replace("1", "2"))
    assert not init_plan.is_as_written(text + "c: 3\n")
    assert not init_plan.is_as_written("a: 1\nb: 2\n")


def test_daemons_come_in_one_order() -> None:
    assert init_plan.daemons_of(["dnsconfig", "vn-agent", "dnsconfig"]) == (
        NodeDaemon.VN_AGENT,
        NodeDaemon.DNSCONFIG,
    )
    with pytest.raises(ValueError, match="kubelet"):
        init_plan.daemons_of(["kubelet"])
