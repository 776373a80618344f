# SPDX-License-Identifier: Apache-2.0
"""The resolver of a super pod (upstream's rules; docs/spec/virtualcluster.md). Pure."""

from typing import Any

from syncer.core.objects import Object, labels_of, namespace_of
from syncer.core.plan import Wait
from syncer.core.unknown import Unknown
from syncer.core.view import PodDns, View
from syncer.kinds.pod.env import cluster_ip
from tenancy import keys

WAITS_FOR_DNS = "DNSNotSynced"

_DNS_NAMESPACE = "kube-system"
_DNS_SERVICE = "kube-dns"

# The API server refuses a dnsConfig with more (core/validation, MaxDNSNameservers and its neighbours). The
# kubelet cuts its own list, after it has put the user's behind it, so the first ones stay here too.
_MAX_NAMESERVERS = 3
_MAX_SEARCHES = 32
_MAX_SEARCH_CHARS = 2048


def set_resolver(spec: Object, tenant: Object, view: View) -> Wait | None:
    """Change `dnsPolicy` and `dnsConfig` where they mean the cluster's DNS."""
    if view.settings.pod_dns is not PodDns.SYNCER or not _uses_cluster_dns(spec):
        return None
    nameserver = _nameserver(tenant, view)
    if isinstance(nameserver, Wait):
        return nameserver
    if not nameserver:
        spec["dnsPolicy"] = "Default"
        return None
    spec["dnsPolicy"] = "None"
    spec["dnsConfig"] = _resolver(spec.get("dnsConfig") or {}, nameserver, namespace_of(tenant), view)
    return None


def _uses_cluster_dns(spec: Object) -> bool:
    policy = spec.get("dnsPolicy") or "ClusterFirst"
    return policy == "ClusterFirstWithHostNet" or (policy == "ClusterFirst" and not spec.get("hostNetwork"))


def _nameserver(tenant: Object, view: View) -> str | Wait:
    """The address of the DNS Service of the pod's network; empty without one.

    One that the tenant has and the super cluster lacks is waited for: a pod keeps its policy for good.
    """
    network = labels_of(tenant).get(keys.ARKTOS_NETWORK) or keys.DEFAULT_NETWORK
    for name in (f"{_DNS_SERVICE}-{network}", _DNS_SERVICE):
        found = view.in_super("Service", _DNS_NAMESPACE, name)
        if isinstance(found, Unknown):
            return found.wait()
        address = cluster_ip(found)
        if address:
            return address
        own = view.in_tenant("Service", _DNS_NAMESPACE, name)
        if isinstance(own, Unknown):
            return own.wait()
        if cluster_ip(own):
            return Wait(WAITS_FOR_DNS, f"Service {_DNS_NAMESPACE}/{name} has no super cluster IP yet")
    return ""


def _resolver(config: Object, nameserver: str, namespace: str, view: View) -> Object:
    found = dict(config)
    domain = view.tenant.cluster_domain
    searches = [f"{namespace}.svc.{domain}", f"svc.{domain}", domain] if domain else []
    found["nameservers"] = _distinct([nameserver, *(config.get("nameservers") or ())])[:_MAX_NAMESERVERS]
    found["searches"] = _bounded(_distinct([*searches, *(config.get("searches") or ())]))
    options: dict[str, Object] = {}
    for name, value in view.settings.dns_options:
        options[name] = {"name": name} if value is None else {"name": name, "value": value}
    for option in config.get("options") or ():
        options[str(option.get("name"))] = option
    found["options"] = list(options.values())
    return found


def _distinct(values: list[Any]) -> list[Any]:
    return list(dict.fromkeys(values))


def _bounded(searches: list[Any]) -> list[Any]:
    found = searches[:_MAX_SEARCHES]
    while len(" ".join(found)) > _MAX_SEARCH_CHARS:
        found.pop()
    return found
