# SPDX-License-Identifier: Apache-2.0
"""kine beside each API server, with a database and a role of the tenant's own on a shared PostgreSQL.

The operator makes and drops both (`edge.databases`). The administrator's credential never is in the tenant's
root namespace.
"""

from tenant_operator.datastores.database_server import PORT
from tenant_operator.datastores.kine_sqlite import COMPACTION_INTERVAL
from tenant_operator.datastores.port import Datastore
from tenant_operator.model import names, network_rules, pods
from tenant_operator.model.cluster_version import ComponentSize
from tenant_operator.model.control_plane import ControlPlane, ManifestInputs
from tenant_operator.model.objects import Object

# kine opens as many as it can use; a server has 100 for all tenants unless it is configured.
_MAX_CONNECTIONS = 10
_SOCKET_DIRECTORY = "/run/kine"
_SOCKET = f"unix://{_SOCKET_DIRECTORY}/kine.sock"
_SOCKET_MOUNT: Object = {"name": "kine-socket", "mountPath": _SOCKET_DIRECTORY}
_CREDENTIALS_DIRECTORY = "/etc/kine"
_SIZE = ComponentSize(cpu="20m", memory="64Mi", go_gc=40)


def kine_postgresql(control_plane: ControlPlane, inputs: ManifestInputs) -> Datastore:
    """Its Secret is names.STORE_CREDENTIALS: `endpoint` is the URL with role, password and
    `sslmode=verify-full`, and `ca.crt` the authority of the server. kine reads it at its start."""
    if not inputs.store_cidrs:
        return Datastore(
            problem=f"ClusterVersion {control_plane.release.name}: spec.datastore.type is kine-postgresql,"
            " and vc-operator's configuration has no fence.storeCidrs, so that API servers reach no server"
        )
    return Datastore(
        apiserver_flags={"etcd-servers": _SOCKET, "etcd-compaction-interval": COMPACTION_INTERVAL},
        apiserver_digests=(names.STORE_CREDENTIALS,),
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
        apiserver_egress=(network_rules.to_peers(network_rules.blocks(inputs.store_cidrs), PORT),),
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


def connections(control_plane: ControlPlane) -> int:
    """How many its role may have: of all API servers, and of one more while they are replaced."""
    return _MAX_CONNECTIONS * (control_plane.size.api_server.replicas + 1)
