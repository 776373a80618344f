# SPDX-License-Identifier: Apache-2.0
"""kine with SQLite: for labs, where the smallest footprint counts and one member is enough.

SQLite has no quota: the volume bounds it. kine has no snapshots: a backup copies the database.
"""

from tenant_operator.datastores import members
from tenant_operator.datastores.port import Datastore
from tenant_operator.model import names, pods
from tenant_operator.model.control_plane import ControlPlane, ManifestInputs
from tenant_operator.model.objects import Object

_DATABASE = f"{members.DATA_DIRECTORY}.sqlite"
# Readers and the writer do not block each other; a writer waits for the one before it.
_ENDPOINT = f"sqlite://{_DATABASE}?_journal=WAL&cache=shared&_busy_timeout=30000"
COMPACTION_INTERVAL = "5m"


def kine_sqlite(control_plane: ControlPlane, inputs: ManifestInputs) -> Datastore:
    """One member, whatever the class has. kine compacts nothing by itself: the API server does."""
    found = members.datastore(control_plane, inputs, _container(control_plane), 1)
    found.apiserver_flags["etcd-compaction-interval"] = COMPACTION_INTERVAL
    return found


def _container(control_plane: ControlPlane) -> Object:
    probe: Object = {"tcpSocket": {"port": "client"}, "timeoutSeconds": 5}
    return pods.container(
        "kine",
        control_plane.release.images.kine,
        control_plane.size.etcd,
        command=["kine"],
        args=pods.flags(
            {
                "endpoint": _ENDPOINT,
                "listen-address": f"https://0.0.0.0:{names.ETCD_PORT}",
                "metrics-bind-address": "0",
                "server-cert-file": members.SERVER_PAIR.path("tls.crt"),
                "server-key-file": members.SERVER_PAIR.path("tls.key"),
                "trusted-ca-file": members.AUTHORITY.path(names.ETCD_BUNDLE),
            }
        ),
        # The container's own file system is read-only.
        env=[{"name": "SQLITE_TMPDIR", "value": members.DATA_MOUNT["mountPath"]}],
        mounts=[pods.FILES_MOUNT, members.DATA_MOUNT],
        ports={"client": names.ETCD_PORT},
        probes={
            "startupProbe": probe | {"periodSeconds": 1, "failureThreshold": 600},
            "readinessProbe": probe | {"periodSeconds": 5, "failureThreshold": 3},
            "livenessProbe": probe | {"periodSeconds": 10, "failureThreshold": 8},
        },
    )
