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
# Nodes of the ring have their images, and no registry.
_BASE: JsonObject = {"pods": {"imagePull": "AsWritten"}}


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
    """The policy of all tenants, `default`, with more allowed; afterwards it is the ring's again."""
    replace(api, spec)
    try:
        yield
    finally:
        replace(api, {})


def replace(api: KubernetesApi, spec: JsonObject) -> None:
    """Give all tenants a policy, beside what the ring itself needs."""
    found = _BASE | spec
    if "pods" in spec:
        found["pods"] = _BASE["pods"] | spec["pods"]
    metadata = {"name": "default", "namespace": HOME}
    value = {"apiVersion": _GROUP, "kind": "SyncPolicy", "metadata": metadata, "spec": found}
    if api.create(_PATH, value, may_exist=True):
        return
    metadata["resourceVersion"] = api.get(f"{_PATH}/default")["metadata"]["resourceVersion"]
    api.put(f"{_PATH}/default", value)
