# SPDX-License-Identifier: Apache-2.0
"""The listener for scrapers on real TLS sockets."""

import asyncio
import contextlib
import http.client
import io
import socket
import ssl
import time
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from daemonkit import logs
from daemonkit.config.scrape_config import ScrapeConfig
from daemonkit.metrics import Registry
from daemonkit.status.pages import Pages, Readiness
from daemonkit.status.scrape_listener import ScrapeListener
from devkit.pki import Authority, Leaf
from tests import waiting
from tests.metric_samples import samples_of

pytestmark = pytest.mark.asyncio

NAME = "prometheus"


@dataclass
class Scraped:
    """A listener, and what its clients need."""

    directory: Path
    authority: Authority
    registry: Registry
    listener: ScrapeListener
    log: io.StringIO

    def client(self, leaf: Leaf | None, *, trusted: Authority | None = None) -> ssl.SSLContext:
        """The context of a client that presents `leaf`."""
        context = ssl.create_default_context(cadata=(trusted or self.authority).cert_pem.decode())
        if leaf is not None:
            leaf.load_into(context)
        return context

    async def get(
        self, leaf: Leaf | None, path: str = "/metrics", *, trusted: Authority | None = None
    ) -> tuple[int, str]:
        """Status code and body. Raises OSError."""
        return await asyncio.to_thread(self._get, self.client(leaf, trusted=trusted), path)

    def _get(self, context: ssl.SSLContext, path: str) -> tuple[int, str]:
        host, port = self.listener.bound
        client = http.client.HTTPSConnection(host, port, context=context, timeout=10)
        try:
            client.request("GET", path)
            response = client.getresponse()
            return response.status, response.read().decode()
        finally:
            client.close()

    def counted(self, result: str) -> float:
        return samples_of(self.registry).get(f'vcnode_process_scrapes_total{{result="{result}"}}', 0.0)

    async def until_counted(self, result: str, number: float = 1) -> None:
        await waiting.until(lambda: self.counted(result) >= number, within_s=10, context=self.log.getvalue)


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    stream = io.StringIO()
    logs.setup(is_json=False, stream=stream)
    yield stream
    logs.reset()


@contextlib.asynccontextmanager
async def scraped(
    directory: Path,
    log: io.StringIO,
    *,
    deadline_s: float = 5.0,
    max_connections: int = 16,
    port: int = 0,
    without: str = "",
) -> AsyncIterator[Scraped]:
    authority = Authority.create("metrics")
    config = replace(config_of(directory, authority), port=port)
    if without:
        (directory / without).unlink()
    registry = Registry()
    registry.gauge("vcnode_vnagent_tenants", "Tenants.").set(7)
    results = registry.counter("vcnode_process_scrapes_total", "Scrapes.", ("result",))
    ready = Readiness(True, ())
    pages = Pages(registry, readiness=lambda: ready, status=dict, only=frozenset({"/metrics", "/healthz"}))
    listener = ScrapeListener(
        config, pages, results, deadline_s=deadline_s, max_connections=max_connections, retry_s=0.2
    )
    await listener.start()
    try:
        yield Scraped(directory, authority, registry, listener, log)
    finally:
        await listener.stop()


def config_of(directory: Path, authority: Authority) -> ScrapeConfig:
    certificate, key = authority.issue("node-1", sans_ip=["127.0.0.1"]).write(directory, "serving")
    return ScrapeConfig(
        address="127.0.0.1",
        certificate_file=certificate,
        key_file=key,
        client_ca_file=authority.write(directory, "clients"),
        client_names=(NAME, "spiffe://example.org/prometheus"),
    )


async def test_a_registered_scraper_gets_metrics_alone(tmp_path: Path, log: io.StringIO) -> None:
    async with scraped(tmp_path, log) as here:
        leaf = here.authority.issue(NAME)
        status, page = await here.get(leaf)
        assert status == 200
        assert "\nvcnode_vnagent_tenants 7.0\n" in page
        assert await here.get(leaf, "/healthz") == (200, "ok\n")
        for path in ("/status", "/readyz", "/explain", "/"):
            assert await here.get(leaf, path) == (404, "no such page: /healthz /metrics\n")
        await here.until_counted("served", 6)


async def test_alternative_names_count_as_names(tmp_path: Path, log: io.StringIO) -> None:
    async with scraped(tmp_path, log) as here:
        assert (await here.get(here.authority.issue("other", sans_dns=[NAME])))[0] == 200
        assert (await here.get(here.authority.issue("other", uris=["spiffe://example.org/prometheus"])))[
            0
        ] == 200
        assert (await here.get(here.authority.issue("other", uris=["spiffe://example.org/other"])))[0] == 403


