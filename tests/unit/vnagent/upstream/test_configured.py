# SPDX-License-Identifier: Apache-2.0
"""The super API server is followed to a new kubeconfig and to a new address; the last good ones stay."""

import asyncio
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.unit.vnagent.upstream.test_apiserver import CERTIFICATE, CLUSTER, kubeconfig
from vnagent.transport.poller import SocketPoller
from vnagent.upstream import apiserver
from vnagent.upstream.configured import ApiserverUpstream

pytestmark = pytest.mark.asyncio


class FakeDns:
    """DNS: the addresses of names. Without one, a name does not resolve."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.found: Mapping[str, tuple[str, ...]] = {"api.example": ("192.0.2.1",)}
        monkeypatch.setattr(apiserver, "resolve", self.resolve)

    async def resolve(self, host: str, _port: int) -> tuple[str, ...]:
        if host not in self.found:
            raise OSError(-2, "Name or service not known")
        return self.found[host]


def write(directory: Path, host: str) -> Path:
    return kubeconfig(directory, CLUSTER | {"server": f"https://{host}:6443"}, CERTIFICATE)


def asked(upstream: ApiserverUpstream) -> tuple[str, str]:
    """The address that is dialled, and the name in requests."""
    return upstream.pool.address.host, upstream.pool.requests.authority


async def started(directory: Path) -> ApiserverUpstream:
    """Of a kubeconfig in `directory` whose server is `api.example`."""
    poller = SocketPoller(asyncio.get_running_loop())
    upstream = ApiserverUpstream(write(directory, "api.example"), "node-1", poller)
    await upstream.start()
    return upstream


async def test_a_name_without_an_address_leaves_the_last_good_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A mistyped name once cut all tenants, and the reload counted as one that succeeded."""
    names = FakeDns(monkeypatch)
    upstream = await started(tmp_path)
    good = ("192.0.2.1", "api.example:6443")
    assert asked(upstream) == good
    path = write(tmp_path, "mistyped.example")
    problem = await upstream.reloadable.reload()
    assert problem == f"{path}: mistyped.example cannot be resolved: Name or service not known"
    assert asked(upstream) == good
    names.found = {"other.example": ("192.0.2.7",)}
    write(tmp_path, "other.example")
    assert await upstream.reloadable.reload() is None
    assert asked(upstream) == ("192.0.2.7", "other.example:6443")


async def test_a_kubeconfig_is_due_again_once_its_name_resolves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While DNS was away a change of the file was lost until the next one."""
    names = FakeDns(monkeypatch)
    upstream = await started(tmp_path)
    upstream.reloadable.poll()
    write(tmp_path, "moved.example")
    assert upstream.reloadable.poll()
    assert await upstream.reloadable.reload() is not None
    await upstream.start()
    assert not upstream.reloadable.poll()
    names.found = {"moved.example": ("192.0.2.7",)}
    await upstream.start()
    assert upstream.reloadable.poll()
    assert await upstream.reloadable.reload() is None
    assert asked(upstream) == ("192.0.2.7", "moved.example:6443")
    await upstream.start()
    assert not upstream.reloadable.poll()


async def test_a_new_kubeconfig_outlives_a_failed_reload(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It cannot be read for a moment, as while its Secret is mounted again."""
    names = FakeDns(monkeypatch)
    upstream = await started(tmp_path)
    path = write(tmp_path, "moved.example")
    assert await upstream.reloadable.reload() is not None
    content = path.read_bytes()
    path.unlink()
    assert await upstream.reloadable.reload() is not None
    path.write_bytes(content)
    upstream.reloadable.poll()
    names.found = {"moved.example": ("192.0.2.7",)}
    await upstream.start()
    assert upstream.reloadable.poll()
    assert await upstream.reloadable.reload() is None
    assert asked(upstream) == ("192.0.2.7", "moved.example:6443")


async def test_a_broken_kubeconfig_ends_the_wait_for_the_former(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The name of the former one was resolved each 5 s, and the file then reported as broken."""
    names = FakeDns(monkeypatch)
    upstream = await started(tmp_path)
    path = write(tmp_path, "moved.example")
    assert await upstream.reloadable.reload() is not None
    path.write_bytes(b"broken")
    assert upstream.reloadable.poll()
    assert await upstream.reloadable.reload() is not None
    names.found = {"moved.example": ("192.0.2.7",)}
    await upstream.start()
    assert upstream.reloadable.poll()
    assert await upstream.reloadable.reload() is not None
    await upstream.start()
    assert not upstream.reloadable.poll()
    write(tmp_path, "moved.example")
    assert upstream.reloadable.poll()
    assert await upstream.reloadable.reload() is None
    assert asked(upstream) == ("192.0.2.7", "moved.example:6443")


async def test_an_address_is_followed_and_outlives_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = FakeDns(monkeypatch)
    poller = SocketPoller(asyncio.get_running_loop())
    upstream = ApiserverUpstream(write(tmp_path, "api.example"), "node-1", poller)
    seen = []
    for found in (
        {"api.example": ("192.0.2.1",)},
        {"api.example": ("192.0.2.2",)},
        {},
        {"api.example": ("192.0.2.3",)},
    ):
        names.found = found
        await upstream.start()
        seen.append(asked(upstream)[0])
    assert seen == ["192.0.2.1", "192.0.2.2", "192.0.2.2", "192.0.2.3"]


async def test_all_addresses_of_a_name_are_dialled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the first one was: an API server of several that was down cut all tenants."""
    names = FakeDns(monkeypatch)
    names.found = {"api.example": ("2001:db8::1", "192.0.2.1", "192.0.2.2")}
    upstream = ApiserverUpstream(
        write(tmp_path, "api.example"), "node-1", SocketPoller(asyncio.get_running_loop())
    )
    await upstream.start()
    address = upstream.pool.address
    assert (address.host, *address.others) == names.found["api.example"]
    names.found = {}
    await upstream.start()
    assert upstream.pool.address == address
