# SPDX-License-Identifier: Apache-2.0
"""kine beside each API server, with a database and a role of the tenant's own on a shared PostgreSQL.

The administrator's credential stays in the operator's namespace: only the jobs there that make and remove the
database have it.
"""

from tenant_operator.datastores import sql
from tenant_operator.datastores.kine_sqlite import COMPACTION_INTERVAL
from tenant_operator.datastores.port import Datastore
from tenant_operator.model import names, network_rules, pods
from tenant_operator.model.cluster_version import ComponentSize
from tenant_operator.model.control_plane import ControlPlane, ManifestInputs
from tenant_operator.model.objects import Object

_PORT = 5432
# kine opens as many as it can use; a server has 100 for all tenants unless it is configured.
_MAX_CONNECTIONS = 10
_SOCKET_DIRECTORY = "/run/kine"
_SOCKET = f"unix://{_SOCKET_DIRECTORY}/kine.sock"
_SOCKET_MOUNT: Object = {"name": "kine-socket", "mountPath": _SOCKET_DIRECTORY}
_CREDENTIALS_DIRECTORY = "/etc/kine"
_SIZE = ComponentSize(cpu="20m", memory="64Mi", go_gc=40)
_SCRIPT = "script.sql"
_SCRIPT_DIRECTORY = "/etc/psql"
_JOB_SECONDS = 300
# From the administrator's Secret into what libpq reads.
_ADMINISTRATOR = (
    ("PGHOST", "host"),
    ("PGPORT", "port"),
    ("PGUSER", "username"),
    ("PGPASSWORD", "password"),
    ("PGDATABASE", "database"),
)


def kine_postgresql(control_plane: ControlPlane, inputs: ManifestInputs) -> Datastore:
    """Its Secrets: names.STORE_CREDENTIALS in the root namespace with `endpoint`, the URL with role, password
    and `sslmode=verify-full`, and `ca.crt`; `store-UID` beside the administrator's, with `password`.
    """
    release = control_plane.release
    if not release.images.backup:
        return Datastore(
            problem=f"ClusterVersion {release.name}: spec.images.backup is not named; it has psql, by which"
            " the database is made"
        )
    return Datastore(
        manifests=database_job(control_plane, inputs),
        apiserver_flags={"etcd-servers": _SOCKET, "etcd-compaction-interval": COMPACTION_INTERVAL},
        apiserver_mounts=(_SOCKET_MOUNT,),
        apiserver_volumes=(
            {"name": "kine-socket", "emptyDir": {"medium": "Memory", "sizeLimit": "1Mi"}},
            {
                "name": "kine-credentials",
                "secret": {
                    "secretName": names.STORE_CREDENTIALS,
                    "defaultMode": pods.GROUP_READABLE,
                    "items": [{"key": "ca.crt", "path": "ca.crt"}],
                },
            },
        ),
        sidecars=(_kine(control_plane),),
        apiserver_egress=(
            (network_rules.to_peers(network_rules.blocks(inputs.store_cidrs), _PORT),)
            if inputs.store_cidrs
            else ()
        ),
        secrets=(names.STORE_CREDENTIALS,),
    )


def _kine(control_plane: ControlPlane) -> Object:
    return pods.container(
        "kine",
        control_plane.release.images.kine,
        _SIZE,
        command=["kine"],
        args=pods.flags(
            {
                "listen-address": _SOCKET,
                "metrics-bind-address": "0",
                "datastore-max-open-connections": str(_MAX_CONNECTIONS),
                "ca-file": f"{_CREDENTIALS_DIRECTORY}/ca.crt",
            }
        ),
        env=[{"name": "KINE_ENDPOINT", "valueFrom": _secret_key(names.STORE_CREDENTIALS, "endpoint")}],
        mounts=[
            _SOCKET_MOUNT,
            {"name": "kine-credentials", "mountPath": _CREDENTIALS_DIRECTORY, "readOnly": True},
        ],
    )


def _secret_key(secret: str, key: str) -> Object:
    return {"secretKeyRef": {"name": secret, "key": key}}


def database_job(control_plane: ControlPlane, inputs: ManifestInputs) -> tuple[Object, ...]:
    """Makes the database and the role, in the operator's namespace."""
    connections = _MAX_CONNECTIONS * (control_plane.size.api_server.replicas + 1)
    script = sql.creation(control_plane.key, connections)
    return _job(control_plane, inputs, f"store-{control_plane.uid}", script, has_password=True)


def database_removal_job(control_plane: ControlPlane, inputs: ManifestInputs) -> tuple[Object, ...]:
    """Removes both, once no API server uses them."""
    script = sql.removal(control_plane.key)
    return _job(control_plane, inputs, f"store-removal-{control_plane.uid}", script, has_password=False)


def _job(
    control_plane: ControlPlane, inputs: ManifestInputs, name: str, script: str, *, has_password: bool
) -> tuple[Object, ...]:
    secret = control_plane.release.datastore.secret_name
    metadata = {"namespace": inputs.operator_namespace, "name": name, "labels": control_plane.labels}
    environment: list[Object] = [
        {"name": variable, "valueFrom": _secret_key(secret, key)} for variable, key in _ADMINISTRATOR
    ]
    environment += [
        {"name": "PGSSLMODE", "value": "verify-full"},
        {"name": "PGSSLROOTCERT", "value": f"{_CREDENTIALS_DIRECTORY}/ca.crt"},
    ]
    if has_password:
        own = _secret_key(f"store-{control_plane.uid}", "password")
        environment.append({"name": sql.PASSWORD_VARIABLE, "valueFrom": own})
    container = pods.container(
        "psql",
        control_plane.release.images.backup,
        ComponentSize(cpu="10m", memory="32Mi"),
        command=["psql"],
        args=["--no-psqlrc", "--set=ON_ERROR_STOP=1", f"--file={_SCRIPT_DIRECTORY}/{_SCRIPT}"],
        env=environment,
        mounts=[
            {"name": "script", "mountPath": _SCRIPT_DIRECTORY, "readOnly": True},
            {"name": "credentials", "mountPath": _CREDENTIALS_DIRECTORY, "readOnly": True},
        ],
    )
    volumes = [
        {"name": "script", "configMap": {"name": name}},
        {
            "name": "credentials",
            "secret": {
                "secretName": secret,
                "defaultMode": pods.GROUP_READABLE,
                "items": [{"key": "ca.crt", "path": "ca.crt"}],
            },
        },
    ]
    return (
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {_SCRIPT: script}},
        {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": metadata,
            "spec": {
                "backoffLimit": 6,
                "activeDeadlineSeconds": _JOB_SECONDS,
                "template": pods.job_template(control_plane, names.STORE_JOB, container, volumes),
            },
        },
    )
