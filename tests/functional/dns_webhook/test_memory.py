# SPDX-License-Identifier: Apache-2.0
"""The webhook's memory stays below the limit of its Deployment, whatever clients send."""

import asyncio
import contextlib
import re
import ssl
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import yaml

from daemonkit.tasks import Tasks
from dns_webhook.server import MAX_BODY_BYTES, MAX_CONNECTIONS
from tests.functional.dns_webhook.test_program import ROOT, listening, started, write_config

pytestmark = pytest.mark.asyncio

DEADLINE_S = 60.0
# For the objects of a large super cluster, and differences of kernels and allocators.
SPARE_MIB = 64
HEAD = b"HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
SENT = {
    # One byte is missing.
    "bodies": b"POST /mutate %sContent-Length: %d\r\n\r\n" % (HEAD, MAX_BODY_BYTES)
    + b" " * (MAX_BODY_BYTES - 1),
    "heads": b"GET /livez " + HEAD + b"".join(b"X-%d: %s\r\n" % (n, b"x" * 4000) for n in range(200)),
    "requests": b"GET /livez %sX: %s\r\n\r\n" % (HEAD, b"x" * 4000) * 500,
}


class Process:
    def __init__(self, pid: int, port: int) -> None:
        self._pid = pid
        self.port = port

    @property
    def most_mib(self) -> int:
        """Its peak memory (VmHWM)."""
        (found,) = re.findall(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{self._pid}/status").read_text())
        return int(found) >> 10


@contextlib.asynccontextmanager
async def webhook(directory: Path) -> AsyncIterator[Process]:
    process = await started(write_config(directory))
    tasks = Tasks("test")
    try:
        port = await listening(process)
        assert process.stderr is not None
        tasks.spawn(process.stderr.read(), "log")
        yield Process(process.pid, port)
    finally:
        process.kill()
        await process.wait()
        await tasks.close(1.0)


@pytest.mark.parametrize("what", SENT)
async def test_memory_stays_within_the_deployments_limit(tmp_path: Path, what: str) -> None:
    async with webhook(tmp_path) as process, asyncio.timeout(DEADLINE_S):
        context = ssl.create_default_context(cafile=str(tmp_path / "state" / "authorities.pem"))
        crowd = [_sends(process.port, context, SENT[what]) for _ in range(2 * MAX_CONNECTIONS)]
        await asyncio.gather(*crowd)
        assert process.most_mib < limit_mib() - SPARE_MIB


async def _sends(port: int, context: ssl.SSLContext, sent: bytes) -> None:
    """Sends all that is accepted, and waits for the response or the end of the connection."""
    with contextlib.suppress(OSError):
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
        try:
            async with asyncio.timeout(5):
                writer.write(sent)
                await writer.drain()
                await reader.read(1)
        finally:
            writer.transport.abort()


def limit_mib() -> int:
    documents = yaml.safe_load_all((ROOT / "packaging/webhook/deployment.yaml").read_text())
    (deployment,) = [each for each in documents if each["kind"] == "Deployment"]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    text: str = container["resources"]["limits"]["memory"]
    assert text.endswith("Mi")
    return int(text.removesuffix("Mi"))
