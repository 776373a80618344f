# SPDX-License-Identifier: Apache-2.0
"""What the bridge relies on in a CRI: holds for the fake (functional) and for containerd (tests/k8s)."""

from kata_bridge.cri.client import CriClient
from kata_bridge.cri.info import network_namespace
from kata_bridge.cri.messages import PodSandboxState, PodSandboxStatus

UNKNOWN = "0" * 64


async def check_ready_sandbox(cri: CriClient, sandbox_id: str) -> tuple[PodSandboxStatus, str]:
    """Check what lists and statuses report of a ready sandbox; return its status and network namespace."""
    (listed,) = [each for each in await cri.sandboxes() if each.id == sandbox_id]
    assert listed.state is PodSandboxState.SANDBOX_READY
    brief, verbose = await cri.sandbox(sandbox_id), await cri.sandbox(sandbox_id, verbose=True)
    assert brief is not None
    assert verbose is not None
    assert brief.status == verbose.status
    assert network_namespace(brief.info) == "", "details are for verbose requests"
    status = verbose.status
    assert status is not None
    assert (status.id, status.metadata, status.state, status.runtime_handler) == (
        sandbox_id,
        listed.metadata,
        listed.state,
        listed.runtime_handler,
    )
    assert await cri.sandbox(UNKNOWN) is None
    return status, network_namespace(verbose.info)
