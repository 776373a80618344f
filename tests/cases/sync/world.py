# SPDX-License-Identifier: Apache-2.0
"""A tenant's and the super cluster's API servers in memory, and the plans between them carried out."""

import copy
from collections.abc import Iterator
from typing import Any

from devkit.syncer.fake_view import FakeView
from syncer.core.objects import name_of, namespace_of
from syncer.core.pair import Pair
from syncer.core.plan import Bind, Create, Delete, IssueTokens, Patch, Plan, Side
from syncer.core.tenant_cluster import TenantCluster
from syncer.kinds import table
from syncer.kinds.port import KindSync, Scope
from syncer.policy.sync_policy import DEFAULT, SyncPolicy
from tenancy import keys
from tests.cases.sync.load import merged
from tests.cases.sync.server_defaults import Object, set_defaults

KINDS: dict[str, KindSync] = {each.kind.kind: each for each in (*table.DEFAULT, *table.OPTIONAL.values())}
_MOST_ROUNDS = 10
_ObjectKey = tuple[str, str, str]
_SYSTEM_PRIORITIES = {"system-cluster-critical": 2000000000, "system-node-critical": 2000001000}


class AdmissionError(Exception):
    """An API server refuses an object."""


class CaseError(Exception):
    """A case cannot be carried out, such as when plans do not come to an end."""


class World:
    """Both sides. `apply` carries out what the syncer plans; `reconcile` does so until nothing is left."""

    def __init__(self, tenant: TenantCluster, policy: SyncPolicy = DEFAULT) -> None:
        self.tenant = tenant
        self._policy = policy
        self.sides: dict[Side, dict[_ObjectKey, Object]] = {Side.TENANT: {}, Side.SUPER: {}}
        self._addresses: dict[_ObjectKey, str] = {}
        self._count = 0
        self.last_plan = Plan()
        self.refused_by_server = ""
        """Why an API server refused the last plan."""

    def view(self) -> FakeView:
        """Both sides as plans see them now."""
        return FakeView(
            tenant=self.tenant,
            policy=self._policy,
            tenant_objects=list(self.sides[Side.TENANT].values()),
            super_objects=list(self.sides[Side.SUPER].values()),
        )

    def address(self, side: Side, namespace: str, name: str) -> str:
        """The cluster IP that a Service gets; the same each time."""
        where = (str(side), namespace, name)
        prefix = "10.96.0" if side is Side.TENANT else "10.32.0"
        return self._addresses.setdefault(where, f"{prefix}.{len(self._addresses) + 1}")

    def create(self, side: Side, kind: str, body: Object) -> Object:
        """Create an object, with what the API server adds to it."""
        value = copy.deepcopy(body)
        where = (kind, namespace_of(value), name_of(value))
        if where in self.sides[side]:
            raise CaseError(f"{where} is created, but exists")
        if kind == "Pod":
            self._admit_pod(side, value)
        self._count += 1
        value |= {"kind": kind}
        value["metadata"] |= {"uid": f"{side}-{self._count}", "generation": 1}
        self._store(side, where, value)
        return value

    def _admit_pod(self, side: Side, value: Object) -> None:
        """The admission of priority classes."""
        spec = value["spec"]
        name = spec.get("priorityClassName")
        if not name:
            return
        found = self.sides[side].get(("PriorityClass", "", name))
        if found is None and name not in _SYSTEM_PRIORITIES:
            pod = f'pods "{value["metadata"]["name"]}" is forbidden'
            raise AdmissionError(f"{pod}: no PriorityClass with name {name} was found")
        spec["priority"] = _SYSTEM_PRIORITIES[name] if found is None else found["value"]
        spec["preemptionPolicy"] = "PreemptLowerPriority" if found is None else found["preemptionPolicy"]

    def patch(
        self, side: Side, where: _ObjectKey, patch: Any, subresource: str = "", *, is_strategic: bool = False
    ) -> None:
        value = self.sides[side][where]
        if is_strategic:
            self._store(side, where, _strategic(value, patch))
            return
        if subresource == "status":
            patch = {"status": patch["status"]}
        elif isinstance(patch, dict):
            patch = {name: field for name, field in patch.items() if name != "status"}
        self._store(
            side, where, _json_patched(value, patch) if isinstance(patch, list) else merged(value, patch)
        )

    def delete(self, side: Side, where: _ObjectKey) -> None:
        del self.sides[side][where]

    def reconcile(self, kind: str, namespace: str, name: str) -> None:
        """Plan and carry out until there is nothing left to do. Raises CaseError."""
        self.refused_by_server = ""
        for _ in range(_MOST_ROUNDS):
            plan = self._plan(kind, namespace, name)
            if plan is None or not plan.actions:
                return
            try:
                for action in plan.actions:
                    self._carry_out(action)
            except AdmissionError as error:
                self.refused_by_server = str(error)
                return
        raise CaseError(f"{kind} {namespace}/{name}: {self.last_plan.actions}")

    def _plan(self, kind: str, namespace: str, name: str) -> Plan | None:
        sync = KINDS[kind]
        tenant = self.sides[Side.TENANT].get((kind, namespace, name))
        found = self.found(sync, namespace, name)
        if tenant is None and found is None:
            return None
        view = self.view()
        objects = Pair(tenant, found)
        given = copy.deepcopy(objects)
        self.last_plan = sync.plan((namespace, name), given, view)
        assert given == objects, "the plan has changed an object"
        return self.last_plan

    def found(self, sync: KindSync, namespace: str, name: str) -> Object | None:
        """The super object of a tenant's."""
        objects = self.sides[Side.SUPER]
        if sync.scope is Scope.NAMESPACE:
            return objects.get((sync.kind.kind, "", str(self.tenant.super_namespace(name))))
        target = str(self.tenant.super_namespace(namespace)) if namespace else ""
        value = objects.get((sync.kind.kind, target, sync.super_name(name)))
        if sync.scope is Scope.CLAIMED and value is not None:
            owner = str((value["spec"].get("claimRef") or {}).get("namespace"))
            return value if owner in set(self._super_namespaces()) else None
        return value

    def _super_namespaces(self) -> Iterator[str]:
        for kind, _, name in self.sides[Side.TENANT]:
            if kind == "Namespace":
                yield str(self.tenant.super_namespace(name))

    def _carry_out(self, action: Any) -> None:
        match action:
            case Create():
                self.create(action.side, action.kind.kind, action.body)
            case Patch():
                where = (action.kind.kind, action.namespace, action.name)
                if self.sides[action.side][where]["metadata"]["uid"] != action.uid:
                    raise CaseError(f"{where} is another object")
                self.patch(
                    action.side, where, action.body, action.subresource, is_strategic=action.is_strategic
                )
            case Delete():
                self.delete(action.side, (action.kind.kind, action.namespace, action.name))
            case Bind():
                self._bind(action)
            case IssueTokens():
                labels = {keys.POD_TOKENS: action.uid}
                target = str(self.tenant.super_namespace(action.namespace))
                meta = {"name": action.secret_name, "namespace": target, "labels": labels}
                self.create(Side.SUPER, "Secret", {"metadata": meta})

    def _bind(self, action: Bind) -> None:
        pod = self.sides[Side.TENANT][("Pod", action.namespace, action.name)]
        pod["spec"]["nodeName"] = action.node
        conditions = pod.setdefault("status", {}).setdefault("conditions", [])
        conditions.append({"type": "PodScheduled", "status": "True"})

    def _store(self, side: Side, where: _ObjectKey, value: Object) -> None:
        self._count += 1
        value["metadata"]["resourceVersion"] = str(self._count)
        set_defaults(
            where[0], value, lambda: self.address(side, where[1], where[2]), lambda: 30000 + self._count
        )
        self.sides[side][where] = value


