# SPDX-License-Identifier: Apache-2.0
"""Whether a tenant's Endpoints or EndpointSlice may go down: whose addresses they lead to. Pure.

A proxy of the super cluster that follows them, such as an ingress controller, reaches more than the tenant's
pods do. docs/spec/sync-policy.md#endpoints has the ranges.
"""

from collections.abc import Callable, Collection, Iterator
from typing import Any

from syncer.core.objects import Object
from syncer.core.plan import Refusal
from syncer.policy import addresses
from syncer.policy.refusal_list import RefusalList, shown, text_of
from syncer.policy.services import is_denied_name
from syncer.policy.sync_policy import SyncPolicy

KINDS = frozenset({"Endpoints", "EndpointSlice"})
# Kubernetes puts at most as many addresses into one Endpoints object. Own pods are not counted.
MAX_FOREIGN = 1_000
_LISTED = ("addresses", "notReadyAddresses")
_NO_NETWORKS = addresses.CountedNetworks()


def refusals(
    endpoints_or_slice: Object,
    policy: SyncPolicy,
    own_pod_ips: Collection[str],
    api_server_ips: Collection[str] = (),
    cluster_networks: Callable[[], addresses.CountedNetworks] = lambda: _NO_NETWORKS,
    is_held_by_others: Callable[[str], bool] = lambda _: False,
) -> tuple[Refusal, ...]:
    """What of an Endpoints object or an EndpointSlice may not go down.

    `own_pod_ips` is a set of the tenant's pods' addresses, without those in a node's network.
    `api_server_ips` are where the tenant's API server is, by others' word than the tenant's: `kubernetes` and
    `kubernetes-<network>` in the namespace `default` may have them. `cluster_networks` gives what the super
    cluster is known to have itself; it is asked where an address is not of a pod in `own_pod_ips`.
    `is_held_by_others` says of an address outside, in canonical form, whether another tenant's pod has it.
    """
    found = RefusalList()
    found.fields("metadata", endpoints_or_slice.get("metadata"))
    allowed_too = api_server_ips if is_of_api_server(endpoints_or_slice) else ()
    is_named = endpoints_or_slice.get("addressType") == "FQDN"
    judge = _Judge(policy, own_pod_ips, allowed_too, cluster_networks, is_held_by_others)
    foreign = 0
    for path, address in _addresses(found, endpoints_or_slice):
        if type(address) is str and address in own_pod_ips:
            continue
        foreign += 1
        if foreign > MAX_FOREIGN:
            found.add(path, f"more than {MAX_FOREIGN} addresses that are not of the tenant's pods")
            break
        if is_named:
            if is_denied_name(text_of(address), policy.services):
                found.add(path, f"name {shown(address)}", "services.externalNames")
        else:
            _check(found, path, address, judge)
    return found.done()


def takes_away(found: Object, patch: Object) -> bool:
    """Whether a merge patch of Endpoints or of an EndpointSlice takes an address away that is there."""
    patched = {name: patch.get(name, found.get(name)) for name in ("endpoints", "subsets")}
    left = {str(address) for _, address in _addresses(RefusalList(), patched)}
    return any(str(address) not in left for _, address in _addresses(RefusalList(), found))


def removal_patch(found: Object, wanted: Object) -> Object:
    """The merge patch by which the first has only addresses that the second has too; empty if it has."""
    left = {str(address) for _, address in _addresses(RefusalList(), wanted)}
    if all(str(address) in left for _, address in _addresses(RefusalList(), found)):
        return {}
    if "endpoints" in found:
        kept = [each for each in found["endpoints"] if left.issuperset(each["addresses"])]
        return {"endpoints": kept}
    subsets = [
        subset
        | {
            name: [each for each in subset[name] if each["ip"] in left]
            for name in _LISTED
            if subset.get(name)
        }
        for subset in found["subsets"]
    ]
    return {"subsets": [each for each in subsets if any(each.get(name) for name in _LISTED)]}


def is_of_api_server(endpoints_or_slice: Object) -> bool:
    """Whether it has the name under which a tenant's API server is found."""
    meta = endpoints_or_slice.get("metadata")
    if type(meta) is not dict or meta.get("namespace") != "default":
        return False
    name = text_of(meta.get("name"))
    return name == "kubernetes" or name.startswith("kubernetes-")


class _Judge:
    """Which addresses are the tenant's to name."""

    __slots__ = ("_allowed", "_api_server", "_cluster", "_denied", "_is_held", "_own")

    def __init__(
        self,
        policy: SyncPolicy,
        own_pod_ips: Collection[str],
        api_server_ips: Collection[str],
        cluster_networks: Callable[[], addresses.CountedNetworks],
        is_held_by_others: Callable[[str], bool],
    ) -> None:
        self._own = own_pod_ips
        self._api_server = api_server_ips
        self._denied = addresses.Ranges(policy.endpoints.denied_cidrs)
        self._allowed = addresses.CountedNetworks(policy.endpoints.allowed_cidrs)
        self._cluster = cluster_networks
        self._is_held = is_held_by_others

    def is_allowed(self, address: addresses.Address, written: addresses.Address | None) -> bool:
        """Whether it is an own pod's, the API server's, or one outside that the policy has nothing against.

        `written` is the form in which it is written: an IPv6 address may carry the other. A policy may deny
        either.

        A range that an operator allows for what is outside may have the super cluster in it: a network of its
        own is allowed by one that is no wider. Where nodes say nothing of their networks, what seems to be
        outside may be another tenant's pod: an operator must allow it.
        """
        if str(address) in self._own or str(address) in self._api_server:
            return True
        length = self._cluster().longest_prefix(address)
        is_outside = length is None and address not in self._denied
        if is_outside and (written or address) not in self._denied and not self._is_held_as(address, written):
            return True
        allowed = self._allowed.longest_prefix(address)
        return allowed is not None and allowed >= (length or 0)

    def _is_held_as(self, address: addresses.Address, written: addresses.Address | None) -> bool:
        """Whether a pod of another tenant has it in either form: pods' addresses are as nodes write them."""
        is_held = self._is_held(str(address))
        return is_held or (written is not None and written != address and self._is_held(str(written)))


def _check(found: RefusalList, path: str, address: Any, judge: _Judge) -> None:
    parsed = addresses.parse(address)
    if parsed is None:
        found.add(path, f"{shown(address)} is not an address")
    elif addresses.is_never_allowed(parsed):
        found.add(path, f"address {shown(address)}")
    elif not judge.is_allowed(parsed, addresses.written(address)):
        found.add(path, f"address {shown(address)} of no pod of the tenant", "endpoints.allowedCIDRs")


def _addresses(found: RefusalList, value: Object) -> Iterator[tuple[str, Any]]:
    for index, each in enumerate(found.items("endpoints", value.get("endpoints"))):
        path = f"endpoints[{index}]"
        listed = found.items(f"{path}.addresses", found.fields(path, each).get("addresses"))
        for position, address in enumerate(listed):
            yield f"{path}.addresses[{position}]", address
    for index, each in enumerate(found.items("subsets", value.get("subsets"))):
        path = f"subsets[{index}]"
        subset = found.fields(path, each)
        for name in _LISTED:
            for position, entry in enumerate(found.items(f"{path}.{name}", subset.get(name))):
                below = f"{path}.{name}[{position}]"
                fields = found.fields(below, entry)
                yield f"{below}.ip", fields.get("ip")
