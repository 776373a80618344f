# SPDX-License-Identifier: Apache-2.0
"""Work and memory for a Network grow as the tenant's objects do, and no faster.

Its API server may serve each of them with anything that Kubernetes' schema has.
"""

from collections.abc import Callable
from typing import Any

from syncer.core.objects import Object
from syncer.networks.desired import NetworkPods, Ref, failure_status, is_served, plan
from syncer.networks.objects import NetworkSettings
from tests.pump import ABSENT, Schema, Sizes, Text, peak_bytes, steps, superlinear
from tests.unit.syncer.networks.test_desired import SETTINGS, existing, network

_METADATA: dict[str, Any] = {
    "metadata.name": ABSENT,
    "metadata.namespace": ABSENT,
    "metadata.deletionTimestamp": ABSENT,
    "metadata.managedFields": ABSENT,
}
_SCHEMAS = {
    kind: Schema(kind, _METADATA) for kind in ("Service", "ServiceAccount", "ConfigMap", "EndpointSlice")
}
_META = Schema("Namespace", _METADATA | {"spec": ABSENT, "status": ABSENT})
_API_SERVER, _NETWORK = "api server", "network"
_PLACES = (
    *(f"{kind} {place}" for kind, schema in _SCHEMAS.items() for place in schema.places()),
    *(f"{_API_SERVER} {place}" for place in _SCHEMAS["EndpointSlice"].places()),
    *(f"{_NETWORK} {place}" for place in _META.places()),
    "upstream",
)


def _part(sizes: Sizes, name: str) -> Sizes:
    start = f"{name} "
    return {place.removeprefix(start): size for place, size in sizes.items() if place.startswith(start)}


def _objects(sizes: Sizes) -> dict[Ref, Object]:
    """All objects of a network: those with a schema as the tenant has changed them."""
    found = existing()
    kinds = {
        "services": "Service",
        "serviceaccounts": "ServiceAccount",
        "configmaps": "ConfigMap",
        "endpointslices": "EndpointSlice",
    }
    for ref, value in found.items():
        if (kind := kinds.get(ref.resource)) is None:
            continue
        pumped = _SCHEMAS[kind].object(_part(sizes, kind), text=Text)
        meta = pumped["metadata"] | value["metadata"]
        meta["labels"] = pumped["metadata"]["labels"] | value["metadata"]["labels"]
        found[ref] = pumped | {"metadata": meta}
    return found


def _work(sizes: Sizes, *, is_new: bool = False, is_deleting: bool = False) -> Callable[[], None]:
    own = _META.object(_part(sizes, _NETWORK), text=Text)["metadata"]
    value = network()
    value["metadata"] = own | value["metadata"]
    value["metadata"]["finalizers"] = [*own["finalizers"], *network()["metadata"]["finalizers"]]
    if is_deleting:
        value["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    objects = {} if is_new else _objects(sizes)
    api_server = _SCHEMAS["EndpointSlice"].object(_part(sizes, _API_SERVER), text=Text)
    upstream = tuple(f"192.0.2.{n % 250}" for n in range(1 + sizes.get("upstream", 0)))
    settings = NetworkSettings(SETTINGS.cluster_domain, SETTINGS.image, upstream)

    def work() -> None:
        assert is_served(value)
        decided = plan(value, objects, settings, apiserver=api_server, pods=NetworkPods())
        assert decided.actions
        failure_status(value, "refused")

    return work


_SITUATIONS: tuple[Callable[[Sizes], Callable[[], None]], ...] = (
    _work,
    lambda sizes: _work(sizes, is_new=True),
    lambda sizes: _work(sizes, is_deleting=True),
)


def test_work_for_a_network_is_no_product_of_two_lists() -> None:
    for situation in _SITUATIONS:

        def measure(sizes: Sizes, made: Callable[[Sizes], Callable[[], None]] = situation) -> int:
            return steps(made(sizes))

        assert superlinear(measure, _PLACES) == []


def test_memory_for_a_network_is_no_product_of_two_lists() -> None:
    for situation in _SITUATIONS:

        def measure(sizes: Sizes, made: Callable[[Sizes], Callable[[], None]] = situation) -> int:
            return peak_bytes(made(sizes))

        assert superlinear(measure, _PLACES, first=16, noise=64 << 10) == []
