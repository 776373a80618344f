# SPDX-License-Identifier: Apache-2.0
"""The log of a Job's pod: its containers have no other way to report, as their images have no shell."""

import msgspec

from daemonkit.kube.client import ApiClient
from daemonkit.kube.resources import PODS
from tenant_operator.core.observed import ProbeResult
from tenant_operator.core.probes import JobLogProbe
from tenant_operator.life.store_jobs import VERIFY
from tenant_operator.model.objects import Object

_MAX_PODS_BYTES = 1 << 20
# A report has some 100 bytes; the API server ends a longer log here.
_MAX_LOG_BYTES = 4096


async def job_log(client: ApiClient, probe: JobLogProbe, now: float) -> ProbeResult:
    """Of the container VERIFY of the pod that succeeded. Raises ApiError, UnreachableError."""
    job = probe.job
    # By the Job's UID: one of the same name before it may have left its pod.
    params = {"labelSelector": f"batch.kubernetes.io/controller-uid={probe.uid}", "limit": "10"}
    body = await client.request("GET", PODS.path(job.namespace), params, limit_bytes=_MAX_PODS_BYTES)
    listed: Object = msgspec.json.decode(body)
    succeeded = [
        each["metadata"]["name"]
        for each in listed.get("items") or ()
        if (each.get("status") or {}).get("phase") == "Succeeded"
    ]
    facts = {"uid": probe.uid, "text": ""}
    if not succeeded:
        # It was deleted, and with it the report: the operator has the snapshot made again.
        return ProbeResult(is_ok=True, at=now, detail=f"{job} has no pod that succeeded", facts=facts)
    text = await client.request(
        "GET",
        f"{PODS.path(job.namespace, succeeded[0])}/log",
        {"container": VERIFY, "limitBytes": str(_MAX_LOG_BYTES)},
        limit_bytes=2 * _MAX_LOG_BYTES,
    )
    return ProbeResult(is_ok=True, at=now, facts=facts | {"text": text.decode("utf-8", "replace")})
