# SPDX-License-Identifier: Apache-2.0
"""SyncPolicies of the ring's tenants: what their objects may have to go down."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import yaml

from tests.k8s.ring import virtual_clusters
from tests.k8s.ring.api import JsonObject, KubernetesApi
from tests.k8s.ring.processes import wait_for
from tests.k8s.syncer.provisioned import HOME

_GROUP = "vcnode.io/v1alpha1"
_PATH = f"/apis/{_GROUP}/namespaces/{HOME}/syncpolicies"
_SERVED_S = 20.0


def install(api: KubernetesApi) -> None:
    """Apply the shipped definition and wait until the apiserver serves it."""
    document = yaml.safe_load((virtual_clusters.SHIPPED / "syncpolicies.yaml").read_text())
    api.create(virtual_clusters.CRDS, document, may_exist=True)
    wait_for(
        "SyncPolicies are served",
        lambda: api.endpoint.request("GET", f"/apis/{_GROUP}/syncpolicies").status == 200,
        timeout_s=_SERVED_S,
    )


@contextmanager
def applied(api: KubernetesApi, **spec: JsonObject) -> Iterator[None]:
    """The policy of all tenants, `default`; afterwards it is the built-in one again."""
    metadata = {"name": "default", "namespace": HOME}
    api.create(_PATH, {"apiVersion": _GROUP, "kind": "SyncPolicy", "metadata": metadata, "spec": spec})
    try:
        yield
    finally:
        api.delete(f"{_PATH}/default")
