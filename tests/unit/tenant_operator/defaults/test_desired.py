# SPDX-License-Identifier: Apache-2.0
"""The list of objects for one tenant."""

import msgspec
import pytest

from tenant_operator.defaults.desired import (
    DefaultsInputs,
    DesiredList,
    ManifestFile,
    builtin_files,
    config_map_files,
    desired_list,
)
from tenant_operator.defaults.documents import read_manifests
from tenant_operator.defaults.kinds import TenantRef
from tenant_operator.edge.builtin_manifests import builtin_manifests
from tenant_operator.model.cluster_version import DatastoreSpec, DefaultsRef, Images, Release, SizeClass
from tenant_operator.model.control_plane import ControlPlane
from tenant_operator.model.virtual_cluster import Exposure
from tests.packages import ROOT

BUILTIN = builtin_files(builtin_manifests())


def control_plane(*config_maps: str, core_dns: str = "", metrics_server: str = "") -> ControlPlane:
    release = Release(
        name="v1.34",
        kubernetes_version="1.34.4",
        version=(1, 34, 4),
        etcd_version="3.7.3",
        images=Images(core_dns=core_dns, metrics_server=metrics_server),
        datastore=DatastoreSpec(),
        classes={},
        default_class="small",
        defaults=tuple(DefaultsRef(name) for name in config_maps),
    )
    return ControlPlane(
        key="tenants-a1b2c3-acme",
        name="acme",
        namespace="tenants",
        uid="u",
        release=release,
        size=SizeClass(),
        cluster_domain="acme.local",
        service_cidrs=("10.32.0.0/24",),
        pki_days=365,
        exposure=Exposure(),
    )


def listed(*texts: str, **images: str) -> DesiredList:
    """With ConfigMap `more` of these values, in their order."""
    files = config_map_files("more", {f"{number}.yaml": text for number, text in enumerate(texts)})
    return desired_list(control_plane("more", **images), DefaultsInputs(BUILTIN, {"more": files}))


def named(found: DesiredList) -> list[tuple[str, bool]]:
    return [(str(each.ref), each.is_essential) for each in found.objects]


RIGHTS = [
    ("ClusterRole vcnode:vc-syncer", True),
    ("ClusterRole vcnode:vc-syncer-networks", True),
    ("ClusterRoleBinding vcnode:vc-syncer", True),
    ("ClusterRoleBinding vcnode:vc-syncer-networks", True),
    ("ClusterRoleBinding vcnode:tenant-admins", True),
]
NETWORKS = [("CustomResourceDefinition networks.arktos.futurewei.com", True), ("Network default", False)]
COREDNS = [
    ("ServiceAccount kube-system/coredns", False),
    ("ClusterRole system:coredns", False),
    ("ClusterRoleBinding system:coredns", False),
    ("ConfigMap kube-system/coredns", False),
    ("Deployment kube-system/coredns", False),
    ("Service kube-system/kube-dns", False),
]


def test_without_images_a_tenant_has_rights_and_networks() -> None:
    found = desired_list(control_plane(), DefaultsInputs(BUILTIN))
    assert (named(found), found.problems) == (RIGHTS + NETWORKS, ())


def test_networks_are_defined_as_people_define_them() -> None:
    """vc-syncer makes the definition, too, where it is missing: with other content the two would fight."""
    people = (ROOT / "packaging/crds/networks-tenant.yaml").read_text()
    assert BUILTIN["networks-crd.yaml"].objects == read_manifests(people, "networks-tenant.yaml")


def test_coredns_takes_the_place_of_networks() -> None:
    found = listed(core_dns="registry.example/coredns:1")
    assert named(found) == RIGHTS + COREDNS
    by_ref = {str(each.ref): each.manifest for each in found.objects}
    pod = by_ref["Deployment kube-system/coredns"]["spec"]["template"]["spec"]
    assert pod["containers"][0]["image"] == "registry.example/coredns:1"
    corefile = by_ref["ConfigMap kube-system/coredns"]["data"]["Corefile"]
    assert "    kubernetes acme.local in-addr.arpa ip6.arpa {\n" in corefile


def metrics_inputs(**changes: str) -> DefaultsInputs:
    return msgspec.structs.replace(
        DefaultsInputs(BUILTIN, kubelet_serving_authority_pem="PEM\n", metrics_client_digest="m1"), **changes
    )


def test_metrics_server_reads_nodes_by_its_certificate() -> None:
    found = desired_list(control_plane(metrics_server="m:1"), metrics_inputs())
    assert [str(each.ref) for each in found.objects[len(RIGHTS + NETWORKS) :]] == [
        "ServiceAccount kube-system/metrics-server",
        "ClusterRole system:metrics-server",
        "ClusterRole system:aggregated-metrics-reader",
        "ClusterRoleBinding system:metrics-server",
        "ClusterRoleBinding metrics-server:system:auth-delegator",
        "RoleBinding kube-system/metrics-server-auth-reader",
        "Secret kube-system/metrics-server-kubelet-client",
        "ConfigMap kube-system/metrics-server-kubelet-authority",
        "Deployment kube-system/metrics-server",
        "Service kube-system/metrics-server",
        "APIService v1beta1.metrics.k8s.io",
    ]
    copied = [(str(each.ref), each.copied_from) for each in found.objects if each.copied_from]
    assert copied == [("Secret kube-system/metrics-server-kubelet-client", "metrics-client")]
    by_ref = {str(each.ref): each.manifest for each in found.objects}
    authority = by_ref["ConfigMap kube-system/metrics-server-kubelet-authority"]
    assert authority["data"] == {"ca.crt": "PEM\n"}


