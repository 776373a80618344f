# SPDX-License-Identifier: Apache-2.0
"""What each field of a SyncPolicy governs, and the reason for its default. Pure.

For people: docs/spec/sync-policy.md is made of them, and of the defaults themselves. A test holds that no
field is left out.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Control:
    """Both are parts of sentences, in Markdown."""

    governs: str
    reason: str


CONTROLS: Mapping[str, Control] = {
    "pods.runtimeClass": Control(
        "the class of pods that name none, or another",
        "none: the node's default runtime. A class with VMs is for the operator to have",
    ),
    "pods.runtimeClasses": Control(
        "`runtimeClassName` beside `runtimeClass`",
        "a class names a handler of the node",
    ),
    "pods.vmRuntimeClasses": Control(
        "classes whose pods have a kernel of their own: what Pod Security keeps from the node's "
        "kernel is theirs",
        "no other program knows which handlers start VMs",
    ),
    "pods.privileged": Control(
        "`privileged`; `procMount`, AppArmor and seccomp profiles and all capabilities where that is allowed",
        "such a container owns its kernel: in a VM, that is its own",
    ),
    "pods.hostNamespaces": Control(
        "`hostNetwork`, `hostPID`, `hostIPC`",
        "Pod Security baseline",
    ),
    "pods.hostUsers": Control(
        "`hostUsers`. Implicit: left out, or `false`; in VMs anything",
        "left out is how most pods are; `Deny` makes pods outside VMs say `false`",
    ),
    "pods.hostPorts": Control(
        "`hostPort`; with the node's network all",
        "Pod Security baseline",
    ),
    "pods.capabilities": Control(
        "`capabilities.add`",
        "the 13 of Pod Security baseline",
    ),
    "pods.seLinuxTypes": Control(
        "SELinux `type`; `user` and `role` never",
        "Pod Security baseline",
    ),
    "pods.sysctls": Control(
        "`sysctls`",
        "the safe ones of Pod Security baseline",
    ),
    "pods.volumeTypes": Control(
        "`volumes`",
        "their content comes from the tenant's objects, its claims or an image. The node mounts "
        "the others with its own network and credentials",
    ),
    "pods.projectedSources": Control(
        "sources of `projected` volumes; a `podCertificate` never",
        "certificates and trust bundles would be the super cluster's",
    ),
    "pods.csiDrivers": Control(
        "inline CSI volumes",
        "a driver is a program of the node",
    ),
    "pods.allowHandlerHosts": Control(
        "`host` of probes and hooks",
        "the kubelet calls it from the node's network",
    ),
    "pods.allowNodeName": Control(
        "`nodeName`; a bound pod has its super pod's",
        "goes past the scheduler's taints and sums",
    ),
    "pods.allowResourceClaims": Control(
        "`resourceClaims`",
        "devices of nodes, as others left them",
    ),
    "pods.extendedResources": Control(
        "resources beside CPU, memory, ephemeral storage and huge pages",
        "devices of nodes, as others left them",
    ),
    "pods.imagePull": Control(
        "pull policies of images and image volumes: changed to Always",
        "images on a node were pulled with others' credentials (the admission plugin AlwaysPullImages)",
    ),
    "pods.schedulers": Control(
        "`schedulerName`",
        "another may bind anywhere",
    ),
    "pods.tolerationKeys": Control(
        "keys of `tolerations`, beside `not-ready` and `unreachable`; a toleration of every taint needs `*`",
        "reserved nodes. These are what each pod of a DaemonSet has",
    ),
    "pods.nodeLabels": Control(
        "keys of node selectors, node affinity and topologies; the field `metadata.name`; in a DaemonSet's "
        "pods labels of the vNode",
        "other labels show and choose reserved nodes",
    ),
    "pods.priorityClasses": Control(
        "`priorityClassName`; a pattern never means `system-*`",
        "preemption of others' pods",
    ),
    "pods.deniedAnnotations": Control(
        "annotations that refuse the pod, in any case of letters",
        "they give orders to the runtime, NRI, CRI and network plugins, which run as root on the node",
    ),
    "pods.allowedAnnotations": Control(
        "annotations of pods that go down, also denied ones",
        "see *Labels and annotations*",
    ),
    "metadata.allowedLabels": Control(
        "labels of all kinds that go down as they are",
        "clients that select by them in the super cluster would act on what tenants say",
    ),
    "metadata.allowedAnnotations": Control(
        "annotations of all kinds that go down, but denied ones",
        "clients that read them in the super cluster would act on what tenants say",
    ),
    "metadata.withheldKeys": Control(
        "keys without a domain that stay",
        "sidecars of Grafana load what any namespace's ConfigMaps and Secrets have",
    ),
    "services.types": Control(
        "`type`; `allocateLoadBalancerNodePorts` other than `false` with NodePort. An "
        "ExternalName stays in the tenant, whose DNS answers it",
        "a NodePort takes a port of each node, a LoadBalancer costs; an ExternalName may mean "
        "anything later, to who follows it in the super cluster",
    ),
    "services.externalCIDRs": Control(
        "`externalIPs`",
        "they intercept others' traffic (CVE-2020-8554)",
    ),
    "services.loadBalancerCIDRs": Control(
        "`loadBalancerIP`",
        "as `externalIPs`",
    ),
    "services.loadBalancerClasses": Control(
        "`loadBalancerClass`",
        "a class is a controller of the super cluster",
    ),
    "services.clusterDomain": Control(
        "the super cluster's domain, for `externalName`",
        "what Kubernetes calls it",
    ),
    "services.externalNames": Control(
        "names that are allowed although they look internal, where ExternalName is",
        "ingress controllers of the super cluster follow them",
    ),
    "services.deniedAnnotations": Control(
        "annotations that refuse the Service, in any case of letters",
        "they configure load balancers, meshes and DNS that tenants share; or keep people out",
    ),
    "services.allowedAnnotations": Control(
        "annotations of Services that go down, also denied ones",
        "see *Labels and annotations*",
    ),
    "endpoints.deniedCIDRs": Control(
        "addresses that are none of the tenant's pods",
        "where nodes, pods and Services of most clusters are",
    ),
    "endpoints.allowedCIDRs": Control(
        "exceptions",
        "a proxy of the super cluster that follows them reaches more than the tenant's pods do",
    ),
    "claims.storageClasses": Control(
        "`storageClassName`, also of `ephemeral` volumes; the empty name is that of claims without a class",
        "classes are made for tenants to use",
    ),
    "claims.volumeAttributesClasses": Control(
        "`volumeAttributesClassName`, at creation and later",
        "such a class says how fast the storage is that others share",
    ),
    "ingresses.classes": Control(
        "`ingressClassName` and its older annotation",
        "classes are made for tenants to use",
    ),
    "ingresses.hosts": Control(
        "hosts of rules and TLS; no wildcard of a top-level domain; rules without a host and "
        "`defaultBackend` need `*`",
        "without a list a tenant can take a name that another one serves: give each its domains",
    ),
    "ingresses.deniedAnnotations": Control(
        "annotations that refuse the Ingress in any case; all others with a domain do too, unless "
        "they are harmless to lack",
        "snippets, authentication, secrets of other namespaces, certificates, DNS",
    ),
    "ingresses.allowedAnnotations": Control(
        "annotations of Ingresses that go down, also denied ones",
        "see *Labels and annotations*",
    ),
    "networkPolicies.maxPeers": Control(
        "rules, peers, excepted ranges and ports of one",
        "each node that runs its pods has rules for it",
    ),
    "podDisruptionBudgets.maxDrainSeconds": Control(
        "how long a node that runs pods of a namespace may be cordoned before its budgets leave the super "
        "cluster, until none of its pods is there or the node is not cordoned; with 0 none goes down",
        "a budget that allows no disruption, or two for one pod, would keep the node from being drained for "
        "ever; an hour is for pods that move one by one",
    ),
    "networks.vpcIDs": Control(
        "`vpcID`",
        "a VPC of the provider's may be another tenant's",
    ),
    "fields.allowed": Control(
        "fields that are not known here, by their paths without indices, as `Pod.spec.containers.newField`",
        "what a field of a newer Kubernetes does is not known",
    ),
    "vNodes.scope": Control(
        "vNodes for nodes that run the tenant's pods, or for `All` that `nodeLabels` select",
        "no more than its pods need",
    ),
    "vNodes.nodeLabels": Control(
        "labels of the nodes of the scope `All`",
        "all nodes",
    ),
    "vNodes.labels": Control(
        "keys of labels that vNodes show beside those that every vNode has; one that ends with "
        "`/` is a whole domain",
        "no more than its pods need",
    ),
    "vNodes.taints": Control(
        "keys of taints that vNodes show",
        "no more than its pods need",
    ),
    "vNodes.capacity": Control(
        "the super node's, or the tenant's `Quota`",
        "what `kubectl describe node` shows of any cluster",
    ),
    "vNodes.schedulable": Control(
        "whether a vNode is schedulable when its super node is",
        "DaemonSets' pods do not need it",
    ),
}
"""By the field's path in `spec`."""
