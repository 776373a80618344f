# SPDX-License-Identifier: Apache-2.0
"""Decides one pod's resolver and whether its containers may start, and records what led there."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from dnsconfig.cluster.objects import PodDnsConfig, PodObject, PodSpec
from dnsconfig.cluster.state import ClusterState, NamespaceOwner
from dnsconfig.resolve import node_resolver
from dnsconfig.resolve.network import (
    ClusterDomain,
    ClusterIps,
    NetworkServer,
    PodNetwork,
    cluster_ips_of,
    domain_of,
    network_of,
    server_of,
)
from dnsconfig.resolve.node_resolver import NodeResolver, NodeResolverError
from dnsconfig.resolve.resolv_conf import ResolvConfLine, lines, text_of
from dnsconfig.resolve.resolver import ClusterDns, DnsClass, PodEvent, compute_resolver, dns_class
from dnsconfig.resolve.waiting import PodWaiting, WaitReason
from tenancy import keys
from tenancy.names import Refused
from tenancy.ownership import ContainerPolicy, owned_pod

# kata-bridge's limit. Only a pod's own options, which the API server does not bound, come near.
MAX_TEXT_BYTES = 64 << 10
_MAX_QUOTED = 40

_ANY_CONTAINERS = ContainerPolicy()


@dataclass(frozen=True, slots=True)
class NodeDns:
    """The node's resolv.conf, or why it is unusable, and the kubelet's `--node-ip`."""

    resolver: NodeResolver | PodWaiting
    ips: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ResolverDecision:
    """What a pod gets, and why.

    `waiting` is why its containers may not start. `lines` is None where no resolver can be computed.
    Both may be set: a pod that waits for its readiness annotation has a resolver all the same.
    `cluster_ips` are those of the pod's previous network's Service; None without such a network, and
    where they are unknown. They decide whether the pod may keep the addresses that it has.
    """

    policy: str
    dns_class: DnsClass
    owner: NamespaceOwner | None = None
    network: PodNetwork | None = None
    server: NetworkServer | None = None
    cluster_ips: ClusterIps | None = None
    domain: ClusterDomain | None = None
    lines: tuple[ResolvConfLine, ...] | None = None
    events: tuple[PodEvent, ...] = ()
    waiting: PodWaiting | None = None
    dns_record: str = ""
    text: str | None = None
    """The resolv.conf of `lines`."""


@dataclass(frozen=True, slots=True)
class ResolverResult:
    """One pod's resolver as text, with Events about what was truncated; or why there is none."""

    lines: tuple[ResolvConfLine, ...] = ()
    text: str = ""
    events: tuple[PodEvent, ...] = ()
    waiting: PodWaiting | None = None


_Inputs = tuple[str, bool, PodDnsConfig | None, ClusterDns | None, NodeResolver, tuple[str, ...]]


class ResolverCache:
    """The last result of each pod, by UID; computed again only when its inputs change.

    Every change of any pod evaluates all pods of the node, and an author chooses how long the lists
    of a pod are.
    """

    def __init__(self) -> None:
        self._known: dict[str, tuple[_Inputs, ResolverResult]] = {}

    def resolve(
        self, pod: PodObject, cluster: ClusterDns | None, node: NodeResolver, ips: tuple[str, ...]
    ) -> ResolverResult:
        uid, spec = pod.metadata.uid, pod.spec
        inputs = (spec.dns_policy, spec.host_network, spec.dns_config, cluster, node, ips)
        known = self._known.get(uid)
        if known is None or known[0] != inputs:
            known = self._known[uid] = (inputs, _result(spec, cluster, node, ips))
        return known[1]

    def retain(self, uids: Collection[str]) -> None:
        """Forget all pods but these."""
        self._known = {uid: known for uid, known in self._known.items() if uid in uids}


def decide(
    pod: PodObject,
    state: ClusterState,
    node: NodeDns,
    sandbox_networks: tuple[str, ...] = (),
    previous_network: str = "",
    cache: ResolverCache | None = None,
) -> ResolverDecision | None:
    """Decide for one pod; None for a pod of the super cluster itself.

    `sandbox_networks` are those of the pod's sandbox, as in `network_of`. `previous_network` is
    `ResolverRetention.previous_network`, which differs from the label's after the label was changed.

    The pod's annotations name its tenant, and its Namespace has to agree: what names a pod's
    namespace in the tenant ends up in the search list.
    """
    meta = pod.metadata
    owned = owned_pod(meta.namespace, meta.name, meta.uid, meta.annotations, (), _ANY_CONTAINERS)
    if owned is None:
        return None
    decision = ResolverDecision(pod.spec.dns_policy, dns_class(pod.spec))
    if isinstance(owned, Refused):
        message = f"the pod's tenant is unknown: {owned.reason}"
        return replace(decision, waiting=PodWaiting(WaitReason.OWNER_UNKNOWN, message))
    owner = NamespaceOwner(owned.tenant, owned.namespace)
    known = state.owner(meta.namespace)
    if previous_network and known in (owner, None):
        # Also while the pod's own Namespace is missing, as in the list of a restored backup.
        decision = replace(decision, cluster_ips=cluster_ips_of(state, owner.tenant, previous_network))
    if known != owner:
        reason = WaitReason.OWNER_UNKNOWN if state.has_namespaces else WaitReason.NOT_SYNCED
        message = f"its namespace {owner.namespace} is not known to be this tenant's (yet)"
        return replace(decision, waiting=PodWaiting(reason, message))
    network = network_of(meta.labels, sandbox_networks)
    decision = replace(decision, owner=owner)
    found = _with_resolver(decision, owner, network, pod, state, node, cache or ResolverCache())
    return replace(found, waiting=found.waiting or readiness_wait(pod))


