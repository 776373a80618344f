# SPDX-License-Identifier: Apache-2.0
"""The load of one tenant on vc-syncer: objects that it makes and deletes, with its marker in each.

Nothing of it may fail, whatever fault is at work: an object may be late, but it comes, and it goes.
"""

import json
from collections.abc import Callable
from itertools import count

from daemonkit.kube.event_recorder import EVENTS
from daemonkit.kube.resources import CONFIG_MAPS, NAMESPACES, NODES, PODS, SERVICES, Resource
from devkit.kube.storage import Object
from tests.soak.answers import OK, foreign_words
from tests.soak.load import LoadThread
from tests.soak.node import NAMESPACE, SoakNode, SoakTenant
from tests.soak.recorder import LeakError, Recorder
from tests.waiting import holds_within
from vcnode_demo.control_plane import DemoControlPlane
from vcnode_demo.tenant_client import RefusedError, TenantClient

KINDS = ("synced ConfigMap", "synced Service", "synced Pod", "sweep")
# Longer than any fault, on a busy machine.
LATE_S = 180.0
_REST_S = 0.3
_DOWN = (NAMESPACES, CONFIG_MAPS, SERVICES, PODS)
_UP = (*_DOWN, NODES, EVENTS)


class SyncLoad:
    """One thread of one tenant."""

    def __init__(self, node: SoakNode, tenant: SoakTenant, recorder: Recorder) -> None:
        self._node = node
        self._tenant = tenant
        self._recorder = recorder
        self._numbers = count(1)
        self._namespace = node.syncer.super_namespace(tenant.name, NAMESPACE)
        self._caller: TenantClient = node.caller(tenant)

    @property
    def _plane(self) -> DemoControlPlane:
        return self._node.syncer.planes[self._tenant.name]

    def thread(self) -> LoadThread:
        """The namespace exists from now on."""
        self._plane.create(NAMESPACES, "", NAMESPACE)
        name = f"synced objects of {self._tenant.name}"
        return LoadThread(name, self._recorder, self.round, least_rest_s=_REST_S, is_patient=True)

    def round(self) -> bool:
        """One object of each kind comes and goes; then all that is there is looked at."""
        calls = (self._config_map, self._service, self._pod, self._sweep)
        return all(self._ask(kind, call) for kind, call in zip(KINDS, calls, strict=True))

    def _ask(self, kind: str, call: Callable[[], str]) -> bool:
        return self._recorder.ask(kind, self._tenant.name, call)

    # ---- objects

    def _config_map(self) -> str:
        name, data = self._name(), {"owner": self._tenant.marker}
        self._plane.create(CONFIG_MAPS, NAMESPACE, name, data=data)
        return (
            self._late("in the super cluster", lambda: self._below(CONFIG_MAPS, name).get("data") == data)
            or self._delete(CONFIG_MAPS, name)
            or OK
        )

    def _service(self) -> str:
        name = self._name()
        ports = [{"name": "http", "port": 80, "targetPort": 8080}]
        spec = {"selector": {"owner": self._tenant.marker}, "ports": ports}
        self._plane.create(SERVICES, NAMESPACE, name, spec=spec)
        return (
            self._late("in the super cluster", lambda: bool(self._below(SERVICES, name)))
            or self._delete(SERVICES, name)
            or OK
        )

    def _pod(self) -> str:
        name = self._name()
        labels = {"owner": self._tenant.marker}
        containers = [{"name": "app", "image": "registry.example/web:1"}]
        self._plane.create(
            PODS, NAMESPACE, name, metadata={"labels": labels}, spec={"containers": containers}
        )
        return (
            self._late("running for its tenant", lambda: self._phase(name) == "Running")
            or self._late("served by vn-agent", lambda: self._is_logged(name))
            or self._delete(PODS, name)
            or OK
        )

    def _phase(self, name: str) -> str:
        pod = self._plane.find(PODS, NAMESPACE, name) or {}
        return str((pod.get("status") or {}).get("phase"))

    def _is_logged(self, name: str) -> bool:
        """Whether its tenant reads the log of exactly this pod. Raises LeakError."""
        try:
            answer = self._caller.get(f"/containerLogs/{NAMESPACE}/{name}/app")
        except (RefusedError, OSError):
            return False
        self._check(answer.comparable)
        return answer.status == 200 and f"{self._namespace}/{name}/app " in answer.text

    def _delete(self, resource: Resource, name: str) -> str:
        self._plane.delete(resource, NAMESPACE, name)
        return self._late("gone on both sides", lambda: self._is_gone(resource, name))

    def _is_gone(self, resource: Resource, name: str) -> bool:
        return not self._below(resource, name) and self._plane.find(resource, NAMESPACE, name) is None

    # ---- all of the tenant

    def _sweep(self) -> str:
        """What is in its super namespaces, and in its control plane, is its own."""
        namespaces = self._node.super_cluster.objects(NAMESPACES)
        own = [each for each in namespaces if each["metadata"]["name"].startswith(self._tenant.identity.key)]
        for each in own:
            self._check_object(each)
            for resource in _DOWN[1:]:
                for value in self._node.super_cluster.objects(resource, each["metadata"]["name"]):
                    self._check_object(value)
        for resource in _UP:
            for value in self._plane.objects(resource):
                self._check_object(value)
        return OK if own else "no namespace in the super cluster"

    def _check_object(self, value: Object) -> None:
        self._check(json.dumps(value).encode())

    def _check(self, data: bytes) -> None:
        found = foreign_words(data, self._node.foreign_words(self._tenant))
        if found:
            raise LeakError(f"it has {found} of another tenant's: {data[:300]!r}")

    # ---- waiting

    def _name(self) -> str:
        return f"{self._tenant.marker}-{next(self._numbers)}"

    def _below(self, resource: Resource, name: str) -> Object:
        return self._node.super_cluster.find(resource, self._namespace, name) or {}

    def _late(self, what: str, condition: Callable[[], bool]) -> str:
        """Empty once the condition holds, else how it failed."""
        return "" if holds_within(condition, LATE_S) else f"not {what} within {LATE_S:.0f} s"
