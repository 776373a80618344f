# SPDX-License-Identifier: Apache-2.0
"""Requests to one API server. `kubectl.py` makes them by kubectl; devkit has a fake in memory."""

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol

from kubectl_vc.core.view import Object, TenantView

# Instead of a namespace: that of the kubeconfig's context.
DEFAULT_NAMESPACE = ""
EVERY_NAMESPACE = "*"


class WatchEvent(NamedTuple):
    """What a watch yields: `ADDED`, `MODIFIED` or `DELETED`, and the object then."""

    type: str
    value: Object


class ApiServer(Protocol):
    """One API server with one person's credentials. Each method raises `RequestError`."""

    def config(self, words: Sequence[str]) -> str:
        """What `kubectl config` prints: of the person's kubeconfigs, not of the API server."""

    def get(self, resource: str, name: str, namespace: str = DEFAULT_NAMESPACE) -> Object:
        """One object."""

    def list_objects(
        self,
        resource: str,
        namespace: str = DEFAULT_NAMESPACE,
        *,
        names: Sequence[str] = (),
        selector: Mapping[str, str] | None = None,
    ) -> list[Object]:
        """All objects, or those of these names. `selector` is of fields."""

    def printed(self, resource: str, namespace: str, names: Sequence[str], output: str) -> str:
        """What `kubectl get -o OUTPUT` prints."""

    def create(
        self, manifest: Object, namespace: str = DEFAULT_NAMESPACE, *, dry_run: bool = False
    ) -> Object:
        """The object that was made."""

    def patch(
        self, resource: str, name: str, namespace: str, patch: object, *, is_json_patch: bool = False
    ) -> Object:
        """A merge patch, or a JSON patch (RFC 6902); returns the object after it."""

    def delete(self, view: TenantView) -> None:
        """Delete the VirtualCluster of this UID, without waiting."""

    def watch(self, resource: str, view: TenantView, until: float) -> Iterator[WatchEvent]:
        """Changes of one object from now on, first its state; ends at the monotonic time `until` or with the
        object. A connection that breaks is made again."""