def readiness_wait(pod: PodObject) -> PodWaiting | None:
    """Why the pod's network readiness annotation blocks it (kubelet.go of Arktos, syncPod).

    A pod in the host's network waits for no network. Without the annotation the pod does not wait.
    """
    value = pod.metadata.annotations.get(keys.NETWORK_READINESS)
    if value is None or pod.spec.host_network or value.lower() == "true":
        return None
    return PodWaiting(
        WaitReason.READINESS_ANNOTATION,
        f"its network is not ready: annotation {keys.NETWORK_READINESS} is {value[:_MAX_QUOTED]!r}",
    )


def _with_resolver(
    decision: ResolverDecision,
    owner: NamespaceOwner,
    network: PodNetwork | PodWaiting,
    pod: PodObject,
    state: ClusterState,
    node: NodeDns,
    cache: ResolverCache,
) -> ResolverDecision:
    if isinstance(network, PodNetwork):
        decision = replace(decision, network=network)
    resolver = node.resolver
    if isinstance(resolver, PodWaiting):
        # The kubelet reads the node's file for every policy, and starts no pod if that fails.
        return replace(decision, waiting=resolver)
    cluster: ClusterDns | None = None
    if decision.dns_class is DnsClass.CLUSTER:
        if isinstance(network, PodWaiting):
            return replace(decision, waiting=network)
        server = server_of(state, owner.tenant, network.network)
        if isinstance(server, PodWaiting):
            return replace(decision, waiting=server)
        domain = domain_of(state, owner.tenant)
        if isinstance(domain, PodWaiting):
            return replace(decision, waiting=domain)
        decision = replace(decision, server=server, domain=domain, dns_record=_dns_record(pod, owner, domain))
        cluster = ClusterDns(server.addresses, server.source, owner.namespace, domain.name, domain.source)
    result = cache.resolve(pod, cluster, resolver, node.ips)
    if result.waiting is not None:
        return replace(decision, waiting=result.waiting)
    return replace(decision, lines=result.lines, text=result.text, events=result.events)


def _result(
    spec: PodSpec, cluster: ClusterDns | None, node: NodeResolver, ips: tuple[str, ...]
) -> ResolverResult:
    resolver, events = compute_resolver(spec, cluster, node, ips)
    found = lines(resolver)
    text = text_of(found)
    size = len(text.encode())
    if size > MAX_TEXT_BYTES:
        message = f"its dnsConfig makes a resolv.conf of {size} bytes; the limit is {MAX_TEXT_BYTES}"
        return ResolverResult(waiting=PodWaiting(WaitReason.TOO_LARGE, message))
    if "\0" in text:
        # The API server accepts any text as an option; kata-bridge and C libraries end it here.
        message = "an option of its dnsConfig has a NUL character"
        return ResolverResult(waiting=PodWaiting(WaitReason.INVALID_OPTION, message))
    return ResolverResult(found, text, events)


def _dns_record(pod: PodObject, owner: NamespaceOwner, domain: ClusterDomain) -> str:
    """The pod's name behind a headless Service named as its subdomain; empty without such a name.

    `<hostname>.<subdomain>.<pod namespace>.svc.<cluster domain>`. Without `spec.hostname` an endpoint has no
    hostname, and so the pod no record (endpointslice `podToEndpoint`), though its FQDN is made of its name.
    """
    if not (pod.spec.hostname and pod.spec.subdomain and domain.name):
        return ""
    return f"{pod.spec.hostname}.{pod.spec.subdomain}.{owner.namespace}.svc.{domain.name}"


def node_dns_of(text: str | None, ips: Sequence[str] = (), path: str = "the node's resolv.conf") -> NodeDns:
    """The node's part by the text of the kubelet's `--resolv-conf`; None: the kubelet has no such file."""
    if text is None:
        return NodeDns(node_resolver.NO_NODE_RESOLVER, tuple(ips))
    try:
        return NodeDns(node_resolver.parse(text), tuple(ips))
    except NodeResolverError as error:
        waiting = PodWaiting(WaitReason.NODE_RESOLVER_INVALID, f"{path} cannot be used: {error}")
        return NodeDns(waiting, tuple(ips))
