# SPDX-License-Identifier: Apache-2.0
"""Which pods of a component may run, and where they listen."""

from __future__ import annotations

import pytest

from tenant_operator.edge.control_plane_pods import ComponentPod, pods_of
from tests.unit.tenant_operator.edge.api_answers import FakeAnswers

pytestmark = pytest.mark.asyncio

READY = [{"type": "Initialized", "status": "True"}, {"type": "Ready", "status": "True"}]
ITEMS = [
    {
        "metadata": {"name": "one", "annotations": {"vcnode.io/files-digest": "d"}},
        "status": {"phase": "Running", "podIP": "10.0.0.1", "conditions": READY},
    },
    {"metadata": {"name": "two"}, "status": {"phase": "Pending"}},
    {"metadata": {"name": "three"}, "status": {"phase": "Running", "podIP": "fd00::1"}},
    {"metadata": {"name": "ended"}, "status": {"phase": "Failed", "podIP": "10.0.0.3"}},
]


async def test_pods_that_may_run_are_found() -> None:
    client = FakeAnswers({"GET /api/v1/namespaces/key/pods": {"items": ITEMS}})
    found = await pods_of(client, "key", "apiserver")  # type: ignore[arg-type]
    assert found == (
        ComponentPod("one", "10.0.0.1", "d", is_ready=True),
        ComponentPod("two", ""),
        ComponentPod("three", "fd00::1"),
    )
    assert [each.url(6443) for each in found[::2]] == ["https://10.0.0.1:6443", "https://[fd00::1]:6443"]
    ((_, params),) = client.requests
    assert params["labelSelector"] == "app.kubernetes.io/component=apiserver"
