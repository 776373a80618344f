# SPDX-License-Identifier: Apache-2.0
"""Fakes of the VMMs and shims of a node whose guests have hybrid vsock.

Bytes of a guest's vsock device to its own address and port here go to the unix socket `<path>_<port>` of that
guest, as Firecracker and Cloud Hypervisor forward them. Run in the node's
namespace; its argument is a list in JSON of [sandbox, shim root, vsock path, vsock port, node
address, node port, guest address]. Prints `up` when it listens.
"""

import asyncio
import contextlib
import json
import sys
from pathlib import Path

from devkit.kata.fake_shim import FakeShim

_BUFFER_BYTES = 1 << 16


async def main() -> None:
    async with contextlib.AsyncExitStack() as stack:
        for sandbox, root, path, vsock_port, address, port, guest in json.loads(sys.argv[1]):
            shim = FakeShim(Path(root), sandbox, Path("/nowhere"), f"hvsock://{path}:1024")
            await stack.enter_async_context(shim)
            serve = _device(f"{path}_{vsock_port}", guest)
            await stack.enter_async_context(await asyncio.start_server(serve, address, port))
        sys.stdout.write("up\n")
        sys.stdout.flush()
        await asyncio.Event().wait()


def _device(path: str, guest: str):  # type: ignore[no-untyped-def] # asyncio's own long type
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer), contextlib.suppress(OSError):
            # A device belongs to one VM, and no other can send to it.
            if writer.get_extra_info("peername")[0] != guest:
                return
            inner_reader, inner_writer = await asyncio.open_unix_connection(path)
            with contextlib.closing(inner_writer):
                await asyncio.gather(_copy(reader, inner_writer), _copy(inner_reader, writer))

    return serve


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(_BUFFER_BYTES):
            writer.write(data)
            await writer.drain()
    writer.close()


if __name__ == "__main__":
    asyncio.run(main())
