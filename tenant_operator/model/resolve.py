# SPDX-License-Identifier: Apache-2.0
"""Whether a VirtualCluster can have a control plane of a release, and all that it is made from.

What the API server's schema and packaging/operator/policy.yaml refuse at creation is refused here too: either
may not be applied, and an object may be older than they are.
"""

import ipaddress
from collections.abc import Iterable, Iterator
from typing import Protocol

from tenancy import names
from tenancy.tenant import DEFAULT_CLUSTER_DOMAIN
from tenant_operator.model.cluster_version import Release
from tenant_operator.model.control_plane import ControlPlane
from tenant_operator.model.problem import SpecProblem
from tenant_operator.model.virtual_cluster import (
    DEFAULT_SERVICE_CIDR,
    MAX_PKI_DAYS,
    VirtualCluster,
    VirtualClusterSpec,
)

# Names of super namespaces are cut behind 57 characters: of two keys as long as that, each could have the
# other's.
MAX_KEY_CHARS = 56
_EXPOSURES = ("ClusterIP", "NodePort", "LoadBalancer")
_VOLUMES = ("Delete", "Retain")
# kube-apiserver keeps a bitmap of the range, and Services take its lower end.
_MAX_HOST_BITS = 20
_MIN_HOST_BITS = 4

_Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class ClusterRanges(Protocol):
    """What the configuration says of the super cluster."""

    @property
    def service_cidrs(self) -> tuple[str, ...]: ...
    @property
    def pod_cidrs(self) -> tuple[str, ...]: ...
    @property
    def node_cidrs(self) -> tuple[str, ...]: ...


def control_plane_of(
    virtual_cluster: VirtualCluster,
    release: Release,
    settings: ClusterRanges,
    others: Iterable[VirtualCluster] = (),
) -> ControlPlane | SpecProblem:
    """The control plane that the VirtualCluster asks for, or the first problem of its spec.

    `others` are VirtualClusters whose cluster keys may overlap its own; it may be among them.
    """
    meta, spec = virtual_cluster.metadata, virtual_cluster.spec
    key = virtual_cluster.key
    is_placed = bool(virtual_cluster.status.cluster_namespace)
    if isinstance(key, names.Refused):
        return SpecProblem("metadata.name", "NameRefused", key.reason, "use a shorter name or namespace")
    if len(key) > MAX_KEY_CHARS and not is_placed:
        return SpecProblem(
            "metadata.name",
            "NameTooLong",
            f"the cluster key {key} has {len(key)} characters, and {MAX_KEY_CHARS} leave room for namespaces",
            "use a shorter name or namespace",
        )
    if not is_placed and _is_taken(virtual_cluster, key, others):
        return SpecProblem(
            "metadata.name",
            "ClusterKeyTaken",
            f"with the cluster key {key} a super namespace could be this VirtualCluster's and another's",
            "make it again under another name or in another namespace",
        )
    problem = next(_problems(spec, release, settings, is_placed=is_placed), None)
    if problem is not None:
        return problem
    return ControlPlane(
        key=key,
        name=meta.name,
        namespace=meta.namespace,
        uid=meta.uid,
        release=release,
        size=release.classes[spec.class_ or release.default_class],
        cluster_domain=spec.cluster_domain or DEFAULT_CLUSTER_DOMAIN,
        service_cidrs=tuple(_ranges_of(spec)),
        pki_days=spec.pki_expire_days,
        exposure=spec.exposure,
        volumes=spec.volumes,
    )


def _is_taken(virtual_cluster: VirtualCluster, key: str, others: Iterable[VirtualCluster]) -> bool:
    """Whether its key overlaps one that is in use, or that of a VirtualCluster which was there before it."""

    def order(each: VirtualCluster) -> tuple[bool, str, str]:
        is_in_use = bool(each.status.cluster_namespace)
        return not is_in_use, each.metadata.creation_timestamp, each.metadata.uid

    return any(
        isinstance(other := each.key, str)
        and names.overlaps(key, other)
        and order(each) < order(virtual_cluster)
        for each in others
        if each.metadata.uid != virtual_cluster.metadata.uid
    )


def class_problem(name: str, release: Release) -> SpecProblem | None:
    """Whether the release has the class, or its default for none."""
    name = name or release.default_class
    if name in release.classes:
        return None
    known = ", ".join(sorted(release.classes)[:16])
    return SpecProblem(
        "spec.class",
        "ClassUnknown",
        f"ClusterVersion {release.name} has no class {name[:80]!r}",
        f"use one of {known}",
    )


