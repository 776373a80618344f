# SPDX-License-Identifier: Apache-2.0
"""Writes namespaces into the API server, and passes the stored objects to its handlers."""

from collections.abc import Callable

from tenancy import keys
from tests.k8s.oracle.changes import SERVICES, SLICES, ObjectChange
from tests.k8s.oracle.cluster import Api, InvalidObjectError
from tests.k8s.oracle.draw import DrawnNamespace, Json
from tests.k8s.oracle.sides import OracleNode

TENANT = "tenant-1-70b001-oracle"
_GROUPS = {SERVICES: "/api/v1", SLICES: "/apis/discovery.k8s.io/v1"}

OnUpdate = Callable[[Json], None]
OnDelete = Callable[[str, str, str], None]


class Store:
    """`on_update` gets each object as the API server returns it.

    `on_delete` gets kind, namespace and name of a deleted one.
    """

    def __init__(self, api: Api, on_update: OnUpdate, on_delete: OnDelete) -> None:
        self._api = api
        self._on_update = on_update
        self._on_delete = on_delete
        self.refused: list[str] = []
        self.written = 0
        self.services: dict[tuple[str, str], Json] = {}
        """The current Services by namespace and name."""

    def put_node(self, node: OracleNode) -> None:
        """A Node of that zone; later, the same Node in another zone."""
        metadata = {"name": node.name, "labels": {"topology.kubernetes.io/zone": node.zone}}
        value: Json = {"apiVersion": "v1", "kind": "Node", "metadata": metadata}
        path = f"/api/v1/nodes/{node.name}"
        self._api.create("/api/v1/nodes", value)
        addresses = [{"type": "InternalIP", "address": ip} for ip in node.node_ips]
        made = self._api.patch(f"{path}/status", {"status": {"addresses": addresses}})
        self._on_update(made | {"apiVersion": "v1", "kind": "Node"})

    def move_node(self, node: str, zone: str) -> None:
        patch = {"metadata": {"labels": {"topology.kubernetes.io/zone": zone}}}
        self._on_update(self._api.patch(f"/api/v1/nodes/{node}", patch))

    def put_namespace(self, name: str) -> None:
        """A namespace of the tenant's."""
        metadata = {"name": name, "annotations": {keys.CLUSTER: TENANT, keys.NAMESPACE: name}}
        value: Json = {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata}
        self._on_update(self._api.create("/api/v1/namespaces", value))

    def put_drawn(self, drawn: DrawnNamespace) -> None:
        """Write all objects of a namespace; those that the API server refuses are removed from it."""
        self.put_namespace(drawn.name)
        for kind, objects in ((SERVICES, drawn.services), (SLICES, drawn.slices)):
            for name, value in list(objects.items()):
                try:
                    self.create(kind, value)
                except InvalidObjectError as error:
                    self.refused.append(f"{drawn.name}/{name}: {error}")
                    del objects[name]

    def create(self, kind: str, value: Json) -> Json:
        """Raises InvalidObjectError; a Service whose status is refused is deleted again."""
        path = _path(kind, value["metadata"]["namespace"])
        made = self._api.create(path, value)
        ingress = value.get("status", {}).get("loadBalancer", {}).get("ingress")
        if ingress:
            name = value["metadata"]["name"]
            try:
                made = self._api.patch(f"{path}/{name}/status", {"status": value["status"]})
            except InvalidObjectError:
                self._api.delete(f"{path}/{name}")
                raise
        self._record(kind, made)
        return made

    def apply(self, change: ObjectChange) -> bool:
        """Apply a change; False if the API server refused it."""
        path = _path(change.kind, change.after.name)
        one = f"{path}/{change.name}"
        try:
            match change.verb:
                case "create":
                    self.create(change.kind, change.value)
                case "put":
                    self._record(change.kind, self._api.put(one, change.value))
                case "patch":
                    target = f"{one}/status" if change.is_status else one
                    self._record(change.kind, self._api.patch(target, change.value))
                case _:
                    self.delete(change.kind, change.after.name, change.name)
        except InvalidObjectError as error:
            self.refused.append(f"{change}: {error}")
            return False
        return True

    def delete(self, kind: str, namespace: str, name: str) -> None:
        self._api.delete(f"{_path(kind, namespace)}/{name}")
        self.written += 1
        if kind == SERVICES:
            self.services.pop((namespace, name), None)
        self._on_delete(kind, namespace, name)

    def _record(self, kind: str, made: Json) -> None:
        self.written += 1
        if kind == SERVICES:
            metadata = made["metadata"]
            self.services[metadata["namespace"], metadata["name"]] = made
        self._on_update(made)


def _path(kind: str, namespace: str) -> str:
    return f"{_GROUPS[kind]}/namespaces/{namespace}/{kind}"
