# SPDX-License-Identifier: Apache-2.0
"""A fake API server for each test; with `--kubeconfig FILE` the contracts run against a real one."""

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from daemonkit.kube.client import Client
from daemonkit.kube.credentials import Credentials
from daemonkit.kube.kubeconfig import Access, load, parse
from devkit.kube.apiserver import FakeApiserver
from devkit.kube.cluster import ClusterSettings
from devkit.pki import Authority
from tests import waiting

Until = Callable[[Callable[[], object]], Awaitable[None]]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--kubeconfig", help="run the contracts against this API server")


@pytest.fixture
def until() -> Until:
    """As a fixture, so that the contract's tests need nothing of this folder."""
    return waiting.until


@pytest.fixture(scope="session")
def authority() -> Authority:
    return Authority.create("super-cluster")


@pytest_asyncio.fixture
async def apiserver(authority: Authority) -> AsyncIterator[FakeApiserver]:
    async with FakeApiserver(authority=authority, client_ca_pem=authority.cert_pem) as server:
        yield server


@pytest.fixture
def access(apiserver: FakeApiserver, authority: Authority, tmp_path: Path) -> Access:
    leaf = authority.issue("reader", usages=["client"])
    return parse(apiserver.kubeconfig(leaf), tmp_path)


@pytest_asyncio.fixture
async def cluster_apiserver(authority: Authority) -> AsyncIterator[FakeApiserver]:
    """One that keeps the rules of a cluster."""
    async with FakeApiserver(
        authority=authority, client_ca_pem=authority.cert_pem, cluster=ClusterSettings()
    ) as server:
        yield server


@pytest.fixture
def cluster_access(cluster_apiserver: FakeApiserver, authority: Authority, tmp_path: Path) -> Access:
    leaf = authority.issue("reader", usages=["client"])
    return parse(cluster_apiserver.kubeconfig(leaf), tmp_path)


@pytest_asyncio.fixture
async def client(access: Access) -> AsyncIterator[Client]:
    async with Client(Credentials(lambda: access)) as client:
        yield client


@pytest.fixture
def any_credentials(request: pytest.FixtureRequest) -> Credentials:
    """Those for the API server that the contract is run against."""
    path = request.config.getoption("--kubeconfig", default=None)
    if path:
        return Credentials(lambda: load(path), watched=(Path(path),))
    access: Access = request.getfixturevalue("cluster_access")
    return Credentials(lambda: access)


@pytest_asyncio.fixture
async def any_client(any_credentials: Credentials) -> AsyncIterator[Client]:
    async with Client(any_credentials) as client:
        yield client