def _problems(
    spec: VirtualClusterSpec, release: Release, settings: ClusterRanges, *, is_placed: bool
) -> Iterator[SpecProblem]:
    problem = class_problem(spec.class_, release)
    if problem is not None:
        yield problem
    domain = spec.cluster_domain or DEFAULT_CLUSTER_DOMAIN
    if not names.is_pod_name(domain):
        yield SpecProblem(
            "spec.clusterDomain",
            "DomainInvalid",
            f"{domain[:80]!r} is not a DNS name in lower case",
            "use one such as cluster.local",
        )
    if not 1 <= spec.pki_expire_days <= MAX_PKI_DAYS:
        yield SpecProblem(
            "spec.pkiExpireDays",
            "DaysInvalid",
            f"{spec.pki_expire_days} is not between 1 and {MAX_PKI_DAYS}",
            "use a number in between",
        )
    yield from _exposure_problems(spec)
    if spec.volumes not in _VOLUMES:
        yield SpecProblem(
            "spec.volumes", "VolumesInvalid", f"{spec.volumes[:80]!r} is unknown", "use Delete or Retain"
        )
    yield from _range_problems(spec, settings, is_placed=is_placed)


def _exposure_problems(spec: VirtualClusterSpec) -> Iterator[SpecProblem]:
    exposure = spec.exposure
    if exposure.type not in _EXPOSURES:
        yield SpecProblem(
            "spec.exposure.type",
            "ExposureInvalid",
            f"{exposure.type[:80]!r} is unknown",
            f"use one of {', '.join(_EXPOSURES)}",
        )
    if exposure.host_name and not names.is_pod_name(exposure.host_name):
        yield SpecProblem(
            "spec.exposure.hostName",
            "ExposureInvalid",
            f"{exposure.host_name[:80]!r} is not a DNS name in lower case",
            "use one without a port",
        )


def _range_problems(
    spec: VirtualClusterSpec, settings: ClusterRanges, *, is_placed: bool
) -> Iterator[SpecProblem]:
    def problem(reason: str, message: str, remedy: str) -> SpecProblem:
        return SpecProblem("spec.serviceCidr", reason, message, remedy)

    found: list[_Network] = []
    for text in _ranges_of(spec):
        try:
            network = ipaddress.ip_network(text)
        except ValueError:
            yield problem(
                "ServiceRangeInvalid",
                f"{text[:80]!r} is not the address of a network and its length",
                f"use one such as {DEFAULT_SERVICE_CIDR}",
            )
            return
        bits = network.max_prefixlen - network.prefixlen
        if not _MIN_HOST_BITS <= bits <= _MAX_HOST_BITS:
            shortest, longest = network.max_prefixlen - _MAX_HOST_BITS, network.max_prefixlen - _MIN_HOST_BITS
            yield problem(
                "ServiceRangeInvalid",
                f"{text} is too {'small' if bits < _MIN_HOST_BITS else 'large'} for Services",
                f"use a length from /{shortest} to /{longest}",
            )
        found.append(network)
    if len({each.version for each in found}) < len(found):
        yield problem("ServiceRangeInvalid", "has more than one range of a family", "use one of each at most")
    if is_placed:
        # The ranges of a tenant that is there cannot change any more: its care must not end over them.
        return
    for name, cidrs in (
        ("Services", settings.service_cidrs),
        ("pods", settings.pod_cidrs),
        ("nodes", settings.node_cidrs),
    ):
        taken = _first_overlap(found, cidrs)
        if taken is not None:
            yield problem(
                "ServiceRangeOverlaps",
                f"overlaps {taken}, the range of the super cluster's {name}",
                "make the VirtualCluster again with another range",
            )


def _ranges_of(spec: VirtualClusterSpec) -> list[str]:
    return (spec.service_cidr or DEFAULT_SERVICE_CIDR).split(",")


def _first_overlap(found: Iterable[_Network], cidrs: Iterable[str]) -> _Network | None:
    return next(
        (
            taken
            for taken in map(ipaddress.ip_network, cidrs)
            for each in found
            if each.version == taken.version and each.overlaps(taken)
        ),
        None,
    )
