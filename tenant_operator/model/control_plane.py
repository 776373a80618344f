# SPDX-License-Identifier: Apache-2.0
"""All that manifests and certificates of one tenant's control plane are made from, resolved and checked."""

import ipaddress

import msgspec

from tenant_operator.model import names
from tenant_operator.model.cluster_version import Release, SizeClass
from tenant_operator.model.virtual_cluster import Exposure


class ControlPlane(msgspec.Struct, frozen=True):
    """One tenant. `key` is its cluster key, and the name of its root namespace.

    `is_asleep`: no workload has a pod. `emulated_version` is `1.33` while an upgrade is not confirmed, else
    empty.
    """

    key: str
    name: str
    namespace: str
    uid: str
    release: Release
    size: SizeClass
    cluster_domain: str
    service_cidrs: tuple[str, ...]
    pki_days: int
    exposure: Exposure
    is_asleep: bool = False
    emulated_version: str = ""
    controller_release: Release | None = None
    """Of the controller manager, which may never be newer than the oldest API server; None: `release`."""
    etcd_release: Release | None = None
    volumes: str = "Delete"

    @property
    def labels(self) -> dict[str, str]:
        """On each object of it."""
        return names.labels(self.uid)

    @property
    def has_own_store(self) -> bool:
        """Whether its store is pods of its own, which speak etcd's protocol under the same names."""
        return self.release.datastore.type in ("etcd", "kine-sqlite")

    @property
    def first_service_addresses(self) -> tuple[str, ...]:
        """The addresses of the tenant's Service `default/kubernetes`."""
        return tuple(str(ipaddress.ip_network(cidr)[1]) for cidr in self.service_cidrs)


class ManifestInputs(msgspec.Struct, frozen=True):
    """What manifests need that is known only once other objects are there.

    `digests`: by `NAME` of a Secret or `NAME/KEY` of a ConfigMap, the digest of its content, for what no
    program reads again by itself. `has_started_store`: all members of its etcd were ready once.
    `store_members`: how many it was made with; 0 before. `store_endpoints`: URLs of a shared one.
    `service_addresses`: the cluster IPs of `apiserver-svc`. The ports and CIDRs are for the fence:
    `dns_cidrs` of DNS servers that are no pods, `client_cidrs` of clients outside of the super cluster.
    """

    service_addresses: tuple[str, ...] = ()
    external_address: str = ""
    digests: dict[str, str] = {}
    vn_agent_port: int = 10550
    node_cidrs: tuple[str, ...] = ()
    operator_namespace: str = "vcnode-system"
    shared_password_secret: str = ""
    dns_cidrs: tuple[str, ...] = ()
    client_cidrs: tuple[str, ...] = ()
    has_started_store: bool = False
    store_members: int = 0
    store_endpoints: tuple[str, ...] = ()
    store_cidrs: tuple[str, ...] = ()
