# SPDX-License-Identifier: Apache-2.0
import asyncio
import contextlib
import os
import socket
import stat
import sys
import tempfile
import threading
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

import daemonkit
from daemonkit import logs
from daemonkit.files.directories import UnusableDirectoryError
from daemonkit.metrics import Registry
from daemonkit.status.server import ListenAddress, Readiness, StatusError, StatusServer, fetch

LOOPBACK = ("127.0.0.1", 0)


@contextlib.asynccontextmanager
async def running(
    address: ListenAddress, *, max_connections: int = 16, deadline_s: float = 5.0
) -> AsyncIterator[StatusServer]:
    server = StatusServer(
        address,
        Registry(),
        readiness=lambda: Readiness(True, ("pods: ok, age 3 s",)),
        status=lambda: {"node": "n1"},
        max_connections=max_connections,
        deadline_s=deadline_s,
    )
    await server.start()
    try:
        yield server
    finally:
        await server.stop()


async def fetched(address: ListenAddress, path: str) -> tuple[int, bytes]:
    return await asyncio.to_thread(fetch, address, path, 5.0)


async def connect(address: ListenAddress) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    if isinstance(address, Path):
        return await asyncio.open_unix_connection(address)
    return await asyncio.open_connection(*address)


async def raw(address: ListenAddress, data: bytes) -> bytes:
    """Send bytes as they are, read until the end."""
    reader, writer = await connect(address)
    writer.write(data)
    async with asyncio.timeout(10):
        reply = await reader.read()
    writer.close()
    return reply


