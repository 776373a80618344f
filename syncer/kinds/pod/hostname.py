# SPDX-License-Identifier: Apache-2.0
"""The hostname of a super pod where it is the pod's DNS name (`setHostnameAsFQDN`). Pure.

The super cluster's name of the pod is another, so it has no subdomain there. A node sets the tenant's name by
`hostnameOverride` (KEP-4762; alpha in 1.34, behind the feature gate HostnameOverride). An API server without
it drops the field, and the hostname is as short as without all of this: that is reported.
"""

from syncer.core.objects import Object, name_of, namespace_of
from syncer.core.plan import Change
from syncer.core.view import View

_PATH = "spec.setHostnameAsFQDN"
# A kernel's limit (kubelet, util.GetNodenameForKernel).
_MAX_NODENAME = 64


def set_hostname(spec: Object, tenant: Object, view: View) -> None:
    """Change `setHostnameAsFQDN` of a pod's spec to what gives the same name in the super cluster."""
    name = _fqdn(tenant, view)
    if name and len(name) <= _MAX_NODENAME:
        spec["hostnameOverride"] = name
    if name:
        # Without a subdomain it would have no effect, and it excludes the override.
        spec.pop("setHostnameAsFQDN")


def hostname_changes(tenant: Object, found: Object | None, view: View) -> tuple[Change, ...]:
    """What of it does not work."""
    name = _fqdn(tenant, view)
    if name is None:
        return ()
    if not name:
        return (Change(_PATH, "has no effect: the DNS domain of this cluster is not known to the syncer"),)
    if len(name) > _MAX_NODENAME:
        return (Change(_PATH, f"has no effect: {name} is longer than {_MAX_NODENAME} characters"),)
    if found is not None and (found.get("spec") or {}).get("hostnameOverride") != name:
        why = "the cluster that runs the pod sets no hostname with dots (feature gate HostnameOverride)"
        return (Change(_PATH, f"has no effect: {why}"),)
    return ()


def _fqdn(tenant: Object, view: View) -> str | None:
    """The hostname that the pod asks for; empty without a domain, None if it asks for none."""
    spec = tenant.get("spec") or {}
    subdomain = spec.get("subdomain")
    if not spec.get("setHostnameAsFQDN") or not subdomain or spec.get("hostNetwork"):
        return None
    if not view.tenant.cluster_domain:
        return ""
    host = str(spec.get("hostname") or name_of(tenant))[:63]
    return f"{host}.{subdomain}.{namespace_of(tenant)}.svc.{view.tenant.cluster_domain}"
