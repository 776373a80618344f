# SPDX-License-Identifier: Apache-2.0
"""SyncPolicy objects: parsed, and as their definition in packaging/crds has them."""

import ipaddress
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given

from syncer.core.objects import Object
from syncer.policy import document, patterns
from syncer.policy.sync_policy import (
    DEFAULT,
    DENIED_CIDRS,
    POD_ANNOTATIONS,
    ClaimPolicy,
    DisruptionBudgetLimits,
    EndpointPolicy,
    FieldLimits,
    HostUsers,
    ImagePull,
    IngressPolicy,
    MetadataPolicy,
    NetworkLimits,
    NetworkPolicyLimits,
    PodPolicy,
    Privileged,
    ServicePolicy,
    SyncPolicy,
    VNodeCapacity,
    VNodeLimits,
    VNodeScope,
)
from tests.unit.syncer.policy.arbitrary_json import changed

_ROOT = Path(__file__).resolve().parents[4]
ONE = 10**9


def policy(**spec: Any) -> Object:
    return {
        "apiVersion": "vcnode.io/v1alpha1",
        "kind": "SyncPolicy",
        "metadata": {"name": "default", "namespace": "vcs"},
        "spec": spec,
    }


FULL = policy(
    pods={
        "runtimeClass": "kata",
        "runtimeClasses": ["gvisor"],
        "vmRuntimeClasses": ["kata"],
        "privileged": "Never",
        "hostNamespaces": ["PID"],
        "hostUsers": "Deny",
        "hostPorts": [80, 443],
        "capabilities": ["CHOWN"],
        "seLinuxTypes": ["container_t"],
        "sysctls": ["net.ipv4.tcp_*"],
        "volumeTypes": ["configMap"],
        "projectedSources": ["secret"],
        "csiDrivers": ["a.io"],
        "allowHandlerHosts": True,
        "allowNodeName": True,
        "allowResourceClaims": True,
        "extendedResources": ["a.io/gpu"],
        "imagePull": "AsWritten",
        "schedulers": ["mine"],
        "tolerationKeys": ["dedicated"],
        "nodeLabels": ["pool"],
        "priorityClasses": ["tenant-*"],
        "deniedAnnotations": ["mesh.io/*"],
        "allowedAnnotations": ["io.katacontainers.config.agent.*"],
    },
    services={
        "types": ["ClusterIP", "NodePort"],
        "externalCIDRs": ["192.0.2.0/24"],
        "loadBalancerCIDRs": ["2001:db8::/32"],
        "loadBalancerClasses": ["a.io/lb"],
        "clusterDomain": "East.Example.",
        "externalNames": ["*.SVC.cluster.local"],
        "deniedAnnotations": [],
        "allowedAnnotations": ["metallb.io/*"],
    },
    metadata={
        "allowedLabels": ["a.io/*"],
        "allowedAnnotations": ["b.io/*"],
        "withheldKeys": [],
    },
    endpoints={"deniedCIDRs": ["10.0.0.0/8"], "allowedCIDRs": ["10.1.0.0/16"]},
    claims={"storageClasses": ["", "slow"], "volumeAttributesClasses": ["gold"]},
    ingresses={
        "classes": ["nginx"],
        "hosts": ["*.Acme.example"],
        "deniedAnnotations": [],
        "allowedAnnotations": ["cert-manager.io/*"],
    },
    networkPolicies={"maxPeers": 7},
    podDisruptionBudgets={"maxDrainSeconds": 60},
    networks={"vpcIDs": ["vpc-*"]},
    fields={"allowed": ["Pod.spec.newField"]},
    vNodes={
        "scope": "All",
        "nodeLabels": {"pool": "shared"},
        "labels": ["topology.kubernetes.io/"],
        "taints": ["gpu"],
        "capacity": "Quota",
        "schedulable": True,
    },
    quota={"hard": {"pods": 10, "requests.cpu": "1500m", "requests.example.com/gpu": "2"}},
)

