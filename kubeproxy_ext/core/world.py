# SPDX-License-Identifier: Apache-2.0
"""All that is known of the cluster, and what it means for each guest."""

from collections.abc import Collection

from daemonkit.kube.resources import Key
from kubeproxy_ext.core.view import Group, GroupKey, GuestView, Outcome, Problem
from kubeproxy_ext.core.wire import (
    EndpointSliceObject,
    NamespaceObject,
    NodeObject,
    ServiceObject,
)
from ruleset.model import GuestRules


class World:
    """Services, EndpointSlices, Namespaces and Nodes, and the rules that follow from them.

    Tell it of every change with `put_*` and `remove_*`; the order does not matter, and a change that
    changes nothing costs nothing. After a batch, `settle` names the groups of guests to look at.
    The answers are functions of the objects held alone, whatever came before.

    A Service in a namespace that has not been heard of is nobody's: unknown is not no. With
    `has_all_namespaces` there is no such thing: what is not there has no tenant.
    """

    def __init__(self, *, has_all_namespaces: bool = False) -> None:
        raise NotImplementedError

    def put_service(self, item: ServiceObject) -> None:
        raise NotImplementedError

    def remove_service(self, key: Key) -> None:
        """Forget one, by (namespace, name); nothing happens if it is not held."""
        raise NotImplementedError

    def put_slice(self, item: EndpointSliceObject) -> None:
        raise NotImplementedError

    def remove_slice(self, key: Key) -> None:
        raise NotImplementedError

    def put_namespace(self, item: NamespaceObject) -> None:
        raise NotImplementedError

    def remove_namespace(self, name: str) -> None:
        raise NotImplementedError

    def put_node(self, item: NodeObject) -> None:
        raise NotImplementedError

    def remove_node(self, name: str) -> None:
        raise NotImplementedError

    def settle(self) -> frozenset[Group]:
        """The groups whose computed rules or serving endpoints may have changed since the last call.

        Guests with none of these among `GuestView.groups` have the rules that they had.
        """
        raise NotImplementedError

    def group_key(self, view: GuestView) -> GroupKey:
        """What the guest shares its rules by. Changes with the objects; ask again after `settle`."""
        raise NotImplementedError

    def outcome_for(self, view: GuestView) -> Outcome:
        """What the guest gets. Guests of one key get the same object as long as someone holds it."""
        raise NotImplementedError

    def rules_for(self, view: GuestView) -> GuestRules:
        return self.outcome_for(view).rules

    def problems(self) -> tuple[Problem, ...]:
        """What was left out of tenants' objects, sorted: malformed values, and addresses that two
        Services claim (of groups whose rules have been asked for)."""
        raise NotImplementedError

    def emptied_tenants(self) -> frozenset[str | None]:
        """Tenants that have endpoints but not one Service, as after a list that came back empty."""
        raise NotImplementedError

    def retain(self, groups: Collection[Group]) -> None:
        """Drop what was computed for other groups than these; their objects stay."""
        raise NotImplementedError
