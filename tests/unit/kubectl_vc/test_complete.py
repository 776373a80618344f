# SPDX-License-Identifier: Apache-2.0
"""What a shell offers at each place."""

import pytest

from devkit.fake_kubectl import FakeKubectl
from kubectl_vc.complete import command_of, complete
from kubectl_vc.core.command import Command, Scope
from kubectl_vc.core.faults import FaultReason, RequestFault
from kubectl_vc.core.view import CLUSTER_VERSIONS, VIRTUAL_CLUSTERS
from tests.unit.kubectl_vc.invocations import running


@pytest.fixture
def api() -> FakeKubectl:
    made = FakeKubectl(
        {
            VIRTUAL_CLUSTERS: [
                running(
                    "acme",
                    backups=[
                        {"name": "b1", "phase": "Completed"},
                        {"name": "b2", "phase": "Completed"},
                        {"name": "b3"},
                    ],
                ),
                running("apex"),
                running("x", namespace="default"),
            ],
            CLUSTER_VERSIONS: [{"metadata": {"name": "v1.33"}}, {"metadata": {"name": "v1.34"}}],
        }
    )
    made.config_answers = {"get-contexts": "prod\nstage\n"}
    return made


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["re"], ["restore", ":4"]),
        (["ro"], ["rollback", "rotate", ":4"]),
        (["get", ""], ["x", ":4"]),
        (["-n", "tenants", "get", "a"], ["acme", "apex", ":4"]),
        (["get", "--namespace=tenants", "acme", ""], ["acme", "apex", ":4"]),
        (["sleep", "acme", ""], [":4"]),
        (["create", ""], [":4"]),
        (["create", "acme", "--cluster-version", ""], ["v1.33", "v1.34", ":4"]),
        (["create", "acme", "--cluster-version=v1.34"], ["--cluster-version=v1.34", ":4"]),
        (["upgrade", "acme", "v"], ["v1.33", "v1.34", ":4"]),
        (["upgrade", "acme", "v1.33", ""], [":4"]),
        (["rotate", "acme", "etcd-ca", "c"], ["cluster-ca", "certificates", ":4"]),
        (["restore", "acme", "-n", "tenants", "--from", ""], ["b1", "b2", ":4"]),
        (["restore", "-n", "tenants", "--from", ""], [":4"]),
        (["get", "-o", ""], ["json", "name", "wide", "yaml", ":4"]),
        (["kubeconfig", "acme", "-o", ""], [":0"]),
        (["--context", "p"], ["prod", ":4"]),
        (["get", "--all"], ["--all-namespaces", ":4"]),
        (["unknown", ""], [":4"]),
        (
            [],
            [
                "create",
                "get",
                "kubeconfig",
                "shell",
                "upgrade",
                "rollback",
                "sleep",
                "wake",
                "backup",
                "restore",
                "rotate",
                "delete",
                "doctor",
                "unblock",
                ":4",
            ],
        ),
    ],
)
def test_candidates(api: FakeKubectl, words: list[str], expected: list[str]) -> None:
    assert complete(words, api) == expected


def test_what_cannot_be_asked_completes_to_nothing(api: FakeKubectl) -> None:
    api.refusals["list", VIRTUAL_CLUSTERS] = RequestFault(FaultReason.UNREACHABLE, "away")
    assert complete(["get", ""], api) == [":4"]


def test_the_super_cluster_is_the_one_of_the_line() -> None:
    words = ["get", "--context", "prod", "--kubeconfig=/k", "--as"]
    assert command_of(words) == Command("get", Scope(kubeconfig="/k", context="prod"))
