# SPDX-License-Identifier: Apache-2.0
"""What a tenant's objects may have: a SyncPolicy, as its plans use it. Pure.

The defaults are those of a tenant without a SyncPolicy: Pod Security *baseline*, and nothing that reaches a
node, another tenant or the super cluster's add-ons (docs/spec/sync-policy.md). `document` parses objects.
"""

import enum
import ipaddress
from dataclasses import dataclass, field

from syncer.policy import patterns
from syncer.policy.patterns import Patterns

Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class Privileged(enum.StrEnum):
    """Where containers may be privileged."""

    NEVER = "Never"
    VM = "VM"
    ALWAYS = "Always"


class ImagePull(enum.StrEnum):
    """Whether images are pulled for each start of a container.

    ALWAYS: so that a registry is asked whether the pod's own credentials may have the image, as by the
    admission plugin AlwaysPullImages. AS_WRITTEN: images that others pulled are all tenants' on that node.
    """

    ALWAYS = "Always"
    AS_WRITTEN = "AsWritten"


class HostUsers(enum.StrEnum):
    """Whether pods outside VMs may use the node's user namespace.

    IMPLICIT: they may leave `hostUsers` out, as most pods do, and not ask for it. DENY: they must have
    `hostUsers: false`.
    """

    ALLOW = "Allow"
    IMPLICIT = "Implicit"
    DENY = "Deny"


