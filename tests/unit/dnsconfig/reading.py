# SPDX-License-Identifier: Apache-2.0
"""JSON objects, decoded as by a watch."""

from collections.abc import Iterable
from typing import Any

from daemonkit.kube.resources import Key
from tests.cluster_states import decode_object
from tests.unit.dnsconfig.objects import Json


def read_all(items: Iterable[Json]) -> dict[str, dict[Key, Any]]:
    """By kind, then by (namespace, name)."""
    found: dict[str, dict[Key, Any]] = {}
    for item in items:
        value = decode_object(item)
        assert value is not None
        found.setdefault(item["kind"], {})[value.metadata.namespace, value.metadata.name] = value
    return found
