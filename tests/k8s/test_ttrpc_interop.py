# SPDX-License-Identifier: Apache-2.0
"""kata-bridge's ttrpc and the Go implementation: each client at the other's server."""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from daemonkit.protobuf import BYTES, decode, encode
from daemonkit.protobuf import field as proto_field
from devkit.kata.ttrpc_server import TtrpcServer
from kata_bridge.ttrpc.client import ConnectionLost, TtrpcClient
from kata_bridge.ttrpc.messages import KeyValue
from kata_bridge.ttrpc.status import Code, TtrpcError
from tests.k8s import build

SERVICE = "trial.Trial"
TIMEOUT_S = 20.0
# What fits a frame of 4 MiB with its wrapping, and what does not.
LARGE_BYTES, TOO_LARGE_BYTES = (4 << 20) - 200, (4 << 20) + 200


@dataclass(frozen=True, slots=True)
class BytesValue:
    """google.protobuf.BytesValue: what the program's calls carry."""

    value: bytes = proto_field(1, BYTES)


@pytest.fixture(scope="module")
def peer(request: pytest.FixtureRequest) -> str:
    """The program; it needs no root and none of the other components."""
    version = build.go_version()
    cache: Path = request.config.getoption("--k8s-cache", build.DEFAULT_CACHE)
    binaries, missing = build.find_binaries(cache, version) if version else (build.Binaries({}), ["ttrpc"])
    if "ttrpc" in missing:
        pytest.skip("k8s ring: ttrpc not built: run python3 tests/k8s/build.py")
    return binaries["ttrpcpeer"]


# Our client, the real server.


@pytest.fixture
def go_server(peer: str, tmp_path: Path) -> Iterator[tuple[subprocess.Popen[bytes], Path]]:
    path = tmp_path / "socket"
    with subprocess.Popen([peer, "serve", path], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdin is not None
        assert process.stdout.readline() == b"ready\n"
        yield process, path
        with contextlib.suppress(OSError):
            process.stdin.close()
        process.wait(10)


@asynccontextmanager
async def client_at(path: Path) -> AsyncIterator[TtrpcClient]:
    async with TtrpcClient(*await asyncio.open_unix_connection(path)) as client:
        yield client


async def ask(
    client: TtrpcClient, method: str, value: bytes = b"", timeout_s: float = TIMEOUT_S, *metadata: KeyValue
) -> bytes:
    payload = encode(BytesValue(value))
    return decode(BytesValue, await client.call(SERVICE, method, payload, timeout_s, metadata)).value


@pytest.mark.asyncio
async def test_our_client_small_and_large(go_server: tuple[object, Path]) -> None:
    async with client_at(go_server[1]) as client:
        for value in (b"", b"hello", bytes(range(256)) * 1000, bytes(LARGE_BYTES)):
            assert await ask(client, "Echo", value) == value
        assert len(await ask(client, "Large", str(LARGE_BYTES).encode())) == LARGE_BYTES


@pytest.mark.asyncio
async def test_our_client_many_at_once(go_server: tuple[object, Path]) -> None:
    async with client_at(go_server[1]) as client:
        waits = [str(300 - 5 * number).encode() for number in range(60)]
        started = time.monotonic()
        assert await asyncio.gather(*(ask(client, "Sleep", wait) for wait in waits)) == waits
        assert time.monotonic() - started < 5  # one after the other they would take nine seconds


@pytest.mark.asyncio
async def test_our_client_refused(go_server: tuple[object, Path]) -> None:
    async with client_at(go_server[1]) as client:
        for code in (1, 3, 5, 7, 12, 13, 14, 16):
            with pytest.raises(TtrpcError) as refused:
                await ask(client, "Refuse", f"{code} for reason {code}".encode())
            assert (refused.value.code, refused.value.message) == (code, f"for reason {code}")
        with pytest.raises(TtrpcError, match="UNIMPLEMENTED"):
            await ask(client, "Nothing")
        with pytest.raises(TtrpcError, match="UNIMPLEMENTED"):
            await client.call("no.Such", "Echo", b"", TIMEOUT_S)
        with pytest.raises(TtrpcError, match="RESOURCE_EXHAUSTED: the call has"):
            await ask(client, "Echo", bytes(TOO_LARGE_BYTES))
        with pytest.raises(TtrpcError) as damaged:
            await client.call(SERVICE, "Echo", b"\x0a\x7f", TIMEOUT_S)
        # The reply of containerd/ttrpc's services.go to a payload that is not a message.
        assert damaged.value.code == Code.INTERNAL
        assert await ask(client, "Echo", b"still there") == b"still there"


@pytest.mark.asyncio
async def test_our_client_at_a_server_whose_answer_is_too_large(go_server: tuple[object, Path]) -> None:
    """The real one (1.2.9) then closes the connection, and logs the reason."""
    async with client_at(go_server[1]) as client:
        with pytest.raises(ConnectionLost, match="closed by the peer"):
            await ask(client, "Large", str(TOO_LARGE_BYTES).encode())
    async with client_at(go_server[1]) as client:
        assert await ask(client, "Echo", b"again") == b"again"


@pytest.mark.asyncio
async def test_our_clients_deadline_and_metadata_arrive(go_server: tuple[object, Path]) -> None:
    async with client_at(go_server[1]) as client:
        response = await ask(client, "Metadata", b"colour", 5, KeyValue("colour", "red"))
        colour, milliseconds = response.split()
        assert colour == b"red"
        assert 4000 < int(milliseconds) <= 5000


@pytest.mark.asyncio
async def test_our_client_drops_late_responses(go_server: tuple[object, Path]) -> None:
    async with client_at(go_server[1]) as client:
        with pytest.raises((TimeoutError, TtrpcError)) as ended:
            await ask(client, "Sleep", b"400", 0.1)
        if isinstance(ended.value, TtrpcError):
            assert ended.value.code is Code.DEADLINE_EXCEEDED
        # The answer to the first arrives while this one waits.
        assert await ask(client, "Sleep", b"800") == b"800"


@pytest.mark.asyncio
async def test_our_client_loses_the_server(go_server: tuple[subprocess.Popen[bytes], Path]) -> None:
    process, path = go_server
    async with client_at(path) as client:
        calls = [asyncio.ensure_future(ask(client, "Sleep", b"10000")) for _ in range(3)]  # noqa: TID251 - gathered
        assert await ask(client, "Echo", b"x") == b"x"
        process.kill()
        ends = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(end) for end in ends] == [ConnectionLost] * 3


