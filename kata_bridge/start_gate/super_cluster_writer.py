# SPDX-License-Identifier: Apache-2.0
"""Writes to the super cluster with the credentials of the start gate.

All of it helps and nothing depends on it: without an API server blocked pods wait somewhat longer.
docs/decisions/0014 lists what these credentials may do and why.
"""

import asyncio
import datetime as dt
import json
from collections.abc import Mapping
from pathlib import Path

import msgspec

from daemonkit import logs
from daemonkit.kube.client import ApiError, UnreachableError, fault_of
from daemonkit.kube.lazy_client import LazyClient
from daemonkit.kube.resources import PODS, MetadataOnly
from daemonkit.remedies import Hop, HopKind
from kata_bridge.sandboxes.core.sandbox import Sandbox

JSON = "application/json"
MERGE, STRATEGIC = "application/merge-patch+json", "application/strategic-merge-patch+json"

# Shorter than the server's minute: a late nudge is of no use.
REQUEST_S = 5.0
# The client keeps four connections.
PARALLEL = 4
RETRIES_S = (0.2, 1.0)
SUPER_CLUSTER = Hop(
    HopKind.API_SERVER, "super cluster", "gate.superCluster.kubeconfigFile", "packaging/rbac/kata-bridge.yaml"
)

_log = logs.get(__name__)


class PodGoneError(Exception):
    """The pod is gone, or another pod has its name now."""


class SuperClusterWriter:
    """Requests of the start gate of `node`, a few at once, with retries."""

    def __init__(self, kubeconfig: Path, node: str) -> None:
        self.node = node
        self._client = LazyClient(kubeconfig, "kata-bridge")
        self._slots = asyncio.Semaphore(PARALLEL)
        self._problem = ""

    @property
    def problem(self) -> str:
        """Why the last request failed; empty if it succeeded."""
        return self._problem

    async def close(self) -> None:
        await self._client.close()

    async def write(self, method: str, path: str, body: bytes, content_type: str) -> str:
        """Send it, and again where that may help; return the result: done, gone, refused or failed."""
        for wait_s in (*RETRIES_S, None):
            try:
                await self._request(method, path, body, content_type)
            except ApiError as error:
                if error.status.code in (404, 409):
                    return "gone"  # the pod, or another pod has its name now
                self._failed(error)
                if error.status.code < 500 and error.status.code != 429:
                    return "refused"
            except (UnreachableError, TimeoutError) as error:
                self._failed(error)
            else:
                self._succeeded()
                return "done"
            if wait_s is not None:
                await asyncio.sleep(wait_s)
        return "failed"

    async def annotations(self, sandbox: Sandbox) -> Mapping[str, str] | None:
        """The annotations of a pod as they are now; None where they cannot be read. Raises `PodGoneError`.

        It reads them with an empty PATCH, whose response is the Pod: so it needs no right to read pods.
        """
        body = json.dumps({"metadata": {"uid": sandbox.uid}}).encode()
        path = PODS.path(sandbox.namespace, sandbox.name)
        try:
            response = await self._request("PATCH", path, body, MERGE)
            return msgspec.json.decode(response, type=MetadataOnly).metadata.annotations
        except ApiError as error:
            if error.status.code in (404, 409):
                raise PodGoneError from None
            self._failed(error)
        except (UnreachableError, TimeoutError, msgspec.DecodeError) as error:
            self._failed(error)
        return None

    async def _request(self, method: str, path: str, body: bytes, content_type: str) -> bytes:
        async with self._slots, asyncio.timeout(REQUEST_S):
            return await self._client.request(method, path, {}, body, content_type=content_type)

    def _failed(self, error: Exception) -> None:
        reason = str(error) or f"no answer within {REQUEST_S:g} s"
        if isinstance(error, (ApiError, UnreachableError)):
            fault = fault_of(SUPER_CLUSTER, error)
            reason = f"{fault.text}; {fault.remedy}"
        if not self._problem:
            _log.warning("cannot report blocked pods to the super cluster", reason=reason)
        self._problem = reason

    def _succeeded(self) -> None:
        if self._problem:
            _log.info("blocked pods are reported to the super cluster again")
        self._problem = ""


def timestamp(*, digits: int = 6) -> str:
    """The time now as Kubernetes writes it: MicroTime, or Time with `digits` 0."""
    now = dt.datetime.now(dt.UTC)
    return f"{now.isoformat(timespec='microseconds' if digits else 'seconds').removesuffix('+00:00')}Z"
