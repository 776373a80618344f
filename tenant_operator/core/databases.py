# SPDX-License-Identifier: Apache-2.0
"""The database of a tenant on a shared PostgreSQL: when it is to be made, and what there is to drop.

The Secret with the tenant's credential is written before the database, and removed after it: what its
annotation names may be on the server.
"""

from tenancy import keys
from tenant_operator.core.observed import Observed
from tenant_operator.core.plan import PlanBuilder
from tenant_operator.core.steps import DropDatabase, MakeDatabase
from tenant_operator.datastores import kine_postgresql, sql
from tenant_operator.life.deletion import SharedDatabase
from tenant_operator.model import names
from tenant_operator.model.control_plane import ControlPlane, ManifestInputs
from tenant_operator.model.objects import Ref


def settle(
    builder: PlanBuilder, observed: Observed, control_plane: ControlPlane, inputs: ManifestInputs
) -> bool:
    """Have the database made, and its role's limit follow the class. Returns whether it is there."""
    if control_plane.release.datastore.type != "kine-postgresql":
        return True
    target = Ref("Secret", control_plane.key, names.STORE_CREDENTIALS)
    live = observed.objects.get(target)
    made = "" if live is None else live.metadata.annotations.get(keys.DATABASE_CONNECTIONS, "")
    connections = kine_postgresql.connections(control_plane)
    if made == str(connections):
        return True
    server = Ref("Secret", inputs.operator_namespace, control_plane.release.datastore.secret_name)
    name = sql.database_name(control_plane.uid)
    builder.steps.append(MakeDatabase(server, target, name, connections, control_plane.labels))
    if not made:
        builder.wait(f"database and role {name} on the server of {server}")
    return bool(made)


def annotation(server: Ref, name: str) -> str:
    """Where a database is, as the Secret of its credential has it."""
    return f"{server.namespace} {server.name} {name}"


def to_drop(observed: Observed, key: str) -> SharedDatabase | None:
    """What a shared server may have of the tenant, with what stood against its removal."""
    live = observed.live("Secret", key, names.STORE_CREDENTIALS)
    found = ("" if live is None else live.metadata.annotations.get(keys.DATABASE, "")).split(" ")
    if len(found) != 3:
        return None
    namespace, secret, name = found
    credential = Ref("Secret", key, names.STORE_CREDENTIALS)
    problem = next((each.message for each in observed.failures if each.ref == credential), "")
    return SharedDatabase(Ref("Secret", namespace, secret), name, problem)


def drop_step(observed: Observed, key: str, database: SharedDatabase) -> DropDatabase:
    """The step that drops it, and then forgets it."""
    credential = Ref("Secret", key, names.STORE_CREDENTIALS)
    uid = observed.objects[credential].metadata.uid
    return DropDatabase(database.secret, credential, uid, database.name)
