# SPDX-License-Identifier: Apache-2.0
"""The images that the lab's machines would pull, made from the ring's programs under the names of registries.

vcnode's own are the shipped ones, built as `make images` builds them. The control planes' names are those of
`examples/cluster-version.yaml`, which the README's commands apply.
"""

from __future__ import annotations

from pathlib import Path

import yaml

from tests.guide import ROOT
from tests.k8s import build
from tests.k8s.build import Binaries
from tests.k8s.ring import images, manifests
from tests.lab_nodes.topology import Topology

_VERSION = ROOT / "examples" / "cluster-version.yaml"
# Of the README's first Deployment.
_PAUSE = "registry.k8s.io/pause:3.10"
# As `make images` names them without a registry.
_OWN = ""
# The programs of each image of a ClusterVersion; etcd's has those for snapshots, too.
_PROGRAMS = {
    "apiServer": ("kube-apiserver",),
    "controllerManager": ("kube-controller-manager",),
    "etcd": ("etcd", "etcdctl", "etcdutl"),
}


def write(binaries: Binaries, topology: Topology, tree: Path, directory: Path) -> list[Path]:
    """Write an archive of each image; `tree` is what packages are made of. Raises RingError."""
    shipped = manifests.build_images(tree, directory / "images", _OWN)
    release = yaml.safe_load(_VERSION.read_text())["spec"]
    versions = (release["kubernetesVersion"], release["etcdVersion"])
    built = (build.KUBERNETES_VERSION.removeprefix("v"), build.ETCD_VERSION)
    assert versions == built, f"{_VERSION.name} has {versions}, and the ring's programs are {built}"
    pause, busybox, coredns = (directory / f"{name}.tar" for name in ("pause", "busybox", "coredns"))
    images.write_pause_image(pause, images.compile_pause(directory), _PAUSE)
    images.write_busybox_image(busybox, topology.busybox_image)
    images.write_coredns_image(coredns, binaries["coredns"], topology.coredns_image)
    archives = [*shipped.archives, pause, busybox, coredns]
    for part, image in release["images"].items():
        archive = directory / f"{part}.tar"
        programs = {name: binaries[name] for name in _PROGRAMS[part]}
        images.write_control_plane_image(archive, image, programs)
        archives.append(archive)
    return archives