async def test_another_name_of_the_authority_is_forbidden(tmp_path: Path, log: io.StringIO) -> None:
    async with scraped(tmp_path, log) as here:
        for name in ("kube-apiserver", "Prometheus", f"{NAME}.evil", ""):
            leaf = here.authority.issue(name or "x", organization=NAME)
            status, text = await here.get(leaf)
            assert (status, "vcnode" in text) == (403, False)
        assert "reason=\"'kube-apiserver' is not in metrics.clientNames\"" in log.getvalue()
        await here.until_counted("forbidden", 4)


async def test_a_certificate_of_another_authority_is_refused(tmp_path: Path, log: io.StringIO) -> None:
    async with scraped(tmp_path, log) as here:
        with pytest.raises(OSError, match=r"unknown ca|closed|reset"):
            await here.get(Authority.create("metrics").issue(NAME))
        await here.until_counted("refused")
        assert "reason=CERTIFICATE_VERIFY_FAILED" in log.getvalue()


async def test_a_name_that_is_no_text_is_refused(tmp_path: Path, log: io.StringIO) -> None:
    async with scraped(tmp_path, log) as found:
        leaf = found.authority.issue(NAME, encoded_names=bytes.fromhex("30038201ff"))
        with contextlib.suppress(OSError, http.client.HTTPException):
            await found.get(leaf)
        await found.until_counted("refused")
    assert "a name in its certificate is no text" in log.getvalue()
    assert "task failed" not in log.getvalue()


async def test_a_serving_certificate_does_not_scrape(tmp_path: Path, log: io.StringIO) -> None:
    async with scraped(tmp_path, log) as here:
        with pytest.raises(OSError, match=r"certificate|closed|reset"):
            await here.get(here.authority.issue(NAME, usages=["server"]))
        await here.until_counted("refused")


async def test_no_certificate_is_refused(tmp_path: Path, log: io.StringIO) -> None:
    async with scraped(tmp_path, log) as here:
        with pytest.raises(OSError, match=r"certificate required|closed|reset"):
            await here.get(None)
        await here.until_counted("refused")
        assert "reason=PEER_DID_NOT_RETURN_A_CERTIFICATE" in log.getvalue()


async def test_plain_http_gets_no_response(tmp_path: Path, log: io.StringIO) -> None:
    async with scraped(tmp_path, log) as here:
        reply = await asyncio.to_thread(_sent_plain, here.listener.bound, b"GET /metrics HTTP/1.1\r\n\r\n")
        assert b"HTTP/1.1" not in reply
        await here.until_counted("refused")


async def test_old_tls_is_refused(tmp_path: Path, log: io.StringIO) -> None:
    async with scraped(tmp_path, log) as here:
        context = here.client(here.authority.issue(NAME))
        context.maximum_version = ssl.TLSVersion.TLSv1_2
        with pytest.raises(OSError, match=r"protocol version|closed|reset"):
            await asyncio.to_thread(here._get, context, "/metrics")  # noqa: SLF001 - its own test


async def test_silent_and_slow_clients_are_ended(tmp_path: Path, log: io.StringIO) -> None:
    """One sends nothing, one stops in its handshake, and one with a certificate sends no whole head."""
    async with scraped(tmp_path, log, deadline_s=0.5) as here:
        hello = b"\x16\x03\x01\x02\x00\x01"
        silent, stopped, slow = await asyncio.gather(
            asyncio.to_thread(_sent_plain, here.listener.bound, b""),
            asyncio.to_thread(_sent_plain, here.listener.bound, hello),
            asyncio.to_thread(_sent_slowly, here.listener.bound, here.client(here.authority.issue(NAME))),
        )
        assert (silent, stopped, slow) == (b"", b"", b"")
        await here.until_counted("timeout", 3)
        assert (await here.get(here.authority.issue(NAME)))[0] == 200


async def test_a_large_head_is_refused(tmp_path: Path, log: io.StringIO) -> None:
    async with scraped(tmp_path, log) as here:
        assert (await here.get(here.authority.issue(NAME), "/" + "x" * 9_000))[0] == 431


