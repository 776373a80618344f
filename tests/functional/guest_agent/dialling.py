# SPDX-License-Identifier: Apache-2.0
"""A hostile guest: a gRPC client with a valid certificate that sends anything."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from bridge_api.messages import Capabilities
from daemonkit.protobuf import decode, encode
from guest_agent.api.messages import (
    ATTACH,
    AgentHello,
    AgentMessage,
    AgentResult,
    AgentResultCode,
    NodeRequest,
    RulesetState,
)
from kata_bridge.channels.agent.channel import AgentChannel
from kata_bridge.guest_certificates import SERVER_NAME
from tests.functional.guest_agent.conftest import AgentServerNode

DIGEST = "ab" * 32


@asynccontextmanager
async def dialled(target: str, credentials: Path, **files: Path) -> AsyncIterator[Any]:
    """A stream of such a client."""
    paths = {name: credentials / name for name in ("ca.crt", "tls.key", "tls.crt")} | files
    pems = [path.read_bytes() for path in paths.values()]
    options = [("grpc.ssl_target_name_override", SERVER_NAME), ("grpc.max_send_message_length", -1)]
    async with grpc.aio.secure_channel(
        target, grpc.ssl_channel_credentials(*pems), options=options
    ) as channel:
        yield channel.stream_stream(ATTACH.path)()


def hello(sandbox: str = "") -> bytes:
    return encode(
        AgentMessage(
            hello=AgentHello(sandbox, "1", "boot", Capabilities(backends=("iptables",)), RulesetState())
        )
    )


async def refusal(call: Any, *sent: bytes) -> tuple[grpc.StatusCode, str]:
    """The status with which the node ends a stream after `sent`. gRPC's client reports INTERNAL where it ends
    while one of them is being sent: send nothing to what refuses at once."""
    async with asyncio.timeout(20):
        try:
            for data in sent:
                await call.write(data)
            await call.read()
        except (grpc.aio.AioRpcError, asyncio.InvalidStateError):
            pass
        return await call.code(), await call.details()


@asynccontextmanager
async def attached(
    node: AgentServerNode, target: str, sandbox: str = "sb"
) -> AsyncIterator[tuple[Any, AgentChannel]]:
    """An attached stream, and the node's channel of it."""
    async with dialled(target, node.credentials.issue(sandbox).directory) as call:
        await call.write(hello(sandbox))
        yield call, await node.channel(sandbox)


async def complete_request(call: Any, state: RulesetState) -> NodeRequest:
    """Respond DONE to the node's next request."""
    question = decode(NodeRequest, await call.read())
    await call.write(encode(AgentMessage(question.id, result=AgentResult(AgentResultCode.DONE, "", state))))
    return question
