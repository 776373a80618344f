# SPDX-License-Identifier: Apache-2.0
"""What is written into the super cluster, whole."""

import pytest

from kubectl_vc.core.command import Command
from kubectl_vc.core.faults import PluginError
from kubectl_vc.core.manifests import chosen_version, virtual_cluster
from kubectl_vc.core.view import Object


def version(name: str, default: str = "") -> Object:
    annotations = {"annotations": {"vcnode.io/default": default}} if default else {}
    return {"metadata": {"name": name, **annotations}}


def test_only_what_is_given_is_written() -> None:
    assert virtual_cluster(Command("create", name="acme"), "v1.34") == {
        "apiVersion": "tenancy.x-k8s.io/v1alpha1",
        "kind": "VirtualCluster",
        "metadata": {"name": "acme"},
        "spec": {"clusterVersionName": "v1.34"},
    }
    command = Command("create", size_class="large", service_cidr="10.0.0.0/16", cluster_domain="a.b")
    assert virtual_cluster(command, "v1.34")["spec"] == {
        "clusterVersionName": "v1.34",
        "class": "large",
        "serviceCidr": "10.0.0.0/16",
        "clusterDomain": "a.b",
    }


@pytest.mark.parametrize(
    ("named", "known", "expected"),
    [
        ("", [version("a")], "a"),
        ("", [version("a"), version("b", "true")], "b"),
        ("", [version("b", "true")], "b"),
        ("a", [version("a"), version("b", "true")], "a"),
    ],
)
def test_versions_are_chosen(named: str, known: list[Object], expected: str) -> None:
    assert chosen_version(named, known) == expected


@pytest.mark.parametrize(
    ("named", "known", "message"),
    [
        (
            "",
            [],
            "the super cluster has no ClusterVersion; apply one: `kubectl explain clusterversion.spec` has"
            " its fields",
        ),
        (
            "",
            [version("b"), version("a", "false")],
            "no ClusterVersion is annotated vcnode.io/default=true; there are: a, b; choose with"
            " --cluster-version",
        ),
        (
            "",
            [version("b", "true"), version("a", "true")],
            "2 ClusterVersions are annotated vcnode.io/default=true; there are: a, b; choose with"
            " --cluster-version",
        ),
        ("c", [version("a")], "ClusterVersion c is not in the super cluster; there are: a"),
    ],
)
def test_a_choice_that_cannot_be_made_lists_all(named: str, known: list[Object], message: str) -> None:
    with pytest.raises(PluginError) as raised:
        chosen_version(named, known)
    assert str(raised.value) == message
