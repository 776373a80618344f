# SPDX-License-Identifier: Apache-2.0
"""Runs sync cases against the plans of the kinds, on API servers in memory."""

import copy
import fnmatch
import re
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from syncer.core.plan import Side
from syncer.core.tenant_cluster import TenantCluster
from syncer.kinds.port import Scope
from syncer.policy.sync_policy import DEFAULT
from tenancy import names
from tests.cases.sync.changes import changes, differs
from tests.cases.sync.load import (
    Case,
    Differences,
    Everywhere,
    SyncFile,
    WorldObject,
    differences,
    merged,
    with_difference,
    with_policy,
)
from tests.cases.sync.placeholders import TIME, Placeholders, UnknownPlaceholderError
from tests.cases.sync.policy import PERMISSIVE
from tests.cases.sync.server_defaults import Object, compared
from tests.cases.sync.tenant_events import events_of
from tests.cases.sync.vnodes import VNodeRun
from tests.cases.sync.world import KINDS, CaseError, World

_AGAIN = re.compile(r"tenant delete \(grace 0\) and create again, (.*?)(?:, then wait for a patrol.*)?")
_ENV = "${KUBERNETES_ENV}"
_NODE = "Node"
# What stands in for the super cluster's scheduler and kubelet.
_RUNNING = {
    "phase": "Running",
    "conditions": [
        {"type": name, "status": "True", "lastTransitionTime": TIME}
        for name in ("Initialized", "Ready", "ContainersReady", "PodScheduled")
    ],
    "hostIP": "192.0.2.2",
    "podIP": "10.1.0.1",
    "podIPs": [{"ip": "10.1.0.1"}],
    "startTime": TIME,
}


@dataclass(frozen=True, slots=True)
class SyncCaseResult:
    """The result of a case; `note` has why it was left out."""

    case: Case
    failures: tuple[str, ...]
    took_s: float
    note: str = ""
    is_left_out: bool = False

    @property
    def has_passed(self) -> bool:
        return not self.failures and not self.is_left_out


class SyncRunner:
    """Runs the cases of one file."""

    def __init__(self, file: SyncFile, found: Differences | None = None) -> None:
        self._file = file
        self._differences = differences() if found is None else found

    def run(self, selected: Callable[[Case], bool] = lambda _: True) -> Iterator[SyncCaseResult]:
        """The selected cases, in the file's order."""
        for case in self._file.cases:
            if selected(case):
                start_s = time.monotonic()
                if case.kind not in KINDS and case.kind != _NODE:
                    note = f"{case.kind} has no plan of its own: tests/unit/syncer covers it"
                    yield SyncCaseResult(case, (), 0.0, note, is_left_out=True)
                    continue
                failures, note = self._judged(case)
                yield SyncCaseResult(case, tuple(failures), time.monotonic() - start_s, note)

    def _judged(self, case: Case) -> tuple[list[str], str]:
        entry = self._differences.cases.get(case.id)
        recorded = self._failures(case if entry is None else with_policy(case, entry))
        if entry is None:
            return recorded, ""
        if not recorded:
            return ["it is listed as a difference, but is as recorded"], ""
        return self._failures(with_difference(case, entry)), f"differs: {entry['reason']}"

    def _failures(self, case: Case) -> list[str]:
        try:
            found = _CaseRun(self._file, self._differences.everywhere, case)
            return list(VNodeRun(case, found.placeholders).run() if case.kind == _NODE else found.run())
        except (CaseError, UnknownPlaceholderError) as problem:
            return [f"{type(problem).__name__}: {problem}"]