FULL_PARSED = SyncPolicy(
    pods=PodPolicy(
        runtime_class="kata",
        runtime_classes=frozenset({"gvisor"}),
        vm_runtime_classes=frozenset({"kata"}),
        privileged=Privileged.NEVER,
        host_namespaces=frozenset({"PID"}),
        host_users=HostUsers.DENY,
        host_ports=frozenset({80, 443}),
        capabilities=frozenset({"CHOWN"}),
        se_linux_types=frozenset({"", "container_t"}),
        sysctls=patterns.of("net.ipv4.tcp_*"),
        volume_types=frozenset({"configMap"}),
        projected_sources=frozenset({"secret"}),
        csi_drivers=frozenset({"a.io"}),
        allow_handler_hosts=True,
        allow_node_name=True,
        allow_resource_claims=True,
        extended_resources=patterns.of("a.io/gpu"),
        image_pull=ImagePull.AS_WRITTEN,
        schedulers=frozenset({"", "mine"}),
        toleration_keys=patterns.of("dedicated"),
        node_labels=patterns.of("pool"),
        priority_classes=patterns.of("tenant-*"),
        denied_annotations=patterns.joined(POD_ANNOTATIONS, ["mesh.io/*"]),
        allowed_annotations=patterns.of("io.katacontainers.config.agent.*"),
    ),
    services=ServicePolicy(
        types=frozenset({"ClusterIP", "NodePort"}),
        external_cidrs=(ipaddress.ip_network("192.0.2.0/24"),),
        load_balancer_cidrs=(ipaddress.ip_network("2001:db8::/32"),),
        load_balancer_classes=frozenset({"a.io/lb"}),
        cluster_domain="east.example",
        external_names=patterns.of("*.svc.cluster.local"),
        allowed_annotations=patterns.of("metallb.io/*"),
    ),
    metadata=MetadataPolicy(
        allowed_labels=patterns.of("a.io/*"),
        allowed_annotations=patterns.of("b.io/*"),
        withheld_keys=patterns.of(),
    ),
    endpoints=EndpointPolicy((ipaddress.ip_network("10.0.0.0/8"),), (ipaddress.ip_network("10.1.0.0/16"),)),
    claims=ClaimPolicy(frozenset({"", "slow"}), frozenset({"gold"})),
    ingresses=IngressPolicy(
        classes=frozenset({"nginx"}),
        hosts=patterns.of("*.acme.example"),
        allowed_annotations=patterns.of("cert-manager.io/*"),
    ),
    network_policies=NetworkPolicyLimits(7),
    pod_disruption_budgets=DisruptionBudgetLimits(60),
    networks=NetworkLimits(vpc_ids=patterns.of("vpc-*")),
    fields=FieldLimits(allowed=patterns.of("Pod.spec.newField")),
    v_nodes=VNodeLimits(
        scope=VNodeScope.ALL,
        node_labels=(("pool", "shared"),),
        labels=("topology.kubernetes.io/",),
        taints=("gpu",),
        capacity=VNodeCapacity.QUOTA,
        is_schedulable=True,
    ),
    quota=(("pods", 10 * ONE), ("requests.cpu", 1_500_000_000), ("requests.example.com/gpu", 2 * ONE)),
)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (policy(), DEFAULT),
        ({}, DEFAULT),
        (policy(pods={}, services=None, quota={"hard": {}}), DEFAULT),
        (policy(pods={"runtimeClass": None, "hostPorts": None}), DEFAULT),
        (policy(pods={"hostPorts": []}), DEFAULT),
        (
            policy(pods={"capabilities": []}),
            SyncPolicy(pods=replace(PodPolicy(), capabilities=frozenset())),
        ),
        (policy(endpoints={"deniedCIDRs": []}), SyncPolicy(endpoints=EndpointPolicy(()))),
        (policy(claims={"storageClasses": []}), SyncPolicy(claims=ClaimPolicy(frozenset()))),
        (FULL, FULL_PARSED),
    ],
)
def test_parse(value: Object, expected: SyncPolicy) -> None:
    assert document.parse(value) == expected


def test_all_errors_are_reported_with_their_paths() -> None:
    value = {
        "apiVersion": "v1",
        "kind": "Policy",
        "status": {},
        "spec": {
            "pod": {},
            "pods": {
                "runtimeClass": 1,
                "privileged": "Sometimes",
                "hostNamespaces": ["UTS"],
                "hostPorts": [80, 0, "443"],
                "sysctls": ["a*b*c", 7],
                "allowNodeName": "yes",
                "schedulers": "mine",
                "unknown": 1,
            },
            "services": {"externalCIDRs": ["10.0.0.1/8", "x"], "clusterDomain": []},
            "networkPolicies": {"maxPeers": 10_001},
            "claims": [],
            "quota": {"hard": {"pods": "-1", "cpu": "1", "requests.cpu": "1Q"}, "soft": {}},
        },
    }
    assert document.parse(value) == (
        "status: is unknown",
        "apiVersion: must be vcnode.io/v1alpha1",
        "kind: must be SyncPolicy",
        "spec.pod: is unknown",
        "spec.pods.unknown: is unknown",
        "spec.pods.runtimeClass: must be a string of at most 317 characters",
        "spec.pods.privileged: must be one of Never, VM, Always",
        "spec.pods.hostNamespaces[0]: must be one of Network, PID, IPC",
        "spec.pods.hostPorts[1]: must be a port from 1 to 65535",
        "spec.pods.hostPorts[2]: must be a port from 1 to 65535",
        "spec.pods.sysctls[1]: must be a string of at most 317 characters",
        "spec.pods.sysctls[0]: must be a name, or a pattern as a*, *a, a*b or *a*",
        "spec.pods.allowNodeName: must be true or false",
        "spec.pods.schedulers: must be a list",
        "spec.services.externalCIDRs[0]: must be a range of addresses, as 10.0.0.0/8, whose host bits are 0",
        "spec.services.externalCIDRs[1]: must be a range of addresses, as 10.0.0.0/8, whose host bits are 0",
        "spec.services.clusterDomain: must be a string of at most 317 characters",
        "spec.claims: must be an object",
        "spec.networkPolicies.maxPeers: must be a number from 0 to 10000",
        "spec.quota.soft: is unknown",
        "spec.quota.hard[cpu]: is no resource that is counted",
        "spec.quota.hard[pods]: must be a quantity that is not negative, as 10, 500m or 2Gi",
        "spec.quota.hard[requests.cpu]: must be a quantity that is not negative, as 10, 500m or 2Gi",
    )


