# SPDX-License-Identifier: Apache-2.0
"""The strings on the wire by which the parts of the system recognise each other's objects.

The names are VirtualCluster's and Arktos' own, so that each daemon also works beside the upstream
Go parts. Keys of this project start with `vcnode.io/`. No other module spells a label or annotation.
"""

TENANCY_PREFIX = "tenancy.x-k8s.io/"
TRANSPARENT_PREFIX = "transparency.tenancy.x-k8s.io/"

# Annotations that the syncer writes on every object that it brings down for a tenant.
CLUSTER = "tenancy.x-k8s.io/cluster"
NAMESPACE = "tenancy.x-k8s.io/namespace"
UID = "tenancy.x-k8s.io/uid"
OWNER_REFERENCES = "tenancy.x-k8s.io/ownerReferences"
VC_NAME = "tenancy.x-k8s.io/vcname"
VC_NAMESPACE = "tenancy.x-k8s.io/vcnamespace"

# Annotations on super namespaces.
VC_UID = "tenancy.x-k8s.io/vcuid"
VC_ROOT_NAMESPACE = "tenancy.x-k8s.io/vcrootns"

# Annotation on the root namespace of a VirtualCluster that is gone, `true`: its volumes stay, until a person
# deletes the namespace. vc-syncer reads it on namespaces of vc-operator alone.
RETAINED = "vcnode.io/retained"

# Annotation on a tenant's root namespace: since when the pods of its control plane are being replaced: of
# all tenants so many at a time.
ROLLING_SINCE = "vcnode.io/rolling-since"

# Annotation on a tenant's root namespace: the service ranges of its control plane, separated by commas.
SERVICE_CIDRS = "vcnode.io/service-cidrs"

# Annotations on Services: the tenant's own cluster IP, and the super cluster's for tenant DNS.
CLUSTER_IP = "tenancy.x-k8s.io/clusterIP"
# Ours beside it, where the tenant's Service has two addresses: all, separated by commas. The first is that of
# CLUSTER_IP. If it is not, another syncer has written CLUSTER_IP since, and this one is out of date.
CLUSTER_IPS = "vcnode.io/clusterIPs"
SUPER_CLUSTER_IP = "transparency.tenancy.x-k8s.io/clusterIP"

# On the mirror of a service account secret: the tenant's name (annotation) and uid (label) of it.
SECRET_NAME = "tenancy.x-k8s.io/secret.name"  # noqa: S105 - an annotation's key, not a secret
SECRET_UID = "tenancy.x-k8s.io/secret.UID"  # noqa: S105 - a label's key, not a secret

# Annotations on a VirtualCluster: where the credentials of its control plane are.
ADMIN_KUBECONFIG = "tenancy.x-k8s.io/admin-kubeconfig"
SECRET_ADMIN_KUBECONFIG = "tenancy.x-k8s.io/secret.admin-kubeconfig"  # noqa: S105 - a key

# Labels.
CONTROLLED = "tenancy.x-k8s.io/controlled"
SUPER_PUBLIC = "tenancy.x-k8s.io/super.public"
VIRTUAL_NODE = "tenancy.x-k8s.io/virtualnode"
SUPER_CLUSTER_ID = "tenancy.x-k8s.io/superclusterid"

# Label of a pod or Service: the name of its network in the tenant, `default` if it has none.
ARKTOS_NETWORK = "arktos.futurewei.com/network"
DEFAULT_NETWORK = "default"

# Annotation of a pod: if present, its containers may start once it is `true`.
NETWORK_READINESS = "arktos.futurewei.com/network-readiness"

# Annotation of a super pod: the comma-separated names of the containers that are the tenant's own.
CONTAINERS = "vcnode.io/containers"

# Annotations of a super pod, for the downward API volumes of the tenant's pod: its labels and annotations as
# the kubelet writes them, and single values whose own keys are kept from the super cluster.
MOUNTED_LABELS = "vcnode.io/tenant-labels"
MOUNTED_ANNOTATIONS = "vcnode.io/tenant-annotations"
MOUNTED_METADATA_PREFIX = "tenant-metadata.vcnode.io/"

# Annotation of a super pod: the comma-separated scheduling gates with which the tenant made it.
SCHEDULING_GATES = "vcnode.io/scheduling-gates"

# Annotation of a pod: a YAML list of the NRI plugins without which the runtime starts no container of it
# (containerd's validator). With this as their domain, keys for single containers take precedence.
REQUIRED_PLUGINS = "required-plugins.noderesource.dev"

# Annotation of a super pod: when the start gate of its node unblocked it. Setting it is the nudge: the
# kubelet syncs a pod whose annotation changed, and so retries its blocked containers at once.
GATE_OPENED = "vcnode.io/gate-opened"

# Annotation of a vNode that we made or adopted: its super node's UID. A Node without it is never deleted.
VNODE_OF = "vcnode.io/vnode-of"

# On a super Secret with tokens that a super pod mounts: the tenant pod's UID (label), and how long each
# token lives (annotation). Such a Secret stands for no Secret of the tenant.
POD_TOKENS = "vcnode.io/pod-tokens"
POD_TOKEN_LIFETIMES = "vcnode.io/pod-token-lifetimes"  # noqa: S105 - an annotation's key, not a secret

