# SPDX-License-Identifier: Apache-2.0
"""The SyncPolicy that cases run under: the Go syncer has none, so what it lets pass is allowed here.

A difference with `policy: default` runs its case under the defaults, and has what these refuse.
"""

import ipaddress

from syncer.policy import patterns
from syncer.policy.sync_policy import (
    FieldLimits,
    HostUsers,
    ImagePull,
    IngressPolicy,
    MetadataPolicy,
    PodPolicy,
    Privileged,
    ServicePolicy,
    SyncPolicy,
)

_ALL = patterns.of("*")
# The Go syncer lets all keys down but those of its opaque domains, which are not theirs to match.
_KEYS = patterns.of("*example.com/*", "opaque.example.community/*", "notk8s.io/*")

PERMISSIVE = SyncPolicy(
    pods=PodPolicy(
        privileged=Privileged.ALWAYS,
        host_namespaces=frozenset({"Network", "PID", "IPC"}),
        host_users=HostUsers.ALLOW,
        host_ports=frozenset(range(1, 65536)),
        volume_types=PodPolicy().volume_types | {"hostPath"},
        toleration_keys=_ALL,
        node_labels=_ALL,
        priority_classes=_ALL,
        denied_annotations=patterns.of(),
        extended_resources=_ALL,
        image_pull=ImagePull.AS_WRITTEN,
        capabilities=PodPolicy().capabilities | {"NET_ADMIN", "SYS_ADMIN"},
    ),
    services=ServicePolicy(
        types=frozenset({"ClusterIP", "NodePort", "LoadBalancer", "ExternalName"}),
        external_cidrs=(ipaddress.ip_network("0.0.0.0/0"),),
        load_balancer_cidrs=(ipaddress.ip_network("0.0.0.0/0"),),
        load_balancer_classes=frozenset({"example.com/lb"}),
        external_names=_ALL,
        denied_annotations=patterns.of(),
    ),
    ingresses=IngressPolicy(allowed_annotations=patterns.of("nginx.ingress.kubernetes.io/*")),
    fields=FieldLimits(allowed=_ALL),
    metadata=MetadataPolicy(allowed_labels=_KEYS, allowed_annotations=_KEYS),
)