def test_lists_are_bounded() -> None:
    entries = [f"n{index}" for index in range(257)]
    assert document.parse(policy(pods={"nodeLabels": entries})) == (
        "spec.pods.nodeLabels: must have at most 256 entries",
    )
    assert document.parse(policy(endpoints={"deniedCIDRs": ["10.0.0.0/8"] * 65})) == (
        "spec.endpoints.deniedCIDRs: must have at most 64 entries",
    )
    assert document.parse(policy(pods={"hostPorts": list(range(1, 258))})) == (
        "spec.pods.hostPorts: must be a list of at most 256 entries",
    )
    assert document.parse(policy(quota={"hard": {f"requests.a/{name}": 1 for name in entries}})) == (
        "spec.quota.hard: must have at most 256 entries",
    )


@given(changed(FULL))
def test_any_json_is_a_policy_or_its_errors(value: Object) -> None:
    found = document.parse(value)
    assert isinstance(found, SyncPolicy) or (found and all(": " in each for each in found))


def _definition() -> Object:
    found: Object = yaml.safe_load((_ROOT / "packaging/crds/syncpolicies.yaml").read_text())
    return found


def _spec_schema() -> Object:
    (version,) = _definition()["spec"]["versions"]
    found: Object = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    return found


def test_definition_names_the_kind() -> None:
    value = _definition()
    spec = value["spec"]
    assert value["metadata"]["name"] == f"{spec['names']['plural']}.{spec['group']}"
    assert (spec["group"], spec["scope"], spec["names"]["kind"]) == ("vcnode.io", "Namespaced", "SyncPolicy")
    assert [each["name"] for each in spec["versions"]] == ["v1alpha1"]


def test_definition_has_each_field_with_its_bounds() -> None:
    """Each property parses within the definition's bounds, and there are as many as fields."""
    schema = _spec_schema()
    quota = schema.pop("quota")
    assert set(FULL["spec"]) - {"quota"} == set(schema)
    assert list(quota["properties"]) == ["hard"]
    assert quota["properties"]["hard"]["maxProperties"] == 256
    parsed = document.parse(FULL)
    assert isinstance(parsed, SyncPolicy)
    by_name: dict[str, Any] = {
        "pods": parsed.pods,
        "services": parsed.services,
        "metadata": parsed.metadata,
        "endpoints": parsed.endpoints,
        "claims": parsed.claims,
        "ingresses": parsed.ingresses,
        "networkPolicies": parsed.network_policies,
        "podDisruptionBudgets": parsed.pod_disruption_budgets,
        "networks": parsed.networks,
        "fields": parsed.fields,
        "vNodes": parsed.v_nodes,
    }
    for name, section in by_name.items():
        properties = schema[name]["properties"]
        assert list(properties) == list(FULL["spec"][name]), name
        assert len(properties) == len(fields(section)), name
        for field, property_ in properties.items():
            _check_bounds(name, field, property_)


def _check_bounds(section: str, field: str, schema: Object) -> None:
    """What is at the bound passes, and what is above it does not."""
    values: list[tuple[Any, bool]] = [(each, True) for each in schema.get("enum", [])]
    if schema["type"] == "array":
        items = schema["items"]
        entry: Any = "10.0.0.0/8" if "CIDR" in field else "x" * items.get("maxLength", 0)
        if items["type"] == "integer":
            entry = items["maximum"]
        else:
            values += [([each], True) for each in items.get("enum", [])]
        entry = items.get("enum", [entry])[0]
        values += [([entry] * schema["maxItems"], True), ([entry] * (schema["maxItems"] + 1), False)]
        if items["type"] == "string" and "enum" not in items and "CIDR" not in field:
            values.append(([entry + "x"], False))
        if items.get("minLength"):
            values.append(([""], False))
    elif schema["type"] == "integer":
        values += [(schema["maximum"], True), (schema["maximum"] + 1, False), (schema["minimum"] - 1, False)]
    elif schema["type"] == "string" and "enum" not in schema:
        values += [("x" * schema["maxLength"], True), ("x" * (schema["maxLength"] + 1), False)]
        if schema.get("minLength"):
            values.append(("", False))
    elif schema["type"] == "string":
        values.append(("x", False))
    for value, is_valid in values:
        found = document.parse(policy(**{section: {field: value}}))
        assert isinstance(found, SyncPolicy) == is_valid, (section, field, str(value)[:40], found)


def test_example_is_a_policy() -> None:
    found = document.parse(yaml.safe_load((_ROOT / "examples/sync-policy.yaml").read_text()))
    assert isinstance(found, SyncPolicy)
    assert (found.pods.runtime_class, dict(found.quota)["pods"]) == ("kata", 500 * ONE)
    assert found.endpoints.denied_cidrs != DENIED_CIDRS
