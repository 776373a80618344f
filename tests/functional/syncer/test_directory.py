# SPDX-License-Identifier: Apache-2.0
"""A directory of kubeconfigs as the source of tenants."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from syncer.core.tenant_cluster import TenantCluster
from syncer.sources.directory import DirectorySource
from syncer.sources.port import Reachable, TenantState, Unusable

pytestmark = pytest.mark.functional

SUPER = "https://10.0.0.1:6443"
KUBECONFIG = """
current-context: c
clusters: [{name: c, cluster: {server: "SERVER"}}]
users: [{name: u, user: {token: t}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
"""


class Published:
    def __init__(self, directory: Path) -> None:
        self.all: list[Mapping[str, TenantState]] = []
        self.source = DirectorySource(directory, lambda: SUPER, self.all.append)

    def poll(self) -> Mapping[str, TenantState]:
        self.source.poll()
        return self.all[-1]


def kubeconfig(server: str = "https://10.0.0.2:6443") -> str:
    return KUBECONFIG.replace("SERVER", server)


def test_each_file_is_a_tenant(tmp_path: Path) -> None:
    (tmp_path / "acme.kubeconfig").write_text(kubeconfig())
    (tmp_path / "other.txt").write_text("x")
    found = Published(tmp_path).poll()
    assert list(found) == ["acme.kubeconfig"]
    state = found["acme.kubeconfig"]
    assert isinstance(state, Reachable)
    assert state.cluster == TenantCluster("acme", "", "acme", "")


@pytest.mark.parametrize(
    ("name", "text", "state"),
    [
        (
            "acme",
            kubeconfig(SUPER),
            Unusable("acme", "CredentialsUnusable", "acme.kubeconfig: leads to the super cluster itself"),
        ),
        ("acme", "{", Unusable("acme", "CredentialsUnusable", "acme.kubeconfig: not YAML at line 1")),
        (
            "kube-system",
            kubeconfig(),
            Unusable(
                "kube-system",
                "ClusterKeyRefused",
                "cluster key kube-system is a namespace of the super cluster itself",
            ),
        ),
    ],
)
def test_a_bad_file_concerns_its_tenant_alone(
    tmp_path: Path, name: str, text: str, state: TenantState
) -> None:
    (tmp_path / f"{name}.kubeconfig").write_text(text)
    (tmp_path / "good.kubeconfig").write_text(kubeconfig())
    found = Published(tmp_path).poll()
    assert found[f"{name}.kubeconfig"] == state
    assert isinstance(found["good.kubeconfig"], Reachable)


def test_a_file_beside_it_releases_held_deletions(tmp_path: Path) -> None:
    (tmp_path / "acme.kubeconfig").write_text(kubeconfig())
    published = Published(tmp_path)
    published.poll()
    (tmp_path / "acme.release").write_text("1a2b3c4d\n")
    state = published.poll()["acme.kubeconfig"]
    assert isinstance(state, Reachable)
    assert state.cluster.release == "1a2b3c4d"


def test_an_unreadable_directory_changes_nothing(tmp_path: Path) -> None:
    directory = tmp_path / "tenants"
    directory.mkdir()
    (directory / "acme.kubeconfig").write_text(kubeconfig())
    published = Published(directory)
    published.poll()
    directory.rename(tmp_path / "away")
    published.poll()
    assert len(published.all) == 1
    assert "No such file" in published.source.problem
