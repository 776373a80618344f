# SPDX-License-Identifier: Apache-2.0
"""A tenant's API server that its owner has modified, as a program: its argument is the attack.

It has a process of its own, so that what it does takes no time of the neighbour's. It prints its port,
answers lists with what the attack has, and each watch with bytes for as long as somebody takes them. It
speaks plain HTTP on loopback, which costs the syncer less than TLS: more of the attack arrives.
"""

import asyncio
import contextlib
import itertools
import json
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

from devkit.kube import wire
from devkit.kube.storage import Object

ROOT = Path(__file__).resolve().parents[3]
_PART_BYTES = 16 << 10
_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"
_CHUNKED = _HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
_LARGE_OBJECTS, _LARGE_BYTES = 880, 500_000

Body = Callable[[], Iterator[bytes]]


def _chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


def _forever(part: bytes) -> Body:
    repeated = part * max(1, _PART_BYTES // len(part))
    return lambda: itertools.repeat(repeated)


def _watch(data: bytes) -> Body:
    """A watch that brings this again and again, in chunks of some KiB."""
    repeated = _chunk(data * max(1, _PART_BYTES // len(data)))
    return lambda: itertools.chain([_CHUNKED], itertools.repeat(repeated))


def _endless_line() -> Iterator[bytes]:
    yield _CHUNKED + _chunk(b'{"type": "ADDED", "object": {"metadata": {"name": "')
    yield from itertools.repeat(_chunk(b"x" * _PART_BYTES))


def _small_events() -> Iterator[bytes]:
    """What an API server may send: only that there is no end."""
    yield _CHUNKED
    for number in itertools.count(2):
        line = b'{"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": "%d"}}}\n' % number
        yield _chunk(line)


_CHUNKS_OF_A_BYTE = _forever(_chunk(b"x"))

# What watches bring, by the name of the attack.
WATCHES: dict[str, Body] = {
    "chunks-of-a-byte": lambda: itertools.chain([_CHUNKED], _CHUNKS_OF_A_BYTE()),
    "chunk-extensions": lambda: itertools.chain(
        [_CHUNKED], itertools.repeat(b"1;" + b"e" * 4_000 + b"\r\nx\r\n")
    ),
    "blank-lines": _watch(b"\n"),
    "early-hints": _forever(b"HTTP/1.1 103 Early Hints\r\n\r\n"),
    "continue": _forever(b"HTTP/1.1 100 Continue\r\n\r\n"),
    "small-events": _small_events,
    "endless-lines": _endless_line,
    "large-config-maps": lambda: iter([_CHUNKED]),
}


async def _serve(attack: str) -> None:
    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                url = urlsplit(head.split(b" ")[1].decode())
                query = parse_qs(url.query)
                if "watch" not in query:
                    writer.write(_list(attack, url.path, query))
                    await writer.drain()
                    continue
                for data in WATCHES[attack]():
                    writer.write(data)
                    await writer.drain()
                await reader.read()
        writer.close()

    server = await asyncio.start_server(handle, "127.0.0.1", 0)
    sys.stdout.write(f"{server.sockets[0].getsockname()[1]}\n")
    sys.stdout.flush()
    await server.serve_forever()


def _list(attack: str, path: str, query: dict[str, list[str]]) -> bytes:
    items: list[dict[str, object]] = []
    going_on = ""
    if path == "/api/v1/namespaces":
        items = [{"metadata": {"name": "web", "uid": "n-1", "resourceVersion": "1"}}]
    elif attack == "large-config-maps" and path == "/api/v1/configmaps":
        begin = int(query.get("continue", ["0"])[0])
        end = min(begin + 12, _LARGE_OBJECTS)
        metadata = {"namespace": "web", "resourceVersion": "1"}
        items = [
            {
                "metadata": metadata | {"name": f"c-{at}", "uid": f"u-{at}"},
                "data": {"a": f"{at:06}" * (_LARGE_BYTES // 6)},
            }
            for at in range(begin, end)
        ]
        going_on = str(end) if end < _LARGE_OBJECTS else ""
    body = json.dumps({"metadata": {"resourceVersion": "1", "continue": going_on}, "items": items}).encode()
    return _HEAD + b"Content-Length: %d\r\n\r\n" % len(body) + body


def fat_pod(name: str) -> Object:
    """As an API server stores it: 256 KiB of annotations, and 600 files that have all of them."""
    annotations = {f"key-{at}": "v" * 240 for at in range(1_000)}
    files = [
        {"path": f"file-{at}", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.annotations"}}
        for at in range(600)
    ]
    return {
        "metadata": {"namespace": "web", "name": name, "annotations": annotations},
        "spec": {
            "containers": [{"name": "c", "image": "registry.example/app:1"}],
            "volumes": [{"name": "podinfo", "downwardAPI": {"items": files}}],
        },
    }


@contextlib.asynccontextmanager
async def hostile_apiserver(attack: str) -> AsyncIterator[str]:
    """Start one; gives the kubeconfig of the tenant that has it. Its process has a low priority."""
    process = await asyncio.create_subprocess_exec(
        *("nice", sys.executable, "-m", "tests.functional.syncer.hostile_apiserver", attack),
        cwd=ROOT,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
    )
    try:
        assert process.stdout is not None
        async with asyncio.timeout(60):
            port = int(await process.stdout.readline())
        yield wire.kubeconfig(f"http://127.0.0.1:{port}", None, None, token="hostile")
    finally:
        process.kill()
        await process.wait()


if __name__ == "__main__":
    asyncio.run(_serve(sys.argv[1]))