# The files and objects of this project.
API_VERSION = "vcnode.io/v1alpha1"
TENANT_KIND = "Tenant"

# Annotations on a VirtualCluster: its share of the syncer's queue (1 to 100, default 1), and the name of the
# SyncPolicy in its namespace (`default` without one).
SYNC_WEIGHT = "vcnode.io/sync-weight"
SYNC_POLICY = "vcnode.io/sync-policy"

# Reason of vc-syncer's condition on a VirtualCluster: the message is the digest of the client certificate by
# which it reads and writes in the tenant.
CREDENTIAL_IN_USE = "CredentialInUse"

# Annotation on a VirtualCluster: the token of the held removals that a person releases.
RELEASE_HELD = "vcnode.io/release-held"

# Annotations on a VirtualCluster: what a person asks of its control plane. The value is the time of the
# request (RFC 3339, UTC), of which the later one wins; the name of a backup; or the ClusterVersion that is
# confirmed.
SLEEP_REQUESTED_AT = "vcnode.io/sleep-requested-at"
WAKE_REQUESTED_AT = "vcnode.io/wake-requested-at"
BACKUP_REQUESTED = "vcnode.io/backup-requested"
RESTORE_REQUESTED = "vcnode.io/restore-requested"
CONFIRM_UPGRADE = "vcnode.io/confirm-upgrade"
# The same for each of what can be rotated: a token, which the status shows until the rotation is complete.
ROTATE_PREFIX = "vcnode.io/rotate-"
# And one by which a person ends what the former key signed, before its time: the token of the rotation.
REVOKE_PREFIX = "vcnode.io/revoke-"
REVOCABLE = ("cluster-ca", "service-account-keys")
ROTATABLE = (
    "cluster-ca",
    "front-proxy-ca",
    "etcd-ca",
    "kubelet-client-ca",
    "gateway-ca",
    "service-account-keys",
    "encryption-key",
    "certificates",
)

# Annotation on a VirtualCluster whose root namespace was deleted: the UID of the Namespace that took its
# place. By it a person gives up all that the tenant had stored.
GIVE_UP_DATA = "vcnode.io/give-up-data"

# The Secret of a VirtualCluster in its namespace, named for it and this, with its administrator's kubeconfig.
TENANT_KUBECONFIG_SUFFIX = "-kubeconfig"
TENANT_KUBECONFIG_KEY = "value"

# Annotations on the Jobs and volumes of backups: where the snapshot is, and which restore filled the volume.
BACKUP_LOCATION = "vcnode.io/backup-location"
RESTORE_TOKEN = "vcnode.io/restore-token"  # noqa: S105 - an annotation's key, not a secret

# Annotations on the Secret with a tenant's credential for a shared PostgreSQL: where its database is, and,
# once that is made, how many connections it has.
DATABASE = "vcnode.io/database"
DATABASE_CONNECTIONS = "vcnode.io/database-connections"

# Annotation on the Jobs that make room in a store: what it was like when they were made.
STORE_STATE = "vcnode.io/store-state"

# Annotation on a VirtualCluster that went back to a backup: vc-syncer deletes nothing that the tenant merely
# lacks, until RELEASE_HELD has the same value.
HOLD_DELETIONS = "vcnode.io/hold-deletions"

# Annotation on a ClusterVersion, `true`: the one for VirtualClusters whose author names none.
DEFAULT_VERSION = "vcnode.io/default"

# On the Lease of a replica of the syncer: the replicas that it shares tenants with (label), and the shards
# that it claims (annotation).
SHARDING = "vcnode.io/sharding"
SHARDS = "vcnode.io/shards"

# Label of what the syncer made of its own in a tenant, such as a network's DNS server, and of what
# vc-operator made in the super cluster.
MANAGED_BY = "vcnode.io/managed-by"
OPERATOR = "vc-operator"

# Annotations on the Secrets of a tenant's control plane: what its certificate was issued for, and its data as
# written (digests); of a rotation its phase, the request that began it, since when all use the new key, and
# how far what the former one encrypted is written again; the ids of keys that have no certificate: what
# signs, the next one and the previous one, separated by commas.
SPEC_DIGEST = "vcnode.io/spec-digest"
DATA_DIGEST = "vcnode.io/data-digest"
ROTATION_PHASE = "vcnode.io/rotation-phase"
ROTATION_TOKEN = "vcnode.io/rotation-token"  # noqa: S105 - an annotation's key, not a secret
ROTATION_SINCE = "vcnode.io/rotation-since"
ROTATION_PHASE_SINCE = "vcnode.io/rotation-phase-since"
ROTATION_PROGRESS = "vcnode.io/rotation-progress"
KEY_IDS = "vcnode.io/key-ids"
# On the Secret of an authority that was replaced: the digest of the first one of those of which each has
# certified the next. Who has loaded any of these need not be started again.
FIRST_LOADED = "vcnode.io/first-loaded"

# Annotations on the workloads of a control plane: the ClusterVersion that each was applied with, and the
# minor version of Kubernetes that it emulates.
APPLIED_VERSION = "vcnode.io/cluster-version"
EMULATED_VERSION = "vcnode.io/emulated-version"
# On the ConfigMap of the ClusterVersions that it was made of: the class that the tenant has.
SIZE_CLASS = "vcnode.io/size-class"
