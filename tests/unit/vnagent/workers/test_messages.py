# SPDX-License-Identifier: Apache-2.0
"""What the main process and workers send each other arrives as it was sent."""

from pathlib import Path

import msgspec
import pytest

from daemonkit.metrics import Registry
from tenancy.ownership import Owned
from tenancy.registry import SpiffeTrust
from tenancy.tenant import Role, Tenant
from vnagent.config import Audit, Kubelet, Serving, Tenants, TokenListener, VnAgentConfiguration
from vnagent.core.requests import Endpoint, PageRequest
from vnagent.metrics import AgentMetrics
from vnagent.workers import messages
from vnagent.workers.messages import (
    AcceptedConnection,
    Drain,
    PageEnded,
    PageFailed,
    PageRendered,
    PageRequested,
    PodsChanged,
    PodsRead,
    PodsRequested,
    Reload,
    ReportRequested,
    Setup,
    Started,
    TenantsApplied,
    TenantsChanged,
    ToMain,
    ToWorker,
    WorkerConditions,
    WorkerReport,
)

CONFIG = VnAgentConfiguration(
    node_name="node-1",
    serving=Serving(Path("/etc/s.crt"), Path("/etc/s.key")),
    tenants=Tenants(directory=Path("/etc/tenants")),
    kubelet=Kubelet(Path("/k/ca"), Path("/k/crt"), Path("/k/key"), server_name="node-1"),
    audit=Audit(Path("/var/log/audit.jsonl")),
    token_listeners=(TokenListener("ten-a", 10551, "https://a", "vn", Path("/keys"), ("s:one",)),),
    workers=4,
)
TENANT = Tenant("ten-a", (b"\x30\x00", b"\xff"), {"ab" * 32: Role.METRICS})
POD = Owned("ten-a", "web", "shop", "u", "ten-a-web", "shop", "s", frozenset({"app", "init"}))


def content_of(message: ToWorker | ToMain) -> bytes:
    data = messages.encode(message)
    prefix, content = data[: messages.LENGTH_BYTES], data[messages.LENGTH_BYTES :]
    assert messages.length_of(prefix) == len(content)
    return content


@pytest.mark.parametrize(
    "message",
    [
        Setup("1.0", CONFIG, 1, 4),
        TenantsChanged(3, {"a.yaml": TENANT}, ("b.yaml",), {"ten-a": 0}, SpiffeTrust((b"\x30",), "super")),
        TenantsChanged(1, {}, (), {}, None),
        PodsChanged((POD,)),
        WorkerConditions(are_pods_stale=True, log_level="debug"),
        PageRendered(9, 2, "text/plain", b"\x00page", None),
        PageFailed(9, fetch_reason="kubelet-timeout"),
        PodsRead(5, is_read=False),
        ReportRequested(7),
        Reload(),
        Drain(10.0),
    ],
    ids=lambda message: type(message).__name__,
)
def test_messages_to_a_worker_arrive(message: ToWorker) -> None:
    assert messages.decode_for_worker(content_of(message)) == message


def metrics() -> Registry:
    found = AgentMetrics()
    found.count_request("ten-a", Endpoint.CONTAINER_LOGS, 200, 0.002)
    return found.registry


@pytest.mark.parametrize(
    "message",
    [
        Started(),
        TenantsApplied(3, "serving.key: does not match", has_trust=True),
        PageRequested(9, PageRequest(Endpoint.PODS, False, False, accepts_gzip=True), "ten-a"),
        PageEnded(9),
        PodsRequested(5),
        WorkerReport(
            7,
            metrics().snapshot(),
            3,
            1,
            2,
            ({"endpoint": "exec", "upgrade": "SPDY", "subprotocol": "v4", "isAccepted": True},),
            "audit: ok",
        ),
    ],
    ids=lambda message: type(message).__name__,
)
def test_messages_to_the_main_process_arrive(message: ToMain) -> None:
    assert messages.decode_for_main(content_of(message)) == message


@pytest.mark.parametrize("host", ["10.0.0.1", "2001:db8::1%eth0"])
@pytest.mark.parametrize("port", [None, 10551])
def test_a_connection_arrives_with_its_address(host: str, port: int | None) -> None:
    accepted = AcceptedConnection(host, port)
    assert AcceptedConnection.decode(accepted.encode()) == accepted


def test_a_length_beyond_the_bound_is_refused() -> None:
    with pytest.raises(ValueError, match="a message of"):
        messages.length_of((messages.MAX_MESSAGE_BYTES + 1).to_bytes(4))


@pytest.mark.parametrize("content", [b"", b"\xc1", b"\x81\xa4type\xa4None", b"{}"])
def test_other_bytes_are_a_decode_error(content: bytes) -> None:
    for decode in (messages.decode_for_worker, messages.decode_for_main):
        with pytest.raises(msgspec.DecodeError):
            decode(content)
    assert issubclass(msgspec.DecodeError, ValueError)
