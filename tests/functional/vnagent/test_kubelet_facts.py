# SPDX-License-Identifier: Apache-2.0
"""What /status reports of the kubelet: read from its pages, and seen in tenants' streams."""

from tests.functional.vnagent.node import SPDY, AgentNode, head, received
from tests.functional.vnagent.shop_and_bank import EXEC

V5 = (
    *("Connection: Upgrade", "Upgrade: websocket", "Sec-WebSocket-Version: 13"),
    *("Sec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==", "Sec-WebSocket-Protocol: v5.channel.k8s.io"),
)


def test_status_has_what_the_kubelet_reports_and_answers(node: AgentNode) -> None:
    with node.client("ten-a") as client:
        client.send(head(EXEC, *SPDY))
        assert received(client, b"101 Switching Protocols")
    with node.client("ten-a") as client:
        client.send(head(EXEC.replace("POST", "GET"), *V5))
        assert received(client, b"101 Switching Protocols")
    found = node.daemon.status()["kubelet"]
    del found["connections"]
    assert found == {
        "address": f"127.0.0.1:{node.kubelet.port}",
        "server": "kubelet",
        "version": "v1.34.4",
        "featureGates": {
            "ExtendWebSocketsToKubelet": None,
            "KubeletFineGrainedAuthz": True,
            "PodLogsQuerySplitStreams": False,
        },
        "enableDebuggingHandlers": True,
        "readOnlyPort": 0,
        "problems": [],
        "streamProtocols": [
            {
                "endpoint": "exec",
                "upgrade": "SPDY/3.1",
                "subprotocol": "v4.channel.k8s.io",
                "isAccepted": True,
            },
            {
                "endpoint": "exec",
                "upgrade": "websocket",
                "subprotocol": "v5.channel.k8s.io",
                "isAccepted": True,
            },
        ],
    }
