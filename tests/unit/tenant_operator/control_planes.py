# SPDX-License-Identifier: Apache-2.0
"""Control planes that tests of the operator's manifests are about."""

from typing import Any

import msgspec

from tenant_operator.model.cluster_version import DatastoreSpec, Images, Release, SizeClass
from tenant_operator.model.control_plane import ControlPlane, ManifestInputs
from tenant_operator.model.virtual_cluster import Exposure

IMAGES = Images(
    api_server="registry.example/kube-apiserver:v1.34.4",
    controller_manager="registry.example/kube-controller-manager:v1.34.4",
    etcd="registry.example/etcd:v3.7.3",
    kine="registry.example/kine:v0.17.5",
    signer="registry.example/vc-signer:1",
    backup="registry.example/backup:1",
)

RELEASE = Release(
    name="v1.34",
    kubernetes_version="1.34.4",
    version=(1, 34, 4),
    etcd_version="3.7.3",
    images=IMAGES,
    datastore=DatastoreSpec(),
    classes={},
    default_class="small",
)

CONTROL_PLANE = ControlPlane(
    key="tenants-70b001-acme",
    name="acme",
    namespace="tenants",
    uid="0b1c2d3e-70b0-4001-9000-000000000001",
    release=RELEASE,
    size=SizeClass(),
    cluster_domain="cluster.local",
    service_cidrs=("10.32.0.0/24",),
    pki_days=365,
    exposure=Exposure(),
)

INPUTS = ManifestInputs(
    node_cidrs=("192.0.2.0/24",),
    store_endpoints=("https://etcd.example:2379",),
    store_cidrs=("198.51.100.0/28",),
)


def control_plane(**changes: Any) -> ControlPlane:
    """The usual one, but for some fields. `datastore` is its release's, `replicas` each component's."""
    release = changes.pop("release", RELEASE)
    if datastore := changes.pop("datastore", None):
        release = msgspec.structs.replace(release, datastore=datastore)
    if replicas := changes.pop("replicas", 0):
        changes["size"] = size_of(replicas)
    return msgspec.structs.replace(CONTROL_PLANE, release=release, **changes)


def size_of(replicas: int) -> SizeClass:
    """A class with so many replicas of each component."""
    size = SizeClass()
    return SizeClass(
        *(msgspec.structs.replace(each, replicas=replicas) for each in msgspec.structs.astuple(size))
    )


def release_of(version: tuple[int, int, int], **changes: Any) -> Release:
    """The usual release, of another version of Kubernetes."""
    text = ".".join(map(str, version))
    return msgspec.structs.replace(RELEASE, version=version, kubernetes_version=text, **changes)