def test_a_renewed_certificate_changes_its_secret_alone() -> None:
    plane = control_plane(metrics_server="m:1")
    before, after = (desired_list(plane, metrics_inputs(metrics_client_digest=each)) for each in ("m1", "m2"))
    digests = [{str(each.ref): each.digest for each in found.objects} for found in (before, after)]
    changed = [ref for ref in digests[0] if digests[0][ref] != digests[1][ref]]
    assert changed == ["Secret kube-system/metrics-server-kubelet-client"]
    assert before.digest != after.digest


@pytest.mark.parametrize("missing", ["metrics_client_digest", "kubelet_serving_authority_pem"])
def test_metrics_server_waits_for_its_certificate(missing: str) -> None:
    found = desired_list(control_plane(metrics_server="m:1"), metrics_inputs(**{missing: ""}))
    assert named(found) == RIGHTS + NETWORKS
    assert found.problems == ("metrics-server waits for Secret tenants-a1b2c3-acme/metrics-client",)


def test_the_rules_of_custom_resources_are_added() -> None:
    rule = {"apiGroups": ["example.com"], "resources": ["widgets"], "verbs": ["list"]}
    files = builtin_files(builtin_manifests(), [rule])
    assert desired_list(control_plane(), DefaultsInputs(files)).objects[0].manifest["rules"][-1] == rule


WIDGETS = """
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: widgets.example.com}
spec: {group: example.com, scope: Cluster, names: {kind: Widget, plural: widgets}, versions: [{name: v1}]}
"""
WIDGET = """
apiVersion: example.com/v1
kind: Widget
metadata: {name: "${vc.name}", uid: x, resourceVersion: "1", labels: {of: "${vc.namespace}/${vc.key}"}}
status: {phase: Ready}
"""


def test_config_maps_follow_in_order_with_their_own_kinds() -> None:
    found = listed(WIDGETS, WIDGET)
    assert [str(each.ref) for each in found.objects[-2:]] == [
        "CustomResourceDefinition widgets.example.com",
        "Widget acme",
    ]
    assert found.objects[-1].ref == TenantRef("example.com/v1", "Widget", "", "acme")
    assert found.objects[-1].path == "/apis/example.com/v1/widgets/acme"
    assert found.objects[-1].manifest == {
        "apiVersion": "example.com/v1",
        "kind": "Widget",
        "metadata": {
            "name": "acme",
            "labels": {"of": "tenants/tenants-a1b2c3-acme"},
            "annotations": {"vcnode.io/managed": "true"},
        },
    }


def test_a_value_never_becomes_structure() -> None:
    plane = msgspec.structs.replace(control_plane("more"), cluster_domain="x\nkind: Secret")
    files = config_map_files(
        "more",
        {"a": "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {a: '${vc.clusterDomain}'}}"},
    )
    found = desired_list(plane, DefaultsInputs(BUILTIN, {"more": files}))
    assert found.objects[-1].manifest["data"] == {"a": "x\nkind: Secret"}
    assert found.objects[-1].ref == TenantRef("v1", "ConfigMap", "default", "a")


def test_a_later_manifest_replaces_an_earlier_one() -> None:
    more = (
        "{apiVersion: arktos.futurewei.com/v1, kind: Network, metadata: {name: default}, spec: {type: vpc}}"
    )
    found = listed(more)
    assert named(found) == RIGHTS + NETWORKS
    assert found.objects[-1].manifest["spec"] == {"type": "vpc"}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: [", "ConfigMap more, key 0.yaml: document 1: "),
        (
            "{apiVersion: v1, kind: Pod, metadata: {name: a}}",
            "ConfigMap more, key 0.yaml: kind Pod of v1 is unknown",
        ),
        (
            "{apiVersion: v1, kind: ConfigMap, metadata: {name: a}, data: {a: '${vc.token} ${HOME}'}}",
            "ConfigMap more, key 0.yaml: no such value: ${vc.token}",
        ),
    ],
)
def test_what_cannot_be_used_is_named_and_left_out(text: str, problem: str) -> None:
    found = listed(text)
    assert named(found) == RIGHTS + NETWORKS
    assert [each[: len(problem)] for each in found.problems] == [problem]


def test_a_missing_config_map_is_named() -> None:
    found = desired_list(control_plane("gone"), DefaultsInputs(BUILTIN))
    assert found.problems == (
        "ConfigMap gone of ClusterVersion v1.34 does not exist in the operator's namespace: create it, or"
        " take it out of spec.defaults",
    )


def test_a_list_is_bounded() -> None:
    one = "---\n{apiVersion: v1, kind: ConfigMap, metadata: {name: a%d}}\n"
    text = "".join(one % number for number in range(499))
    found = listed(text)
    assert len(found.objects) == 500
    assert found.problems == ("the list has 506 objects; the first 500 are applied",)


def test_the_digest_is_of_all_objects() -> None:
    assert listed().digest == listed().digest
    assert len({listed().digest, listed(WIDGETS).digest, listed(core_dns="c").digest}) == 3
    assert config_map_files("a", {}) == ()
    assert config_map_files("a", {"b": ""}) == (ManifestFile("ConfigMap a, key b"),)
