# SPDX-License-Identifier: Apache-2.0
"""One pod's resolver and whether its containers may start, with everything that led there. Pure."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dnsconfig.cluster.objects import DnsSettings, PodObject, PodSpec, UnreadableError, decode_object
from dnsconfig.cluster.state import Owner, World
from dnsconfig.resolve import node_resolver
from dnsconfig.resolve.network import (
    ClusterIps,
    Domain,
    Membership,
    Server,
    cluster_ips_of,
    domain_of,
    network_of,
    server_of,
)
from dnsconfig.resolve.node_resolver import BadHostFile, HostResolver
from dnsconfig.resolve.resolv_conf import Line, lines, text_of
from dnsconfig.resolve.resolver import ClusterDns, DnsClass, PodEvent, dns_class, resolver
from dnsconfig.resolve.waiting import Cause, Waits
from tenancy import keys
from tenancy.names import Refused
from tenancy.ownership import ContainerPolicy, owned_pod

# kata-bridge takes as much. Only a pod's own options, which the API server does not bound, get near.
MAX_TEXT_BYTES = 64 << 10
# apiserver, validation of `spec.hostname`: a name's first 63 characters are a pod's host name.
_MAX_HOSTNAME = 63

_ANY_CONTAINERS = ContainerPolicy()


@dataclass(frozen=True, slots=True)
class Node:
    """What of the node itself decides: its resolver, or why there is none, and the kubelet's `--node-ip`."""

    resolver: HostResolver | Waits
    ips: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Decision:
    """What a pod gets, and why.

    `waits` says why its containers may not start. `lines` is None where no resolver can be told;
    both may be there: a pod that its readiness annotation holds has a resolver all the same.
    `cluster_ips` are what the Service of `had` holds, the network that the pod's last resolver was
    of; None without one, and where it is not known. They say whether the pod may keep what it has.
    """

    policy: str
    dns_class: DnsClass
    owner: Owner | None = None
    network: Membership | None = None
    server: Server | None = None
    cluster_ips: ClusterIps | None = None
    domain: Domain | None = None
    lines: tuple[Line, ...] | None = None
    events: tuple[PodEvent, ...] = ()
    waits: Waits | None = None
    record: str = ""
    text: str | None = None
    """The resolv.conf of `lines`."""


@dataclass(frozen=True, slots=True)
class Made:
    """The resolver of one pod as text, with what was cut of it, or why there is none."""

    lines: tuple[Line, ...] = ()
    text: str = ""
    events: tuple[PodEvent, ...] = ()
    waits: Waits | None = None


_Inputs = tuple[str, bool, DnsSettings | None, ClusterDns | None, HostResolver, tuple[str, ...]]


class Resolvers:
    """What was made for each pod last, by UID: made again only where what it is made of has changed.

    A node decides for all its pods at each change of any, and how long one pod's lists are is its
    author's choice.
    """

    def __init__(self) -> None:
        self._known: dict[str, tuple[_Inputs, Made]] = {}

    def of(
        self, pod: PodObject, cluster: ClusterDns | None, host: HostResolver, ips: tuple[str, ...]
    ) -> Made:
        uid, spec = pod.metadata.uid, pod.spec
        inputs = (spec.dns_policy, spec.host_network, spec.dns_config, cluster, host, ips)
        known = self._known.get(uid)
        if known is None or known[0] != inputs:
            known = self._known[uid] = (inputs, _made(spec, cluster, host, ips))
        return known[1]

    def keep(self, uids: Collection[str]) -> None:
        """Forget all pods but these."""
        self._known = {uid: known for uid, known in self._known.items() if uid in uids}


def decide(
    pod: PodObject,
    world: World,
    node: Node,
    attached: tuple[str, ...] = (),
    had: str = "",
    resolvers: Resolvers | None = None,
) -> Decision | None:
    """Decide for one pod; None for a pod that is no tenant's, which is none of our business.

    `attached` are the networks of its guest, as `network_of` has them; `had` is the network that
    its last resolver was of, which a changed label may have made another than its own.

    It is a tenant's that says so in its annotations; the Namespace that it is in has to agree, as
    what names a pod's namespace in the tenant ends up in its search list.
    """
    meta = pod.metadata
    owned = owned_pod(meta.namespace, meta.name, meta.uid, meta.annotations, (), _ANY_CONTAINERS)
    if owned is None:
        return None
    kind = dns_class(pod.spec)
    bare = Decision(pod.spec.dns_policy, kind)
    if isinstance(owned, Refused):
        return replace(bare, waits=Waits(Cause.OWNER, f"whose pod it is cannot be told: {owned.reason}"))
    owner = Owner(owned.tenant, owned.namespace)
    if world.owner(meta.namespace) != owner:
        cause = Cause.OWNER if world.has_namespaces else Cause.UNHEARD
        reason = f"its namespace {owner.namespace} is not known to be this tenant's (yet)"
        return replace(bare, waits=Waits(cause, reason))
    network = network_of(meta.labels, attached)
    cluster_ips = cluster_ips_of(world, owner.tenant, had) if had else None
    bare = replace(bare, owner=owner, cluster_ips=cluster_ips)
    found = _resolved(bare, owner, network, pod, world, node, resolvers or Resolvers())
    return replace(found, waits=found.waits or held(pod))


