# SPDX-License-Identifier: Apache-2.0
"""Single requests to a fake API server, whatever brings them: all but watches."""

from collections.abc import Mapping
from dataclasses import replace

import msgspec

from devkit.kube import server_side_apply, size_rules
from devkit.kube import wire as wire
from devkit.kube.cluster import Cluster
from devkit.kube.storage import Object, Selection, StatusError


def target_of(cluster: Cluster, path: str) -> wire.Target:
    """What a path names in this cluster. Raises StatusError 404."""
    found = wire.full_target(path)
    return replace(found, resource=cluster.scoped(found.resource))


def check_installed(cluster: Cluster, target: wire.Target) -> None:
    """Raise StatusError 404 for a resource that the server does not have."""
    if target.resource in cluster.storage.absent:
        raise StatusError(404, "NotFound", "the server could not find the requested resource")


def carry_out(
    cluster: Cluster,
    verb: str,
    target: wire.Target,
    selection: Selection,
    query: Mapping[str, str],
    content_type: str,
    body: bytes,
    manager: str = "",
) -> tuple[int, Object]:
    """The code and the body of the answer. Raises StatusError.

    `manager` is who sent it, for the record of who wrote what; without one there is none.
    """
    manager = query.get("fieldManager") or manager
    check_installed(cluster, target)
    size_rules.check_request(body)
    resource, namespace, name = target.resource, target.namespace, target.name
    match verb:
        case "list":
            return 200, wire.list_page(cluster.storage, selection, query)
        case "get":
            return 200, cluster.storage.get(resource, namespace, name)
        case "delete":
            return 200, cluster.delete(resource, namespace, name, _delete_options(query, body))
        case "deletecollection":
            items = cluster.delete_all(selection, _delete_options(query, body))
            metadata = {"resourceVersion": str(cluster.storage.revision)}
            return 200, wire.typed(resource, "List") | {"metadata": metadata, "items": items}
        case "patch" if content_type.startswith(server_side_apply.CONTENT_TYPE):
            value, is_new = cluster.apply(
                resource,
                namespace,
                name,
                body,
                query.get("fieldManager", ""),
                is_forced=query.get("force") == "true",
                subresource=target.subresource,
            )
            return 201 if is_new else 200, value
        case "patch":
            return 200, cluster.patch(
                resource, namespace, name, target.subresource, content_type, body, manager
            )
    value = wire.sent_object(body, resource, namespace, name)
    if verb == "update":
        return 200, cluster.update(resource, value, target.subresource, manager)
    if target.subresource:
        return 201, cluster.act(resource, namespace, name, target.subresource, value)
    return 201, cluster.create(resource, value, manager)


def _delete_options(query: Mapping[str, str], body: bytes) -> Object:
    try:
        options = msgspec.json.decode(body, type=Object) if body else {}
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise StatusError(400, "BadRequest", f"the body is no object: {error}") from None
    if query.get("gracePeriodSeconds"):
        options["gracePeriodSeconds"] = wire.number(query["gracePeriodSeconds"])
    return options
