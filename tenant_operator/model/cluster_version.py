# SPDX-License-Identifier: Apache-2.0
"""A ClusterVersion: which Kubernetes a control plane runs, from which images, in which sizes."""

from typing import Any

import msgspec

from daemonkit.kube.resources import ObjectMeta
from tenant_operator.model.objects import Object

DEFAULT_CLASS = "small"


class Images(msgspec.Struct, frozen=True, rename="camel"):
    """Names of images; `signer` is vc-signer's, `backup` has the program that reads and writes backups.

    Those of the defaults run in tenants: without one, tenants do not get what it is of.
    """

    api_server: str = ""
    controller_manager: str = ""
    etcd: str = ""
    kine: str = ""
    signer: str = ""
    backup: str = ""
    core_dns: str = ""
    metrics_server: str = ""


class ComponentSize(msgspec.Struct, frozen=True, rename="camel"):
    """What one container requests, and how the Go runtime of its program collects garbage."""

    replicas: int = 1
    cpu: str = "50m"
    memory: str = "128Mi"
    go_gc: int = msgspec.field(name="goGC", default=0)
    go_memory_limit: str = ""
    quota_bytes: int = 0


class SizeClass(msgspec.Struct, frozen=True, rename="camel"):
    # Above the live heap, which grows once a client has asked for /openapi/v2: below it Go's runtime collects
    # garbage all the time, and takes a third of a processor.
    api_server: ComponentSize = ComponentSize(cpu="100m", memory="320Mi", go_gc=40, go_memory_limit="200MiB")
    controller_manager: ComponentSize = ComponentSize(
        cpu="20m", memory="96Mi", go_gc=40, go_memory_limit="60MiB"
    )
    etcd: ComponentSize = ComponentSize(cpu="20m", memory="96Mi", go_gc=40, quota_bytes=512 << 20)


class DatastoreSpec(msgspec.Struct, frozen=True, rename="camel"):
    """Where a control plane keeps its objects: `etcd`, `kine-sqlite`, `kine-postgresql` or `shared-etcd`."""

    type: str = "etcd"
    storage_class_name: str | None = None
    size: str = "2Gi"
    secret_name: str = ""


class DefaultsRef(msgspec.Struct, frozen=True, rename="camel"):
    """A ConfigMap of the operator's namespace whose values are YAML manifests."""

    config_map: str


class ClusterVersionSpec(msgspec.Struct, frozen=True, rename="camel"):
    kubernetes_version: str = ""
    etcd_version: str = ""
    images: Images = Images()
    datastore: DatastoreSpec = DatastoreSpec()
    upgrades_from: list[str] = []
    default_class: str = DEFAULT_CLASS
    classes: dict[str, SizeClass] = {}
    api_server_args: dict[str, str] = {}
    controller_manager_args: dict[str, str] = {}
    audit_policy: Object | None = None
    authentication_config: Object | None = None
    defaults: list[DefaultsRef] = []
    # Upstream's bundles: metadata, statefulset, service.
    api_server: dict[str, Any] | None = None
    controller_manager: dict[str, Any] | None = None
    etcd: dict[str, Any] | None = None


class ClusterVersion(msgspec.Struct, frozen=True):
    """The used part of a tenancy.x-k8s.io/v1alpha1 ClusterVersion."""

    metadata: ObjectMeta
    spec: ClusterVersionSpec = ClusterVersionSpec()


class Release(msgspec.Struct, frozen=True):
    """A ClusterVersion that can be used: all that control planes of it have in common.

    `version` is `(1, 34, 4)`, `kubernetes_version` the text of it without a `v`.
    """

    name: str
    kubernetes_version: str
    version: tuple[int, int, int]
    etcd_version: str
    images: Images
    datastore: DatastoreSpec
    classes: dict[str, SizeClass]
    default_class: str
    upgrades_from: tuple[str, ...] = ()
    api_server_args: dict[str, str] = {}
    controller_manager_args: dict[str, str] = {}
    audit_policy: Object | None = None
    authentication_config: Object | None = None
    defaults: tuple[DefaultsRef, ...] = ()
