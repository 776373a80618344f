# SPDX-License-Identifier: Apache-2.0
"""The images of control planes, made from the ring's programs, on the nodes of the super cluster."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

from tests.k8s import build
from tests.k8s.operator import signer_image
from tests.k8s.ring import images
from tests.k8s.syncer.cluster import SyncedRing

_REGISTRY = "ring.test"
ETCD = f"{_REGISTRY}/etcd:{build.ETCD_VERSION}"
KINE = f"{_REGISTRY}/kine:{build.KINE_VERSION}"
SIGNER = f"{_REGISTRY}/vc-signer:1"


@dataclass(frozen=True, slots=True)
class KubernetesImages:
    """The images of one version of Kubernetes. `suffix` is behind the names of the ring's programs."""

    version: str
    suffix: str = ""

    @property
    def api_server(self) -> str:
        return f"{_REGISTRY}/kube-apiserver:{self.version}"

    @property
    def controller_manager(self) -> str:
        return f"{_REGISTRY}/kube-controller-manager:{self.version}"


CURRENT = KubernetesImages(build.KUBERNETES_VERSION)
OLDER = KubernetesImages(build.OLDER_KUBERNETES_VERSION, build.OLDER_SUFFIX)


def import_kubernetes(ring: SyncedRing, release: KubernetesImages) -> None:
    """Give all nodes kube-apiserver and kube-controller-manager of a version."""
    for image, name in (
        (release.api_server, "kube-apiserver"),
        (release.controller_manager, "kube-controller-manager"),
    ):
        _import_programs(ring, image, {name: ring.binaries[f"{name}{release.suffix}"]})


def import_etcd(ring: SyncedRing) -> None:
    """Give all nodes etcd, with its programs for snapshots, as the official image has them."""
    _import_programs(ring, ETCD, {name: ring.binaries[name] for name in ("etcd", "etcdctl", "etcdutl")})


def import_kine(ring: SyncedRing) -> None:
    """Give all nodes kine."""
    _import_programs(ring, KINE, {"kine": ring.binaries["kine"]})


def import_signer(ring: SyncedRing) -> None:
    """Give all nodes vc-signer."""
    import_image(ring, lambda archive: signer_image.write(archive, SIGNER))


def import_image(ring: SyncedRing, write: Callable[[Path], None]) -> None:
    """Give all nodes, side by side, the image that `write` makes an archive of."""
    archive = ring.directory / "image.tar"
    write(archive)
    with ThreadPoolExecutor() as threads:
        list(threads.map(lambda node: node.node.import_image(archive), ring.nodes))
    archive.unlink()


def _import_programs(ring: SyncedRing, image: str, programs: Mapping[str, str]) -> None:
    import_image(ring, lambda archive: images.write_control_plane_image(archive, image, programs))
