# SPDX-License-Identifier: Apache-2.0
"""The report of a backup, from the log of the Job's pod."""

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from daemonkit.kube.client import ApiError
from daemonkit.kube.resources import Status
from tenant_operator.core.observed import ProbeResult
from tenant_operator.core.probes import JobLogProbe
from tenant_operator.edge.job_log import job_log
from tenant_operator.model.objects import Ref

pytestmark = pytest.mark.asyncio
PROBE = JobLogProbe(Ref("Job", "tenants-5d8fb8-acme", "backup-1"), "uid-1")
PODS = "/api/v1/namespaces/tenants-5d8fb8-acme/pods"


class FakePods:
    """Pods of one Job, by name and phase, and the log of each."""

    def __init__(self, phases: Mapping[str, str], log: bytes = b"") -> None:
        self.phases = phases
        self.log = log
        self.asked: list[tuple[str, dict[str, str]]] = []

    async def request(self, method: str, path: str, params: Mapping[str, str], **_: Any) -> bytes:
        assert method == "GET"
        self.asked.append((path, dict(params)))
        if path == PODS:
            items = [{"metadata": {"name": n}, "status": {"phase": p}} for n, p in self.phases.items()]
            return msgspec.json.encode({"items": items})
        if not self.log:
            raise ApiError(Status(code=403, reason="Forbidden", message="no"))
        return self.log


async def test_log_is_of_the_pod_that_succeeded() -> None:
    pods = FakePods({"failed": "Failed", "done": "Succeeded"}, b'{"revision":5}\n')
    found = await job_log(pods, PROBE, 7.0)  # type: ignore[arg-type]
    assert found == ProbeResult(is_ok=True, at=7.0, facts={"uid": "uid-1", "text": '{"revision":5}\n'})
    assert pods.asked == [
        (PODS, {"labelSelector": "batch.kubernetes.io/controller-uid=uid-1", "limit": "10"}),
        (f"{PODS}/done/log", {"container": "verify", "limitBytes": "4096"}),
    ]


async def test_pod_that_is_gone_has_an_empty_log() -> None:
    found = await job_log(FakePods({"failed": "Failed"}), PROBE, 7.0)  # type: ignore[arg-type]
    assert (found.is_ok, found.facts) == (True, {"uid": "uid-1", "text": ""})
    assert found.detail == "Job tenants-5d8fb8-acme/backup-1 has no pod that succeeded"


async def test_refused_log_is_raised() -> None:
    with pytest.raises(ApiError):
        await job_log(FakePods({"done": "Succeeded"}), PROBE, 7.0)  # type: ignore[arg-type]


async def test_log_of_any_bytes_is_read() -> None:
    found = await job_log(FakePods({"done": "Succeeded"}, b"\xff\xfe"), PROBE, 7.0)  # type: ignore[arg-type]
    assert found.facts["text"] == "\ufffd\ufffd"
