# SPDX-License-Identifier: Apache-2.0
"""What was left out of tenants' objects, in the tenants' own names."""

from collections.abc import Iterable, Iterator, Mapping

from daemonkit.kube.resources import Key
from kubeproxy_ext.compute.address_conflicts import AddressConflict
from kubeproxy_ext.compute.guest_view import ObjectProblem
from kubeproxy_ext.compute.service_index import ServiceIndex
from kubeproxy_ext.compute.visible_services import VisibleServices


def find_problems(
    cluster: ServiceIndex, visible: Iterable[VisibleServices], beyond_limit: Mapping[Key, str]
) -> tuple[ObjectProblem, ...]:
    """Malformed values, Services beyond a limit (with its words), and address conflicts; sorted.

    Objects with an unknown owner are not reported.
    """
    found = set()
    beyond = "all of it: with it a guest would have more than "
    left_out = [(namespace, name, beyond + limit) for (namespace, name), limit in beyond_limit.items()]
    for namespace, name, text in (*_malformed(cluster), *_lost(cluster, visible), *left_out):
        owner = cluster.owner(namespace)
        if owner is not None:
            found.add(ObjectProblem(owner.tenant, owner.namespace, name, text))
    return tuple(sorted(found, key=_order))


def _malformed(cluster: ServiceIndex) -> Iterator[tuple[str, str, str]]:
    for service in cluster.services.values():
        for text in service.problems:
            yield service.namespace, service.name, text
    for one in cluster.all_slices():
        for text in one.problems:
            yield one.namespace, one.service, f"EndpointSlice {one.name}: {text}"


def _lost(cluster: ServiceIndex, visible: Iterable[VisibleServices]) -> Iterator[tuple[str, str, str]]:
    for each_visible in visible:
        for loser, conflicts in each_visible.conflicts.items():
            namespace, _, name = loser.partition("/")
            for conflict in conflicts:
                yield namespace, name, _sentence(cluster, conflict)


def _sentence(cluster: ServiceIndex, conflict: AddressConflict) -> str:
    ip, port, protocol = conflict.address
    namespace, _, name = conflict.winner.partition("/")
    owner = cluster.owner(namespace)
    winner = f"{owner.namespace if owner else namespace}/{name}"
    return f"{ip} port {port}/{protocol.value} belongs to Service {winner}"


def _order(one: ObjectProblem) -> tuple[str, str, str, str]:
    return one.tenant or "", one.namespace, one.service, one.text
