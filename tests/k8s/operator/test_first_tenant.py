# SPDX-License-Identifier: Apache-2.0
"""The README's section about the first tenant, run as it stands: from the definitions to a Deployment in it.

Its files have the ring's images and ranges, as a site's have its own. The pods of its Deployments need images
that the ring's nodes do not have: the operator and vc-syncer run as the ring starts them.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import guide
from tests.k8s.operator import daemon, releases
from tests.k8s.operator.daemon import OperatorDaemon
from tests.k8s.operator.ground import OperatorGround
from tests.k8s.ring import virtual_clusters
from tests.k8s.ring.processes import SYSTEM_PATH, wait_for
from tests.k8s.syncer.cluster import NODE_NETWORK, SUPER_CIDR
from tests.k8s.syncer.daemon import SyncerDaemon
from tests.k8s.syncer.networked import networked
from tests.k8s.syncer.node import PODS

pytestmark = pytest.mark.timeout(400)

_ROOT = Path(__file__).resolve().parents[3]
_NAMESPACE, _NAME = "team-acme", "acme"
_GONE_S = 120.0
# What a site replaces in the files: the examples' images and ranges.
_OWN = {
    "registry.k8s.io/kube-apiserver:v1.34.4": releases.CURRENT.api_server,
    "registry.k8s.io/kube-controller-manager:v1.34.4": releases.CURRENT.controller_manager,
    "gcr.io/etcd-development/etcd:v3.7.3": releases.ETCD,
    "10.96.0.0/16": SUPER_CIDR,
    "10.244.0.0/16": PODS,
    "192.168.0.0/24": NODE_NETWORK,
}


@pytest.fixture(scope="module")
def desk(ground: OperatorGround, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A directory with the repository's files, a person's programs and kubeconfig."""
    directory = tmp_path_factory.mktemp("desk")
    for name in ("packaging", "examples"):
        shutil.copytree(_ROOT / name, directory / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("packaging/operator/deployment.yaml", "examples/cluster-version.yaml"):
        text = (directory / name).read_text()
        for theirs, own in _OWN.items():
            text = text.replace(theirs, own)
        (directory / name).write_text(text)
    ground.ring.authorities.agent_serving.write(directory / "authorities", "serving-ca")
    programs = directory / "bin"
    programs.mkdir()
    kubectl = f"{' '.join(ground.ring.control.enter)} {ground.ring.binaries['kubectl']}"
    for name, line in (
        ("kubectl", f'exec {kubectl} "$@"'),
        ("kubectl-vc", f'PYTHONPATH={_ROOT} exec {sys.executable} -m kubectl_vc "$@"'),
    ):
        (programs / name).write_text(f"#!/bin/sh\n{line}\n")
        (programs / name).chmod(0o755)
    yield directory
    api = ground.api
    for name in ("vc-operator", "vc-syncer"):
        api.delete(f"/apis/apps/v1/namespaces/{daemon.NAMESPACE}/deployments/{name}")


def _run(ground: OperatorGround, desk: Path, step: str) -> str:
    """Each line of a block, as a shell runs it. Its output is in the failure."""
    return guide.run(
        guide.read("README.md", "tenant", guide.TENANT_STEPS)[step],
        desk,
        {
            "PATH": f"{desk / 'bin'}{os.pathsep}{SYSTEM_PATH}",
            "HOME": str(desk),
            "KUBECONFIG": str(ground.ring.super_cluster.kubeconfig),
        },
    )


def test_the_section_makes_a_tenant(
    ground: OperatorGround, syncer: SyncerDaemon, operator: OperatorDaemon, desk: Path
) -> None:
    _run(ground, desk, "install")
    try:
        with networked(ground.ring, syncer, "node"):
            shown = _run(ground, desk, "create")
        assert re.search(rf"^{_NAME} +Running +True +v1\.34 ", shown, re.MULTILINE), shown[-2000:]
        assert "deployment.apps/web created" in shown
    finally:
        path = f"/apis/{virtual_clusters.GROUP}/namespaces/{_NAMESPACE}/virtualclusters/{_NAME}"
        ground.api.delete(path)
        wait_for(
            f"{_NAMESPACE}/{_NAME} is gone",
            lambda: ground.api.endpoint.request("GET", path).status == 404,
            timeout_s=_GONE_S,
        )
        ground.api.delete(f"/api/v1/namespaces/{_NAMESPACE}")