@pytest.fixture(params=["unix", "tcp", "tcp6"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> ListenAddress:
    if request.param == "unix":
        return tmp_path / "status.sock"
    return LOOPBACK if request.param == "tcp" else ("::1", 0)


@pytest.mark.asyncio
async def test_all_pages_on_every_kind_of_address(address: ListenAddress) -> None:
    async with running(address) as server:
        assert await fetched(server.bound, "/healthz") == (200, b"ok\n")
        assert await fetched(server.bound, "/readyz") == (200, b"pods: ok, age 3 s\n")
        status, page = await fetched(server.bound, "/metrics")
        assert (status, b"\nprocess_open_fds " in page) == (200, True)
        assert await fetched(server.bound, "/status") == (200, b'{"node":"n1"}\n')
        assert (await fetched(server.bound, "/other"))[0] == 404
        bound = server.bound
    with pytest.raises(OSError, match=r"refused|No such file"):
        await fetched(bound, "/healthz")


@pytest.fixture
def restored_log() -> Iterator[None]:
    yield
    logs.restore_level()


async def log_level_set(address: ListenAddress, level: str) -> int:
    code, _ = await asyncio.to_thread(fetch, address, f"/log-level?level={level}", 5.0, "PUT")
    return code


@pytest.mark.asyncio
async def test_the_log_level_changes_over_the_socket_alone(
    address: ListenAddress, restored_log: None
) -> None:
    async with running(address) as server:
        is_socket = isinstance(address, Path)
        assert await log_level_set(server.bound, "debug") == (200 if is_socket else 403)
        assert logs.level_name() == ("debug" if is_socket else "info")
        assert (await fetched(server.bound, "/log-level"))[0] == 200


def open_to_all(path: Path) -> None:
    path.parent.chmod(0o755)
    path.chmod(0o666)


_PUT = """
import sys
from pathlib import Path
from daemonkit.status.server import fetch
print(fetch(Path(sys.argv[1]), "/log-level?level=debug", 5.0, "PUT")[0])
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root")
@pytest.mark.asyncio
async def test_another_user_may_not_change_the_log_level() -> None:
    """One of the socket's group may read the pages."""
    with tempfile.TemporaryDirectory() as name:
        path = Path(name, "status.sock")
        async with running(path):
            open_to_all(path)
            sources = Path(daemonkit.__path__[0]).parent
            client = await asyncio.create_subprocess_exec(
                *(sys.executable, "-c", _PUT, str(path)),
                user=65534,
                group=65534,
                extra_groups=[],
                cwd=sources,
                stdout=asyncio.subprocess.PIPE,
            )
            printed, _ = await client.communicate()
        assert printed == b"403\n"
        assert logs.level_name() == "info"


@pytest.mark.asyncio
async def test_bound_has_the_chosen_port() -> None:
    async with running(LOOPBACK) as server:
        host, port = server.bound  # type: ignore[misc] # not the path of a socket here
        assert host == "127.0.0.1"
        assert port > 0
    with pytest.raises(RuntimeError, match="not started"):
        _ = server.bound


@pytest.mark.parametrize(
    "outside",
    [("0.0.0.0", 0), ("192.0.2.1", 80), ("::", 0), ("example.org", 80), ("", 0)],  # noqa: S104 - refused
)
def test_an_address_beyond_loopback_is_refused(outside: tuple[str, int]) -> None:
    with pytest.raises(StatusError, match="not a loopback address"):
        StatusServer(outside, Registry(), readiness=lambda: Readiness(True, ()), status=dict)


def test_a_too_long_socket_path_is_refused() -> None:
    with pytest.raises(StatusError, match="longer than 107 bytes"):
        StatusServer(Path("/" + "x" * 107), Registry(), readiness=lambda: Readiness(True, ()), status=dict)


@pytest.mark.asyncio
async def test_the_socket_is_group_accessible_and_removed_at_stop(tmp_path: Path) -> None:
    path = tmp_path / "status.sock"
    async with running(path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o660
    assert not path.exists()


@pytest.mark.asyncio
async def test_the_socket_of_a_dead_daemon_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "status.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    async with running(path):
        assert await fetched(path, "/healthz") == (200, b"ok\n")


@pytest.mark.asyncio
async def test_the_socket_of_a_living_daemon_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "status.sock"
    async with running(path):
        with pytest.raises(StatusError, match="another process listens on it"):
            async with running(path):
                pass
        assert await fetched(path, "/healthz") == (200, b"ok\n")


@pytest.mark.asyncio
async def test_a_file_at_the_sockets_path_is_kept(tmp_path: Path) -> None:
    path = tmp_path / "status.sock"
    path.write_text("precious")
    with pytest.raises(StatusError, match="a file that is not a socket exists there"):
        async with running(path):
            pass
    assert path.read_text() == "precious"


@pytest.mark.asyncio
async def test_a_successors_socket_is_not_removed(tmp_path: Path) -> None:
    path = tmp_path / "status.sock"
    async with running(path):
        path.unlink()
        successor = StatusServer(path, Registry(), readiness=lambda: Readiness(True, ()), status=dict)
        await successor.start()
    assert await fetched(path, "/healthz") == (200, b"ok\n")
    await successor.stop()
    assert not path.exists()


@pytest.mark.asyncio
async def test_a_missing_directory_is_created(tmp_path: Path) -> None:
    async with running(tmp_path / "none" / "status.sock"):
        assert await fetched(tmp_path / "none" / "status.sock", "/healthz") == (200, b"ok\n")
    assert stat.S_IMODE((tmp_path / "none").stat().st_mode) == 0o755


@pytest.mark.asyncio
async def test_an_unusable_directory_is_reported(tmp_path: Path) -> None:
    (tmp_path / "none").touch()
    with pytest.raises(UnusableDirectoryError, match=r"none: not a directory"):
        async with running(tmp_path / "none" / "status.sock"):
            pass


@pytest.mark.asyncio
async def test_a_port_in_use_is_reported() -> None:
    async with running(LOOPBACK) as server:
        with pytest.raises(StatusError, match="Address already in use"):
            async with running(server.bound):
                pass


@pytest.mark.asyncio
async def test_a_too_large_head_gets_a_response(address: ListenAddress) -> None:
    async with running(address) as server:
        reply = await raw(server.bound, b"GET /healthz HTTP/1.1\r\nx: " + b"y" * 20_000 + b"\r\n\r\n")
        assert reply.startswith(b"HTTP/1.1 431 ")


@pytest.mark.asyncio
async def test_a_silent_client_is_disconnected(address: ListenAddress) -> None:
    async with running(address, deadline_s=0.1) as server:
        assert await raw(server.bound, b"GET /healthz HTTP/1.1\r\n") == b""


@pytest.mark.asyncio
async def test_connections_are_bounded_and_slots_return(address: ListenAddress) -> None:
    async with running(address, max_connections=2, deadline_s=0.5) as server:
        # A listener accepts in the order of connecting: the idle ones come before the third.
        idle = [await connect(server.bound) for _ in range(2)]
        # A reset is the same answer, where the request was still under way.
        with contextlib.suppress(ConnectionResetError):
            assert await raw(server.bound, b"GET /healthz HTTP/1.1\r\n\r\n") == b""
        async with asyncio.timeout(10):
            assert [await reader.read() for reader, _ in idle] == [b"", b""]
        for _, writer in idle:
            writer.close()
        assert await fetched(server.bound, "/healthz") == (200, b"ok\n")


@pytest.mark.asyncio
async def test_stop_ends_open_connections(address: ListenAddress) -> None:
    before = asyncio.all_tasks()
    async with running(address, deadline_s=60) as server:
        idle = asyncio.ensure_future(raw(server.bound, b"GET"))  # noqa: TID251 - held here
        await fetched(server.bound, "/healthz")
    assert await idle == b""
    await asyncio.sleep(0)
    assert asyncio.all_tasks() <= before


@contextlib.contextmanager
def answering(reply: bytes, *, pause: threading.Event | None = None) -> Iterator[ListenAddress]:
    """A server that sends `reply` to each client, and keeps the connection open until `pause`."""
    listener = socket.create_server(LOOPBACK)

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.recv(1 << 16)
            connection.sendall(reply)
            if pause is not None:
                pause.wait(10)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield listener.getsockname()
    finally:
        if pause is not None:
            pause.set()
        thread.join(10)
        listener.close()


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (b"", "not a whole reply of a status server"),
        (b"SSH-2.0-x\r\n", "not a whole reply of a status server"),
        (b"HTTP/1.1 200 OK\r\n\r\nok", "the reply has no length"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nok", "not a whole reply of a status server"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok, and more", "bytes after the reply"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\nok", "not a whole reply"),
    ],
)
def test_another_server_is_a_status_error(reply: bytes, message: str) -> None:
    with answering(reply) as address, pytest.raises(StatusError, match=message):
        fetch(address, "/healthz", 5.0)


def test_fetch_has_a_deadline() -> None:
    with answering(b"HTTP/1.1 200 OK\r\n", pause=threading.Event()) as address, pytest.raises(TimeoutError):
        fetch(address, "/healthz", 0.2)