def _strategic(value: Any, patch: Any) -> Any:
    """The strategic merge patch applied: lists of named items and of typed ones are merged."""
    if isinstance(patch, dict):
        found = dict(value) if isinstance(value, dict) else {}
        for name, field in patch.items():
            if field is None:
                found.pop(name, None)
            else:
                found[name] = _strategic(found.get(name), field)
        return found
    merge_key = next((key for key in ("name", "type") if _is_list_of(patch, key)), "")
    if not merge_key or not isinstance(value, list):
        return patch
    items = {each[merge_key]: each for each in value}
    for each in patch:
        if each.get("$patch") == "delete":
            items.pop(each[merge_key], None)
        else:
            items[each[merge_key]] = _strategic(items.get(each[merge_key]), each)
    return list(items.values())


def _is_list_of(value: Any, key: str) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(isinstance(each, dict) and key in each for each in value)
    )


def _json_patched(value: Object, patch: list[Any]) -> Object:
    """The JSON patch applied, as far as cases need it: `add`, to a list or an object."""
    found = copy.deepcopy(value)
    for operation in patch:
        *path, last = str(operation["path"]).strip("/").split("/")
        target: Any = found
        for name in path:
            target = target[int(name)] if isinstance(target, list) else target.setdefault(name, [])
        if isinstance(target, list):
            target.append(operation["value"])
        else:
            target[last] = operation["value"]
    return found
