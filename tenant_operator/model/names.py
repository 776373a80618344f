# SPDX-License-Identifier: Apache-2.0
"""Names of the objects in a tenant's root namespace, and the keys that mark them."""

from tenancy import keys

OPERATOR = keys.OPERATOR
"""The operator's name: of its field manager, and the value of its label on what it makes."""

API_SERVER = "apiserver"
CONTROLLER_MANAGER = "controller-manager"
ETCD = "etcd"
BACKUP = "backup"
DNS_NAMESPACE = "kube-system"
# Upstream's name, by which others find it.
API_SERVER_SERVICE = "apiserver-svc"
API_SERVER_PORT = 6443
ETCD_PORT = 2379
ETCD_PEER_PORT = 2380
CONTROLLER_MANAGER_PORT = 10257
SERVICE_ACCOUNT = "control-plane"

ISSUER = "issuer"
"""Behind the name of a Secret: the key that signed its certificate."""

LOADED, FIRST_LOADED = "loaded", "first-loaded"
"""Behind the name of an authority's Secret: the one that programs must have loaded at their start; and the
one from which on each has certified the next."""

COMPONENT = "app.kubernetes.io/component"
"""Label of a pod: the name of its workload."""
FILES_DIGEST = "vcnode.io/files-digest"
"""Annotation of a pod: the digest of those of its files that no program reads again."""

CLUSTER_CA = "cluster-ca"
FRONT_PROXY_CA = "front-proxy-ca"
ETCD_CA = "etcd-ca"
KUBELET_CLIENT_CA = "kubelet-client-ca"
GATEWAY_CA = "gateway-ca"

API_SERVER_SERVING = "apiserver-serving"
API_SERVER_KUBELET_CLIENT = "apiserver-kubelet-client"
API_SERVER_ETCD_CLIENT = "apiserver-etcd-client"
FRONT_PROXY_CLIENT = "front-proxy-client"
ETCD_SERVER = "etcd-server"
CONTROLLER_MANAGER_CLIENT = "controller-manager-client"
CONTROLLER_MANAGER_SERVING = "controller-manager-serving"
OPERATOR_CLIENT = "operator-client"
SYNCER_CLIENT = "admin-kubeconfig"
KUBECONFIG_KEY = "kubeconfig"

# Public parts alone, for vn-agent on the nodes.
REGISTERED_AUTHORITY = "root-ca"
REGISTERED_CLIENT = "apiserver-ca"
REGISTERED_CLIENTS = "vn-agent-clients"
REGISTERED_CLIENTS_KEY = "clients.yaml"
# Of metrics-server in the tenant, registered at vn-agent for the pages alone.
METRICS_CLIENT = "metrics-client"

AUTHORITIES = "authorities"
SERVICE_ACCOUNT_KEYS = "service-account-keys"
ENCRYPTION_CONFIG = "encryption-config"
API_SERVER_CONFIG = "apiserver-config"
CLUSTER_VERSIONS = "cluster-versions"
"""The ConfigMap with the ClusterVersions that its parts were made of."""
DEFAULTS_INVENTORY = "defaults-inventory"
ETCD_CONFIG = "etcd-config"
ETCD_MEMBERS_KEY = "members"
# Of the program that keeps backups elsewhere: in the operator's namespace, and copied from there.
BACKUP_CREDENTIALS = "backup-credentials"
STORE_CREDENTIALS = "store-credentials"

CLUSTER_BUNDLE = "cluster-ca.crt"
ETCD_BUNDLE = "etcd-ca.crt"
KUBELET_SERVING_BUNDLE = "kubelet-serving-ca.crt"
REQUEST_HEADER_BUNDLE = "request-header-ca.crt"
"""Keys of the ConfigMap of authorities. The front proxy's and the gateway's are in one file together."""

FRONT_PROXY_USER = "front-proxy-client"
GATEWAY_USER = "vcnode:gateway"
"""Common names of the clients that may name a user in headers."""

SIGNER_KEYS_DIRECTORY = "/etc/vc-signer/keys"
SIGNER_SOCKET = "/run/vc-signer/signer.sock"

VC_UID_LABEL = keys.VC_UID


def tenant_kubeconfig(virtual_cluster: str) -> str:
    """The Secret in the VirtualCluster's namespace with its administrator's kubeconfig, at key `value`."""
    return f"{virtual_cluster}{keys.TENANT_KUBECONFIG_SUFFIX}"


def labels(uid: str) -> dict[str, str]:
    """On each object that the operator makes for the VirtualCluster of this UID."""
    return {keys.MANAGED_BY: OPERATOR, VC_UID_LABEL: uid}
