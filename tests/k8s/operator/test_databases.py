# SPDX-License-Identifier: Apache-2.0
"""A tenant on a PostgreSQL that tenants share: its database is made, is away for a while, and goes."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Iterator

import pytest

from tests.k8s.operator import neighbours, postgresql, releases, tenants
from tests.k8s.operator.daemon import NAMESPACE, OperatorDaemon
from tests.k8s.operator.ground import OperatorGround
from tests.k8s.operator.postgresql import PostgresqlServer
from tests.k8s.operator.tenants import OperatedTenant
from tests.k8s.syncer.daemon import SyncerDaemon
from tests.k8s.syncer.shops import object_of

pytestmark = pytest.mark.timeout(300)

_RELEASE = "v1.34-postgresql"
_SECRET = "postgresql"
_CONFIG_MAPS = "/api/v1/namespaces/default/configmaps"
_AVAILABLE = "ControlPlaneAvailable"
# The goal is 10 s; the figure is printed.
_SHOWN_S = 30.0
_AWAY_S = 60.0
_BACK_S = 90.0
_CALM_S = 5.0


@pytest.fixture(scope="module")
def server(ground: OperatorGround) -> Iterator[PostgresqlServer]:
    """A server, with its administrator's credential in the operator's namespace."""
    releases.import_kine(ground.ring)
    log = ground.directory / "postgresql.log"
    with postgresql.started(ground.ring.control, log) as made:
        texts = {"endpoint": made.endpoint, "ca.crt": made.authority.cert_pem.decode()}
        secret = object_of("v1", "Secret", _SECRET, stringData=texts)
        path = f"/api/v1/namespaces/{NAMESPACE}/secrets"
        ground.api.create(path, secret)
        yield made
        assert ground.api.get(f"{path}/{_SECRET}")
        ground.api.delete(f"{path}/{_SECRET}")


@pytest.fixture(scope="module")
def tenant(
    ground: OperatorGround,
    syncer: SyncerDaemon,
    operator: OperatorDaemon,
    server: PostgresqlServer,
    figures: list[str],
) -> OperatedTenant:
    """Ready, with a ConfigMap."""
    store = {"type": "kine-postgresql", "secretName": _SECRET}
    version = tenants.cluster_version(_RELEASE, releases.CURRENT, datastore=store)
    version["spec"]["images"]["kine"] = releases.KINE
    tenants.apply(ground, version)
    made = tenants.create(ground, operator, "green", clusterVersionName=_RELEASE)
    made.wait_condition(tenants.READY)
    figures.append(f"{made.name}, kine with PostgreSQL: apply to Ready {made.elapsed_s:.1f} s")
    made.api().create(_CONFIG_MAPS, object_of("v1", "ConfigMap", "kept", data={"at": "before"}))
    return made


def test_role_has_one_database_and_no_more(tenant: OperatedTenant, server: PostgresqlServer) -> None:
    name = _database(tenant)
    assert server.ask("SELECT datname FROM pg_database WHERE datname LIKE 't\\_%'") == [name]
    roles = server.ask(
        "SELECT rolname, rolcanlogin, rolsuper, rolcreatedb, rolcreaterole, rolreplication, rolbypassrls, "
        "rolconnlimit FROM pg_roles"
    )
    assert f"{name}|t|f|f|f|f|f|20" in roles
    allowed = server.ask(
        "SELECT datname FROM pg_database, pg_roles WHERE datallowconn AND rolname LIKE 't\\_%' "
        "AND has_database_privilege(pg_roles.oid, pg_database.oid, 'CONNECT')"
    )
    assert allowed == [name]


def test_administrator_is_not_in_the_root_namespace(tenant: OperatedTenant, server: PostgresqlServer) -> None:
    """Nor is the tenant's password in what the server or the operator writes."""
    listed = tenant.root_kubectl("get", "secrets,configmaps,deployments,pods", "-o", "json").check().text
    values = [
        base64.b64decode(value).decode("utf-8", "replace")
        for each in json.loads(listed)["items"]
        if each["kind"] == "Secret"
        for value in each.get("data", {}).values()
    ]
    assert not any(server.password in text for text in (listed, *values))
    path = f"/api/v1/namespaces/{tenant.key}/secrets/store-credentials"
    password = base64.b64decode(tenant.ground.api.get(path)["data"]["password"]).decode()
    log = (tenant.ground.directory / "postgresql.log").read_text()
    assert "ALTER ROLE" in log
    assert not any(password in text for text in (log, tenant.operator.log.read_text()))


def test_server_that_is_away_is_shown_and_service_returns(
    tenant: OperatedTenant,
    server: PostgresqlServer,
    residents: tuple[OperatedTenant, OperatedTenant],
    figures: list[str],
) -> None:
    neighbour = residents[1]
    with neighbours.asked(neighbour) as calm:
        began = time.monotonic()
        tenant.wait("a while is over", lambda: time.monotonic() - began >= _CALM_S)
    with neighbours.asked(neighbour) as times:
        server.pause()
        began = time.monotonic()
        try:
            shown = tenant.wait_condition(_AVAILABLE, "False", timeout_s=_SHOWN_S)
            shown_s = time.monotonic() - began
            tenant.wait("it was away", lambda: time.monotonic() - began >= _AWAY_S)
        finally:
            server.resume()
        began = time.monotonic()
        tenant.wait_condition(tenants.READY, timeout_s=_BACK_S)
        back_s = time.monotonic() - began
    assert f"whether the datastore of Secret {_SECRET} answers" in shown["message"]
    api = tenant.api()
    assert api.get(f"{_CONFIG_MAPS}/kept")["data"] == {"at": "before"}
    api.patch(f"{_CONFIG_MAPS}/kept", {"data": {"at": "after"}})
    times.check()
    figures.append(
        f"{tenant.name}, PostgreSQL away for {_AWAY_S:.0f} s: shown after {shown_s:.1f} s, Ready "
        f"{back_s:.1f} s after it is back; {neighbour.name}: {times}; before: {calm}"
    )


def test_deletion_leaves_no_database_and_no_role(
    tenant: OperatedTenant, server: PostgresqlServer, figures: list[str]
) -> None:
    name = _database(tenant)
    began = time.monotonic()
    tenant.delete()
    tenant.wait_gone()
    assert name not in server.ask("SELECT datname FROM pg_database")
    assert name not in server.ask("SELECT rolname FROM pg_roles")
    figures.append(f"{tenant.name}: deleted with its database in {time.monotonic() - began:.1f} s")


def _database(tenant: OperatedTenant) -> str:
    return "t_" + str(tenant.get()["metadata"]["uid"]).replace("-", "")