# The real client, our server.


@dataclass(slots=True)
class Trial:
    """Our server with the methods of the program's."""

    finished: list[str] = field(default_factory=list)

    async def reply(self, service: str, method: str, payload: bytes) -> bytes:
        if service != SERVICE:
            raise TtrpcError(Code.UNIMPLEMENTED, f"no service {service}")
        given = decode(BytesValue, payload).value
        match method:
            case "Echo":
                return encode(BytesValue(given))
            case "Large":
                return encode(BytesValue(bytes(int(given))))
            case "Sleep":
                await asyncio.sleep(int(given) / 1000)
                self.finished.append(given.decode())
                return encode(BytesValue(given))
            case "Refuse":
                code, _, text = given.decode().partition(" ")
                raise TtrpcError(int(code), text)
        raise TtrpcError(Code.UNIMPLEMENTED, f"no method {method}")


@asynccontextmanager
async def serving(path: Path) -> AsyncIterator[Trial]:
    trial = Trial()
    server = TtrpcServer(trial.reply)
    await server.start_unix(path)
    try:
        yield trial
    finally:
        await server.stop()


async def go_calls(peer: str, path: Path, *orders: Mapping[str, object]) -> list[dict[str, object]]:
    """What became of the orders, in their order; they were called at once on one connection."""
    lines = "".join(json.dumps({"id": number, **order}) + "\n" for number, order in enumerate(orders))
    process = await asyncio.create_subprocess_exec(
        peer, "call", str(path), stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    try:
        async with asyncio.timeout(TIMEOUT_S * 2):
            printed, _ = await process.communicate(lines.encode())
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    outcomes: list[dict[str, object]] = [json.loads(line) for line in printed.splitlines()]
    return sorted(outcomes, key=lambda outcome: str(outcome["id"]).zfill(5))


@pytest.mark.asyncio
async def test_real_client_small_and_large(peer: str, tmp_path: Path) -> None:
    sizes = [1, 4096, 4097, 1 << 20, LARGE_BYTES]
    async with serving(tmp_path / "socket"):
        outcomes = await go_calls(
            peer,
            tmp_path / "socket",
            *({"method": "Echo", "size": size} for size in sizes),
            {"method": "Large", "text": str(LARGE_BYTES)},
        )
    assert [outcome["code"] for outcome in outcomes] == [0] * 6
    assert [outcome["is_echo"] for outcome in outcomes[:5]] == [True] * 5
    assert outcomes[5]["size"] == LARGE_BYTES


@pytest.mark.asyncio
async def test_real_client_many_at_once(peer: str, tmp_path: Path) -> None:
    waits = [str(300 - 5 * number) for number in range(50)]
    async with serving(tmp_path / "socket"):
        started = time.monotonic()
        outcomes = await go_calls(
            peer, tmp_path / "socket", *({"method": "Sleep", "text": wait} for wait in waits)
        )
        assert time.monotonic() - started < 5
    assert [outcome["text"] for outcome in outcomes] == waits


@pytest.mark.asyncio
async def test_real_client_refused(peer: str, tmp_path: Path) -> None:
    codes = (1, 3, 5, 7, 12, 13, 14, 16)
    async with serving(tmp_path / "socket"):
        outcomes = await go_calls(
            peer,
            tmp_path / "socket",
            *({"method": "Refuse", "text": f"{code} for reason {code}"} for code in codes),
            {"method": "Nothing"},
            {"service": "no.Such", "method": "Echo"},
            {"method": "Large", "text": str(TOO_LARGE_BYTES)},
            {"method": "Echo", "size": TOO_LARGE_BYTES},
            {"method": "Echo", "text": "still there"},
        )
    assert [(outcome["code"], outcome["message"]) for outcome in outcomes[:8]] == [
        (code, f"for reason {code}") for code in codes
    ]
    assert [outcome["code"] for outcome in outcomes[8:]] == [12, 12, 8, 8, 0]
    assert outcomes[12]["text"] == "still there"


@pytest.mark.asyncio
async def test_real_clients_deadline_is_kept(peer: str, tmp_path: Path) -> None:
    async with serving(tmp_path / "socket") as trial:
        outcomes = await go_calls(
            peer,
            tmp_path / "socket",
            {"method": "Sleep", "text": "10000", "timeout_ms": 200},
            {"method": "Sleep", "text": "500"},
        )
    assert [outcome["code"] != 0 for outcome in outcomes] == [True, False]
    assert "deadline exceeded" in str(outcomes[0]["message"]).lower() or outcomes[0]["message"] == "timeout"
    took_ms = outcomes[0]["took_ms"]
    assert isinstance(took_ms, int)
    assert 150 < took_ms < 5000
    # Ours ended it as well: nothing goes on for a caller that has left.
    assert trial.finished == ["500"]