async def test_an_address_loses_its_own_connections(tmp_path: Path, log: io.StringIO) -> None:
    """Beyond the bound the oldest connection of the address that has most is ended."""
    async with scraped(tmp_path, log, max_connections=2) as here:
        silent = [socket.create_connection(here.listener.bound, timeout=5) for _ in range(2)]
        try:
            assert (await here.get(here.authority.issue(NAME)))[0] == 200
            assert await asyncio.to_thread(silent[0].recv, 1) == b""
        finally:
            for each in silent:
                each.close()


async def test_a_flood_of_one_address_is_limited(tmp_path: Path, log: io.StringIO) -> None:
    async with scraped(tmp_path, log) as here:
        for _ in range(40):
            socket.create_connection(here.listener.bound, timeout=5).close()
        await here.until_counted("limited", 20)


async def test_log_lines_about_refused_clients_are_limited(tmp_path: Path, log: io.StringIO) -> None:
    async with scraped(tmp_path, log) as here:
        for _ in range(8):
            await asyncio.to_thread(_sent_plain, here.listener.bound, b"GET / HTTP/1.1\r\n\r\n")
        await here.until_counted("refused", 7)
        assert log.getvalue().count("scraper refused") == 5


async def test_rotated_certificates_are_used(tmp_path: Path, log: io.StringIO) -> None:
    """A new authority of clients counts for the next connection; an unusable one changes nothing."""
    async with scraped(tmp_path, log) as here:
        assert (await here.get(here.authority.issue(NAME)))[0] == 200
        successor = Authority.create("successor")
        config_of(tmp_path, successor)

        async def ask() -> None:
            # Beyond the rate of an address there is no handshake: an OSError too.
            assert (await here.get(successor.issue(NAME), trusted=successor))[0] == 200

        await waiting.until_it_succeeds(ask, OSError, within_s=15)
        with pytest.raises(OSError, match=r"."):
            await here.get(here.authority.issue(NAME))
        (tmp_path / "clients.crt").write_text("-----BEGIN CERTIFICATE-----\n")

        async def ask_until_noticed() -> None:
            await ask()
            if "the scrape listener has a problem" not in log.getvalue():
                raise ConnectionError("not noticed")

        await waiting.until_it_succeeds(ask_until_noticed, OSError, within_s=15)


async def test_files_that_come_later_are_used(tmp_path: Path, log: io.StringIO) -> None:
    """The daemon starts without them: what it does for tenants does not wait for scrapes."""
    async with scraped(tmp_path, log, without="clients.crt") as here:
        assert "clients.crt: No such file or directory" in log.getvalue()
        with pytest.raises(OSError, match=r"."):
            await here.get(here.authority.issue(NAME))
        here.authority.write(tmp_path, "clients")

        async def ask() -> None:
            assert (await here.get(here.authority.issue(NAME)))[0] == 200

        await waiting.until_it_succeeds(ask, OSError, within_s=15)


async def test_an_address_that_is_taken_is_tried_again(tmp_path: Path, log: io.StringIO) -> None:
    with socket.create_server(("127.0.0.1", 0)) as holder:
        port = holder.getsockname()[1]
        async with scraped(tmp_path, log, port=port) as here:
            assert f"127.0.0.1:{port}: Address already in use" in log.getvalue()
            holder.close()

            async def ask() -> None:
                with contextlib.suppress(RuntimeError):  # not started yet
                    assert (await here.get(here.authority.issue(NAME)))[0] == 200
                    return
                raise ConnectionError("not started")

            await waiting.until_it_succeeds(ask, OSError, within_s=15)
        assert log.getvalue().count("Address already in use") == 1


def _sent_plain(address: tuple[str, int], data: bytes) -> bytes:
    """What comes back, until the end."""
    with socket.create_connection(address, timeout=10) as client, contextlib.suppress(ConnectionError):
        client.sendall(data)
        received = b""
        while more := client.recv(1 << 12):
            received += more
        return received
    return b""


def _sent_slowly(address: tuple[str, int], context: ssl.SSLContext) -> bytes:
    """What a client with a certificate gets that sends a byte of its head each 0.1 s."""
    with (
        contextlib.suppress(OSError),
        socket.create_connection(address, timeout=10) as plain,
        context.wrap_socket(plain, server_hostname="127.0.0.1") as client,
    ):
        for byte in b"GET /metrics HTTP/1.1\r\nHost: a-very-long-name-of-a-host\r\n\r\n":
            client.sendall(bytes([byte]))
            time.sleep(0.1)  # pace: slower than the deadline in all
        return client.recv(1)
    return b""