NO_NAMES = Patterns()
# The capabilities that Pod Security baseline lets containers add.
CAPABILITIES = frozenset(
    {
        "AUDIT_WRITE",
        "CHOWN",
        "DAC_OVERRIDE",
        "FOWNER",
        "FSETID",
        "KILL",
        "MKNOD",
        "NET_BIND_SERVICE",
        "SETFCAP",
        "SETGID",
        "SETPCAP",
        "SETUID",
        "SYS_CHROOT",
    }
)
SE_LINUX_TYPES = frozenset({"", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"})
SYSCTLS = patterns.of(
    "kernel.shm_rmid_forced",
    "net.ipv4.ip_local_port_range",
    "net.ipv4.ip_local_reserved_ports",
    "net.ipv4.ip_unprivileged_port_start",
    "net.ipv4.ping_group_range",
    "net.ipv4.tcp_fin_timeout",
    "net.ipv4.tcp_keepalive_intvl",
    "net.ipv4.tcp_keepalive_probes",
    "net.ipv4.tcp_keepalive_time",
    "net.ipv4.tcp_syncookies",
)
# Volumes whose content comes from the tenant's objects, its claims, or an image. The node mounts the others
# with its own network and credentials.
VOLUME_TYPES = frozenset(
    {
        "configMap",
        "csi",  # by driver
        "downwardAPI",
        "emptyDir",
        "ephemeral",
        "image",
        "persistentVolumeClaim",
        "projected",
        "secret",
    }
)
# A podCertificate or a clusterTrustBundle would be the super cluster's.
PROJECTED_SOURCES = frozenset({"configMap", "downwardAPI", "secret", "serviceAccountToken"})
# What the DaemonSet controller adds to each of its pods. A tenant can give them to any pod, so a
# condition on the pod's owner would keep no tenant away.
TOLERATION_KEYS = patterns.of(
    "node.kubernetes.io/disk-pressure",
    "node.kubernetes.io/memory-pressure",
    "node.kubernetes.io/pid-pressure",
    "node.kubernetes.io/unschedulable",
)
# Pods of a DaemonSet pick their node by `metadata.name`, so the hostname gives away nothing more.
NODE_LABELS = patterns.of(
    "kubernetes.io/arch",
    "kubernetes.io/hostname",
    "kubernetes.io/os",
    "topology.kubernetes.io/region",
    "topology.kubernetes.io/zone",
)
SCHEDULERS = frozenset({"", "default-scheduler"})
# Annotations by which a pod would give orders to the runtime, to NRI or CRI plugins, or to the network: it is
# refused, as it would not be what its author wants. (All others that are not allowed stay in the tenant.)
POD_ANNOTATIONS = patterns.of(
    "io.katacontainers.*",
    "io.containerd.*",
    "io.kubernetes.cri*",
    "io.kubernetes.cri-o.*",
    "cri-o.*",
    "*.crio.io*",
    "dev.gvisor.*",
    "run.oci.*",
    "org.criu.*",
    "org.systemd.property.*",
    "module.wasm.image/*",
    "cdi.k8s.io/*",
    "*.cdi.k8s.io/*",
    "nri.io/*",
    "*.nri.io/*",
    "*.nri.io",
    "nri.containerd.io/*",
    "*.nri.containerd.io*",
    "noderesource.dev/*",
    "*.noderesource.dev*",
    "*.resources.beta.kubernetes.io*",
    "kubernetes.io/config.*",
    "cni.projectcalico.org/*",
    "projectcalico.org/*",
    "k8s.v1.cni.cncf.io/*",
    "v1.multus-cni.io/*",
    "io.cilium/*",
    "io.cilium.*",
    "cilium.io/*",
    "*.cilium.io/*",
    "*.antrea.io/*",
    "k8s.ovn.org/*",
    "ovn.kubernetes.io/*",
    "kube-router.io/*",
    "mizar.com/*",
    "*.mizar.com/*",
)
# Annotations that configure load balancers, proxies and DNS that all tenants share. One that stays in the
# tenant may be what keeps people out, as `internal` does, so the Service is refused.
SERVICE_ANNOTATIONS = patterns.of(
    "service.beta.kubernetes.io/*",
    "*.service.beta.kubernetes.io/*",
    "external-dns.alpha.kubernetes.io/*",
    "cloud.google.com/*",
    "networking.gke.io/*",
    "loadbalancer.openstack.org/*",
    "load-balancer.hetzner.cloud/*",
    "oci.oraclecloud.com/*",
    "oci-network-load-balancer.oraclecloud.com/*",
    "metallb.io/*",
    "metallb.universe.tf/*",
    "kube-vip.io/*",
    "purelb.io/*",
    "io.cilium/*",
    "io.cilium.*",
    "*.cilium.io/*",
    "projectcalico.org/*",
    "networking.istio.io/*",
    "getambassador.io/*",
)
INGRESS_ANNOTATIONS = patterns.of(
    "*-snippet",
    "*-snippets",
    "nginx.ingress.kubernetes.io/auth-*",
    "nginx.ingress.kubernetes.io/proxy-ssl-secret",
    "nginx.ingress.kubernetes.io/mirror-*",
    "nginx.ingress.kubernetes.io/upstream-vhost",
    "nginx.ingress.kubernetes.io/server-alias",
    "nginx.org/*",
    "haproxy.org/*",
    "haproxy-ingress.github.io/*",
    "traefik.ingress.kubernetes.io/router.*",
    "alb.ingress.kubernetes.io/*",
    "konghq.com/*",
    "cert-manager.io/*",
    "acme.cert-manager.io/*",
    "external-dns.alpha.kubernetes.io/*",
)
# Sidecars of Grafana load what ConfigMaps and Secrets of any namespace with such a label have.
WITHHELD_KEYS = patterns.of("grafana_*")
# Where nodes, pods and Services of most clusters are. An operator who names those ranges exactly replaces it.
DENIED_CIDRS: tuple[Network, ...] = tuple(
    map(
        ipaddress.ip_network,
        ("10.0.0.0/8", "172.16.0.0/12", "192.168.0.0/16", "100.64.0.0/10", "fc00::/7"),
    )
)


@dataclass(frozen=True, slots=True)
class PodPolicy:
    """What pods may have. An empty `runtime_class` forces none."""

    runtime_class: str = ""
    runtime_classes: frozenset[str] = frozenset()
    vm_runtime_classes: frozenset[str] = frozenset()
    privileged: Privileged = Privileged.VM
    host_namespaces: frozenset[str] = frozenset()
    host_users: HostUsers = HostUsers.IMPLICIT
    host_ports: frozenset[int] = frozenset()
    capabilities: frozenset[str] = CAPABILITIES
    se_linux_types: frozenset[str] = SE_LINUX_TYPES
    sysctls: Patterns = SYSCTLS
    volume_types: frozenset[str] = VOLUME_TYPES
    projected_sources: frozenset[str] = PROJECTED_SOURCES
    csi_drivers: frozenset[str] = frozenset()
    allow_handler_hosts: bool = False
    allow_node_name: bool = False
    allow_resource_claims: bool = False
    extended_resources: Patterns = NO_NAMES
    image_pull: ImagePull = ImagePull.ALWAYS
    schedulers: frozenset[str] = SCHEDULERS
    toleration_keys: Patterns = TOLERATION_KEYS
    node_labels: Patterns = NODE_LABELS
    priority_classes: Patterns = NO_NAMES
    denied_annotations: Patterns = POD_ANNOTATIONS
    allowed_annotations: Patterns = NO_NAMES


@dataclass(frozen=True, slots=True)
class MetadataPolicy:
    """Keys of all kinds that go down beside those that are known to be harmless (`metadata_keys`).

    `withheld_keys` are those of no domain that do not.
    """

    allowed_labels: Patterns = NO_NAMES
    allowed_annotations: Patterns = NO_NAMES
    withheld_keys: Patterns = WITHHELD_KEYS


@dataclass(frozen=True, slots=True)
class ServicePolicy:
    """What Services may have. `cluster_domain` is the super cluster's."""

    types: frozenset[str] = frozenset({"ClusterIP"})
    external_cidrs: tuple[Network, ...] = ()
    load_balancer_cidrs: tuple[Network, ...] = ()
    load_balancer_classes: frozenset[str] = frozenset()
    cluster_domain: str = "cluster.local"
    external_names: Patterns = NO_NAMES
    denied_annotations: Patterns = SERVICE_ANNOTATIONS
    allowed_annotations: Patterns = NO_NAMES


@dataclass(frozen=True, slots=True)
class EndpointPolicy:
    """Addresses of endpoints that are not the tenant's own pods. What is allowed is so although denied."""

    denied_cidrs: tuple[Network, ...] = DENIED_CIDRS
    allowed_cidrs: tuple[Network, ...] = ()


@dataclass(frozen=True, slots=True)
class ClaimPolicy:
    """PersistentVolumeClaims; None is every class. The empty name is that of claims without a class.

    A claim without a class of attributes is always allowed.
    """

    storage_classes: frozenset[str] | None = None
    attributes_classes: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class IngressPolicy:
    """Ingresses; None is every class, or every host that is named."""

    classes: frozenset[str] | None = None
    hosts: Patterns | None = None
    denied_annotations: Patterns = INGRESS_ANNOTATIONS
    allowed_annotations: Patterns = NO_NAMES


@dataclass(frozen=True, slots=True)
class NetworkPolicyLimits:
    """How large a NetworkPolicy may be: each node that runs its pods has rules for it."""

    max_peers: int = 500


@dataclass(frozen=True, slots=True)
class DisruptionBudgetLimits:
    """How long PodDisruptionBudgets may hold up the drain of a node; with 0 none goes down."""

    max_drain_seconds: int = 3600


@dataclass(frozen=True, slots=True)
class NetworkLimits:
    """Networks: which networks of the provider's a tenant may name."""

    vpc_ids: Patterns = NO_NAMES


@dataclass(frozen=True, slots=True)
class FieldLimits:
    """Fields of a newer Kubernetes than this was written for that may go down, as `Pod.spec.newField`."""

    allowed: Patterns = NO_NAMES


class VNodeScope(enum.StrEnum):
    """For which super nodes a tenant has vNodes: those that run its pods, or all that the policy selects."""

    USED = "Used"
    ALL = "All"


class VNodeCapacity(enum.StrEnum):
    """What vNodes show as their capacity: the super node's, or the tenant's quota."""

    NODE = "Node"
    QUOTA = "Quota"


@dataclass(frozen=True, slots=True)
class VNodeLimits:
    """What the tenant sees of super nodes; by default no more than its pods need.

    `labels` and `taints` are keys that are shown; one that ends with `/` stands for its whole domain.
    `node_labels` select the super nodes of the scope ALL.
    """

    scope: VNodeScope = VNodeScope.USED
    node_labels: tuple[tuple[str, str], ...] = ()
    labels: tuple[str, ...] = ()
    taints: tuple[str, ...] = ()
    capacity: VNodeCapacity = VNodeCapacity.NODE
    is_schedulable: bool = False


@dataclass(frozen=True, slots=True)
class SyncPolicy:
    """What the tenant's objects may have; the defaults are those of a tenant without a SyncPolicy.

    `quota` has the limits of the whole tenant, in billionths, by their names in a ResourceQuota.
    """

    pods: PodPolicy = field(default=PodPolicy())
    metadata: MetadataPolicy = field(default=MetadataPolicy())
    services: ServicePolicy = field(default=ServicePolicy())
    endpoints: EndpointPolicy = field(default=EndpointPolicy())
    claims: ClaimPolicy = field(default=ClaimPolicy())
    ingresses: IngressPolicy = field(default=IngressPolicy())
    network_policies: NetworkPolicyLimits = field(default=NetworkPolicyLimits())
    pod_disruption_budgets: DisruptionBudgetLimits = field(default=DisruptionBudgetLimits())
    networks: NetworkLimits = field(default=NetworkLimits())
    fields: FieldLimits = field(default=FieldLimits())
    v_nodes: VNodeLimits = field(default=VNodeLimits())
    quota: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class PolicyUnusable:
    """Why a tenant has no SyncPolicy now, for its eyes: then nothing new goes down."""

    message: str


DEFAULT = SyncPolicy()


def known_or_default(policy: SyncPolicy | PolicyUnusable) -> SyncPolicy:
    """The policy by which objects are judged that are there already: the built-in one where none is known."""
    return policy if isinstance(policy, SyncPolicy) else DEFAULT