def held(pod: PodObject) -> Waits | None:
    """Whether the pod's network readiness annotation holds it: kubelet.go of Arktos, syncPod.

    A pod in the host's network has no network to wait for, and a pod without the annotation nobody
    who would set it.
    """
    value = pod.metadata.annotations.get(keys.NETWORK_READINESS)
    if value is None or pod.spec.host_network or value.lower() == "true":
        return None
    shown = value[:40]
    return Waits(Cause.HELD, f"its network is not ready: annotation {keys.NETWORK_READINESS} is {shown!r}")


def _resolved(
    bare: Decision,
    owner: Owner,
    network: Membership | Waits,
    pod: PodObject,
    world: World,
    node: Node,
    resolvers: Resolvers,
) -> Decision:
    if isinstance(network, Membership):
        bare = replace(bare, network=network)
    host = node.resolver
    if isinstance(host, Waits):
        # The kubelet reads the node's file for every policy, and fails every pod when it cannot.
        return replace(bare, waits=host)
    cluster: ClusterDns | None = None
    if bare.dns_class is DnsClass.CLUSTER:
        if isinstance(network, Waits):
            return replace(bare, waits=network)
        server = server_of(world, owner.tenant, network.network)
        if isinstance(server, Waits):
            return replace(bare, waits=server)
        domain = domain_of(world, owner.tenant)
        if isinstance(domain, Waits):
            return replace(bare, waits=domain)
        bare = replace(bare, server=server, domain=domain, record=_record(pod, owner, domain))
        cluster = ClusterDns(server.addresses, server.source, owner.namespace, domain.name, domain.source)
    made = resolvers.of(pod, cluster, host, node.ips)
    if made.waits is not None:
        return replace(bare, waits=made.waits)
    return replace(bare, lines=made.lines, text=made.text, events=made.events)


def _made(spec: PodSpec, cluster: ClusterDns | None, host: HostResolver, ips: tuple[str, ...]) -> Made:
    made, events = resolver(spec, cluster, host, ips)
    found = lines(made)
    text = text_of(found)
    size = len(text.encode())
    if size > MAX_TEXT_BYTES:
        reason = f"its dnsConfig makes a resolv.conf of {size} bytes; {MAX_TEXT_BYTES} is the most"
        return Made(waits=Waits(Cause.TOO_LARGE, reason))
    if "\0" in text:
        # The API server lets anything be an option; kata-bridge and C libraries stop there.
        return Made(waits=Waits(Cause.UNUSABLE, "an option of its dnsConfig has a NUL character"))
    return Made(found, text, events)


def _record(pod: PodObject, owner: Owner, domain: Domain) -> str:
    """The name that the pod has behind a headless Service called as its subdomain; empty without one.

    core/v1 PodSpec.subdomain: `<hostname>.<subdomain>.<pod namespace>.svc.<cluster domain>`.
    """
    if not (pod.spec.subdomain and domain.name):
        return ""
    hostname = pod.spec.hostname or pod.metadata.name[:_MAX_HOSTNAME]
    return f"{hostname}.{pod.spec.subdomain}.{owner.namespace}.svc.{domain.name}"


def node_of(text: str | None, ips: Sequence[str] = (), path: str = "the node's resolv.conf") -> Node:
    """The node by the text of the kubelet's `--resolv-conf`; None: the kubelet is given none."""
    if text is None:
        return Node(node_resolver.NO_HOST_RESOLVER, tuple(ips))
    try:
        return Node(node_resolver.parse(text), tuple(ips))
    except BadHostFile as error:
        return Node(Waits(Cause.NODE, f"{path} cannot be used: {error}"), tuple(ips))


class NoResolver(ValueError):  # noqa: N818 - the state it tells of
    """The pod waits, or is no tenant's; the text says which and why."""


def resolv_conf_of(
    pod: Mapping[str, Any], world: World, host_resolv_conf: str | None, cluster_domain: str | None = None
) -> str:
    """The resolv.conf of one pod, given as JSON: for whoever compares it with a real kubelet's.

    `cluster_domain` replaces what the world says (an empty one is the kubelet's without the flag).
    Raises NoResolver and `UnreadableError`.
    """
    value = decode_object(pod)
    if not isinstance(value, PodObject):
        raise UnreadableError("no v1 Pod")
    if cluster_domain is not None:
        tenant = value.metadata.annotations.get(keys.CLUSTER, "")
        world = replace(world, domains={tenant: cluster_domain})
    decision = decide(value, world, node_of(host_resolv_conf))
    if decision is None:
        raise NoResolver("the pod is no tenant's")
    text = decision.text
    if text is None or decision.waits is not None:
        raise NoResolver("no reason" if decision.waits is None else decision.waits.reason)
    return text
