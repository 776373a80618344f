# SPDX-License-Identifier: Apache-2.0
"""All that manifests and certificates of one tenant's control plane are made from, resolved and checked."""

import hashlib
import ipaddress

import msgspec

from tenant_operator.model import names
from tenant_operator.model.cluster_version import Release, SizeClass
from tenant_operator.model.virtual_cluster import Exposure

# A range that no platform gives out: above the users of machines, of containers' user namespaces (systemd,
# UIDS-GIDS: to 1879048191) and of OpenShift's namespaces; below the largest that Kubernetes takes (2^31 - 1).
FIRST_USER_ID = 2_000_000_000
USER_IDS = 100_000_000


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
    def user_id(self) -> int:
        """The user and group of its processes, its own on a node.

        The kernel counts inotify instances and pending signals by user. An API server and a controller
        manager have 11 of the 128 instances that a user may have: with one user for all tenants a node had
        room for 11. What of one tenant leaves its container also meets no process or file of another. Among
        100 tenants of a node two have the same one by a chance of 1 in 20 000; those share these counts and
        nothing else.
        """
        digest = hashlib.sha256(self.key.encode()).digest()
        return FIRST_USER_ID + int.from_bytes(digest[:8], "big") % USER_IDS

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
    digests: dict[str, str] = {}
    vn_agent_port: int = 10550
    node_cidrs: tuple[str, ...] = ()
    operator_namespace: str = "vcnode-system"
    dns_cidrs: tuple[str, ...] = ()
    client_cidrs: tuple[str, ...] = ()
    has_started_store: bool = False
    store_members: int = 0
    store_endpoints: tuple[str, ...] = ()
    store_cidrs: tuple[str, ...] = ()