class _CaseRun:
    """One case in a world of its own."""

    def __init__(
        self, file: SyncFile, everywhere: tuple[Everywhere, ...], case: Case, name: str = ""
    ) -> None:
        self._file, self._everywhere, self._case = file, everywhere, case
        vc = file.vc
        key = names.cluster_key(vc["namespace"], name or vc["name"], vc["uid"])
        prefixes = {field: tuple(file.vc_spec.get(field) or ()) for field in _PREFIXES}
        self.world = World(
            TenantCluster(
                str(key),
                vc["namespace"],
                name or vc["name"],
                vc["uid"],
                cluster_domain=str(file.vc_spec.get("clusterDomain") or ""),
                transparent_prefixes=prefixes["transparentMetaPrefixes"],
                opaque_prefixes=prefixes["opaqueMetaPrefixes"],
            ),
            DEFAULT if case.has_default_policy else PERMISSIVE,
        )
        given = case.given or case.expected.get("tenant") or case.expected.get("super") or {}
        meta = given["metadata"]
        self._name = str(meta["name"])
        namespace = str(meta.get("namespace") or "")
        self._namespace = namespace.removeprefix("${KEY}-") if namespace.startswith("${KEY}") else namespace
        self.placeholders = Placeholders(self.world, case.kind, self._namespace, self._name)

    def run(self) -> Iterator[str]:
        """A line for each difference."""
        self._prepare()
        if self._case.direction == "down":
            yield from self._run_down()
        else:
            yield from self._run_up()
        for number, step in enumerate(self._case.expected.get("after") or (), 1):
            for line in self._run_step(step):
                yield f"step {number} ({step['do']}): {line}"

    # Preparation.

    def _prepare(self) -> None:
        """The namespaces, the tenant's API server, and what the case needs."""
        for name in (*self._file.namespaces, self._namespace):
            is_own = self._case.kind == "Namespace" and name == self._name
            if name and not is_own and ("Namespace", "", name) not in self.world.sides[Side.TENANT]:
                self._make_tenant_object("Namespace", {"metadata": {"name": name}})
        if (self._case.kind, self._namespace, self._name) != ("Service", "default", "kubernetes"):
            self._make_tenant_object("Service", _API_SERVICE)
        for need in self._case.needs:
            self._make_needed(need)

    def _make_needed(self, need: str) -> None:
        kind, namespace, name = need.split("/")
        found = self._known_object(kind, namespace, name)
        if found is None:
            raise UnknownPlaceholderError(f"needs {need}, which world.objects has not")
        if found.side == "tenant":
            self._make_tenant_object(kind, self.placeholders.replaced(found.body))
            return
        self.world.create(Side.SUPER, kind, self.placeholders.replaced(found.body))
        self.world.reconcile(kind, namespace, name)

    def _known_object(self, kind: str, namespace: str, name: str) -> WorldObject | None:
        for each in self._file.objects:
            meta = each.body["metadata"]
            if (each.kind, meta.get("namespace", ""), meta["name"]) == (kind, namespace, name):
                return each
        for case in self._file.cases:
            meta = (case.given or {}).get("metadata") or {}
            where = (case.kind, meta.get("namespace", ""), meta.get("name"))
            if case.direction == "down" and where == (kind, namespace, name) and case.given is not None:
                return WorldObject("tenant", kind, case.given)
        return None

    def _make_tenant_object(self, kind: str, body: Mapping[str, Any]) -> None:
        value = self.world.create(Side.TENANT, kind, dict(body))
        namespace, name = value["metadata"].get("namespace", ""), value["metadata"]["name"]
        if kind in KINDS:
            self.world.reconcile(kind, namespace, name)

    # The two directions.

    def _run_down(self) -> Iterator[str]:
        if self._is_made_first_in_super():
            self.world.create(Side.SUPER, self._case.kind, {"metadata": self._super_name()})
        value = self.world.create(Side.TENANT, self._case.kind, self.placeholders.replaced(self._case.given))
        self.placeholders.tenant_uids.append(value["metadata"]["uid"])
        self._reconcile()
        refused = sorted(each.path for each in self.world.last_plan.refusals)
        yield from differs(sorted(self._case.expected.get("refused") or ()), refused, "refused")
        yield from self._compare_super(self._case.expected.get("super"))
        if wanted := self._case.expected.get("tenant_gets"):
            actual = self._tenant() or {}
            yield from differs(self.placeholders.replaced(wanted), _part(actual, wanted), "tenant_gets")
        events = self._case.expected.get("tenant_events")
        if events is not None:
            own = self._tenant() or {}
            found = events_of(self.world, (self._case.kind, self._namespace, self._name), own)
            yield from differs(self.placeholders.replaced(events), found, "tenant_events")
        self._stand_in()

    def _is_made_first_in_super(self) -> bool:
        """Whether a controller of the super cluster was first, as for the case `sa-default`."""
        expected = self._case.expected.get("super") or {}
        labels = ((expected.get("with") or {}).get("metadata") or {}).get("labels", {})
        return self._case.kind == "ServiceAccount" and self._name == "default" and labels is None

    def _super_name(self) -> Object:
        target = self.placeholders.super_namespace(self._namespace)
        return {"name": self._name, "namespace": target}

    def _run_up(self) -> Iterator[str]:
        expected = self._case.expected.get("tenant")
        if self._case.kind == "Pod":
            self._make_super_pod()
        elif self._case.given is None:
            self.world.create(Side.TENANT, self._case.kind, self.placeholders.replaced(expected))
        else:
            if expected is not None and self._is_own_volume(expected):
                self.world.create(Side.TENANT, self._case.kind, self.placeholders.replaced(expected))
            self._make_super_object(self.placeholders.replaced(self._case.given))
            self._bind_claims()
            self._reconcile()
        if self._case.given is None:
            return
        yield from self._compare_tenant(expected)
        yield from self._compare_other_tenant()

    def _is_own_volume(self, expected: Mapping[str, Any]) -> bool:
        """Whether a volume of the same name was made by the tenant before."""
        annotations = expected["metadata"].get("annotations") or {}
        return self._case.kind == "PersistentVolume" and "tenancy.x-k8s.io/uid" not in annotations

    def _make_super_object(self, body: Object) -> None:
        where = (self._case.kind, str(body["metadata"].get("namespace", "")), self._name)
        objects = self.world.sides[Side.SUPER]
        if where in objects:  # one of `needs`, as it is by now
            self.world.patch(Side.SUPER, where, body)
            if "status" in body:
                self.world.patch(Side.SUPER, where, body, "status")
        else:
            self.world.create(Side.SUPER, self._case.kind, body)
        self.placeholders.super_uid = objects[where]["metadata"]["uid"]

    def _make_super_pod(self) -> None:
        """The pod of the same name goes down first; then the super pod gets its node and status."""
        self._make_needed("Service/kube-system/kube-dns")
        self._make_needed(f"Pod/{self._namespace}/{self._name}")
        where = ("Pod", self.placeholders.super_namespace(self._namespace), self._name)
        given = self.placeholders.replaced(self._case.given)
        self.world.patch(Side.SUPER, where, {"spec": given["spec"]})
        self.world.patch(Side.SUPER, where, given, "status")
        self._reconcile()

    def _compare_other_tenant(self) -> Iterator[str]:
        if "every_tenant" not in self._case.expected:
            return
        other = _CaseRun(self._file, self._everywhere, self._case, "tenant-01")
        other._make_super_object(other.placeholders.replaced(self._case.given))
        other._reconcile()
        has_it = other._tenant() is not None
        if has_it != self._case.expected["every_tenant"]:
            yield f"every_tenant: expected {self._case.expected['every_tenant']}, found {has_it}"

    # Stand-ins for controllers.

    def _stand_in(self) -> None:
        """What runs in the super cluster beside the syncer has done its work before the steps begin."""
        if self._case.kind == "Pod" and (found := self._super()) is not None:
            where = ("Pod", found["metadata"]["namespace"], self._name)
            status = copy.deepcopy(_RUNNING)
            status["containerStatuses"] = [
                {
                    "name": each["name"],
                    "image": each["image"],
                    "imageID": each["image"],
                    "lastState": {},
                    "ready": True,
                    "restartCount": 0,
                    "started": True,
                    "state": {"running": {"startedAt": TIME}},
                }
                for each in found["spec"]["containers"]
            ]
            self.world.patch(Side.SUPER, where, {"spec": {"nodeName": "node-1"}})
            self.world.patch(Side.SUPER, where, {"status": status}, "status")
            self._reconcile()
        self._bind_claims()

    def _bind_claims(self) -> None:
        """The binders of both sides: the one super claim and the one super volume that fit."""
        objects = self.world.sides[Side.SUPER]
        claims = [value for (kind, _, _), value in objects.items() if kind == "PersistentVolumeClaim"]
        volumes = [value for (kind, _, _), value in objects.items() if kind == "PersistentVolume"]
        if len(claims) != 1 or len(volumes) != 1:
            return
        claim, volume = claims[0], volumes[0]
        meta = claim["metadata"]
        ref = {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "namespace": meta["namespace"],
            "name": meta["name"],
            "uid": meta["uid"],
        }
        volume["spec"]["claimRef"] = ref
        volume["status"] = {"phase": "Bound"}
        claim["spec"]["volumeName"] = volume["metadata"]["name"]
        claim["status"] = {"phase": "Bound", "capacity": volume["spec"]["capacity"]}
        for _ in range(2):
            self.world.reconcile("PersistentVolume", "", volume["metadata"]["name"])
            self.world.reconcile(
                "PersistentVolumeClaim", meta["annotations"]["tenancy.x-k8s.io/namespace"], meta["name"]
            )

    # Steps.

    def _run_step(self, step: Mapping[str, Any]) -> Iterator[str]:
        before = self._snapshot()
        uid = (self._super() or {}).get("metadata", {}).get("uid")
        tenant_before = self._do(str(step["do"]), self.placeholders.replaced(step.get("patch")))
        if tenant_before is not None:
            before[Side.TENANT] = tenant_before
        self._reconcile()
        after = self._snapshot()
        for side in (Side.SUPER, Side.TENANT):
            if side not in step:
                continue
            effect = step[side.value]
            was, now = before[side], after[side]
            for line in self._compare_effect(effect, was, now):
                yield f"{side}: {line}"
            is_remade = uid != (self._super() or {}).get("metadata", {}).get("uid")
            if isinstance(effect, dict) and "made_again" in effect and not is_remade:
                yield f"{side}: it was not made again"

    def _do(self, text: str, patch: Any) -> Object | None:
        """Carry a step out. Returns the tenant's object after a change of its own."""
        word, _, what = text.removesuffix(", then wait for a patrol (60 s)").partition(" ")
        side = Side.SUPER if word == "super" else Side.TENANT
        where = self._where(side)
        again = _AGAIN.fullmatch(text)
        if text.startswith("wait for a patrol"):
            return None
        if where not in self.world.sides[side]:
            raise CaseError(f"there is no object to {text}")
        if again:
            given = self.placeholders.replaced(self._case.given)
            self.world.delete(side, where)
            value = self.world.create(side, self._case.kind, _changed(given, again[1]))
            self.placeholders.tenant_uids.append(value["metadata"]["uid"])
        elif what == "delete":
            self._delete(side, where)
        elif what in ("merge patch", "JSON patch"):
            self.world.patch(side, where, patch)
        elif what == "patch of status":
            self.world.patch(side, where, _with_times(self.world.sides[side][where], patch), "status")
        elif what == "patch of ephemeralcontainers":
            self.world.patch(side, where, patch)
        else:
            raise UnknownPlaceholderError(f"step {text!r}")
        return self._snapshot()[Side.TENANT] if side is Side.TENANT else None

    def _delete(self, side: Side, where: tuple[str, str, str]) -> None:
        """Pods end gracefully: each side sees the other's deletion before its own object is gone."""
        value = self.world.sides[side][where]
        grace = (value.get("spec") or {}).get("terminationGracePeriodSeconds", 0)
        if self._case.kind == "Pod" and grace:
            value["metadata"] |= {
                "deletionTimestamp": "2024-01-01T00:01:00Z",
                "deletionGracePeriodSeconds": grace,
            }
            self._reconcile()
        self.world.sides[side].pop(where, None)

    # Comparisons.

    def _compare_super(self, expected: Any) -> Iterator[str]:
        actual = self._super()
        if expected is None or actual is None:
            if (expected is None) != (actual is None):
                yield f"super: expected {'none' if expected is None else 'one'}; plan: {self.world.last_plan}"
            return
        wanted = self._replaced(self._whole(expected))
        if "status" not in wanted:
            actual = {name: field for name, field in actual.items() if name != "status"}
        found = self._compared(actual)
        if self._case.kind == "Pod":
            (found.get("spec") or {}).pop("nodeName", None)
        yield from differs(self._compared(wanted), found, "super")

    def _compare_tenant(self, expected: Any) -> Iterator[str]:
        actual = self._tenant()
        if expected is None or actual is None:
            if (expected is None) != (actual is None):
                yield f"tenant: expected {'none' if expected is None else 'one'}"
            return
        wanted = self._compared(self._replaced(expected))
        found = self._compared(actual)
        # The status of these is that of the tenant's own controllers.
        if self._case.kind in ("CustomResourceDefinition", "PersistentVolume") or "status" not in wanted:
            wanted.pop("status", None)
            found.pop("status", None)
        if self._case.kind == "Pod":
            found["spec"] = {"nodeName": found["spec"].get("nodeName")}
        yield from differs(wanted, found, "tenant")

    def _compare_effect(self, effect: Any, was: Object | None, now: Object | None) -> Iterator[str]:
        if effect in ("gone", "absent"):
            if now is not None:
                yield f"expected {effect}"
        elif effect == "unchanged":
            if found := list(changes(was, now)):
                yield f"expected unchanged, found {found}"
        elif "changed" in effect:
            wanted = self._replaced(effect["changed"])
            for each in wanted:
                for name in ("was", "now"):
                    each[name] = _without_nulls(each[name])
            found = list(changes(was, now))
            order: Callable[[Any], str] = lambda each: str(each["path"])  # noqa: E731 - used twice, here
            yield from differs(sorted(wanted, key=order), sorted(found, key=order), "changed")
        else:
            wanted = self._compared(self._replaced(effect.get("made_again") or effect["made"]))
            if now is None:
                yield "expected one, found none"
                return
            found_object = copy.deepcopy(now)
            found_object.pop("status", None)
            if self._case.kind == "Pod":
                found_object["spec"].pop("nodeName", None)
            yield from differs(wanted, found_object, "made")

    def _whole(self, expected: Any) -> Any:
        if "base" not in expected:
            return expected
        return merged(self._file.bases[expected["base"]], expected.get("with") or {})

    def _replaced(self, value: Any) -> Any:
        return self.placeholders.replaced(self._with_env(value))

    def _with_env(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {name: self._with_env(field) for name, field in value.items()}
        if isinstance(value, list):
            made: list[Any] = []
            for each in value:
                if each == _ENV:
                    made += self._file.kubernetes_env
                else:
                    made.append(self._with_env(each))
            return made
        return value

    def _compared(self, value: Object) -> Object:
        spec = (self._case.given or {}).get("spec") or {} if self._case.kind == "Pod" else {}
        containers = (*(spec.get("containers") or ()), *(spec.get("initContainers") or ()))
        users = {each["name"]: [env["name"] for env in each.get("env") or ()] for each in containers}
        found = compared(self._case.kind, value, users)
        for each in self._everywhere:
            if each.kind == self._case.kind:
                _drop_fields(found, each.path)
        return found

    def _snapshot(self) -> dict[Side, Object | None]:
        found = {Side.TENANT: self._tenant(), Side.SUPER: self._super()}
        return {side: None if value is None else self._compared(value) for side, value in found.items()}

    # The case's own object on both sides.

    def _where(self, side: Side) -> tuple[str, str, str]:
        if side is Side.TENANT:
            return self._case.kind, self._namespace, self._name
        found = self._super()
        meta = {} if found is None else found["metadata"]
        return self._case.kind, str(meta.get("namespace", "")), str(meta.get("name"))

    def _tenant(self) -> Object | None:
        return self.world.sides[Side.TENANT].get(self._where(Side.TENANT))

    def _super(self) -> Object | None:
        sync = KINDS[self._case.kind]
        if sync.scope is Scope.CLAIMED:
            return self.world.sides[Side.SUPER].get((self._case.kind, "", self._name))
        return self.world.found(sync, self._namespace, self._name)

    def _reconcile(self) -> None:
        self.world.reconcile(self._case.kind, self._namespace, self._name)


_PREFIXES = ("transparentMetaPrefixes", "opaqueMetaPrefixes")
_API_SERVICE: Mapping[str, Any] = {
    "metadata": {
        "name": "kubernetes",
        "namespace": "default",
        "labels": {"component": "apiserver", "provider": "kubernetes"},
    },
    "spec": {"ports": [{"name": "https", "protocol": "TCP", "port": 443, "targetPort": 6443}]},
}


def _part(value: Any, shape: Any) -> Any:
    """The fields of a value that another one has too."""
    if not (isinstance(value, dict) and isinstance(shape, dict)):
        return value
    return {name: _part(value[name], field) for name, field in shape.items() if name in value}


def _drop_fields(value: Any, path: tuple[str, ...]) -> None:
    """Drop the fields at a path whose last part is a pattern; and what holds nothing else."""
    if not isinstance(value, dict):
        return
    for name in [each for each in value if fnmatch.fnmatchcase(each, path[0])]:
        if len(path) == 1:
            del value[name]
            continue
        _drop_fields(value[name], path[1:])
        if value[name] == {}:
            del value[name]


def _changed(given: Object, text: str) -> Object:
    """The object that is made again: `data {k: two}` or `image app:2`."""
    name, _, value = text.partition(" ")
    if name == "image":
        containers = [{**given["spec"]["containers"][0], "image": value}]
        return {**given, "spec": {**given["spec"], "containers": containers}}
    return {**given, name: yaml.safe_load(value)}


def _with_times(value: Object, patch: Any) -> Any:
    """A strategic merge of conditions by type, as the status of pods is patched."""
    conditions = (patch.get("status") or {}).get("conditions")
    if not conditions:
        return patch
    merged_conditions = {each["type"]: each for each in (value.get("status") or {}).get("conditions") or ()}
    for each in conditions:
        merged_conditions[each["type"]] = merged_conditions.get(each["type"], {}) | each
    return {"status": {**patch["status"], "conditions": list(merged_conditions.values())}}


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(field) for name, field in value.items() if field is not None}
    return [_without_nulls(each) for each in value] if isinstance(value, list) else value
