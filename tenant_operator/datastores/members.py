# SPDX-License-Identifier: Apache-2.0
"""A store in pods of the tenant's root namespace: one StatefulSet, whatever program it runs.

All such stores have the same names, ports and certificates, and the same fence. Both sides show certificates
of etcd's own authority, as a tenant can make its controller manager sign any client certificate of the
cluster's.
"""

from tenant_operator.datastores.port import Datastore
from tenant_operator.model import names, network_rules, pods
from tenant_operator.model.control_plane import ControlPlane, ManifestInputs
from tenant_operator.model.objects import Object

DATA_MOUNT: Object = {"name": "data", "mountPath": "/var/lib/etcd"}
DATA_DIRECTORY = "/var/lib/etcd/data"
SERVER_PAIR = pods.key_pair(names.ETCD_SERVER)
AUTHORITY = pods.authorities(names.ETCD_BUNDLE)
_LOADED = f"{names.ETCD_CA}/{names.LOADED}"
_FIRST_LOADED = f"{names.ETCD_CA}/{names.FIRST_LOADED}"
# The API server reads this pair again, and no request shows which one it uses: pods are replaced.
_ISSUER = f"{names.API_SERVER_ETCD_CLIENT}/{names.ISSUER}"
# The database, a snapshot of it that is being received, and the log.
_FILES_TO_QUOTA = 3


def datastore(
    control_plane: ControlPlane, inputs: ManifestInputs, container: Object, members: int, *more: Object
) -> Datastore:
    """The store of these members, as an API server uses it. `more` objects belong to it."""
    pair = pods.key_pair(names.API_SERVER_ETCD_CLIENT)
    hosts = member_hosts(control_plane, members)
    return Datastore(
        manifests=(
            _service(control_plane),
            *more,
            _stateful_set(control_plane, inputs, container, members),
        ),
        apiserver_flags={
            "etcd-servers": ",".join(f"https://{each}:{names.ETCD_PORT}" for each in hosts),
            "etcd-cafile": AUTHORITY.path(names.ETCD_BUNDLE),
            "etcd-certfile": pair.path("tls.crt"),
            "etcd-keyfile": pair.path("tls.key"),
        },
        apiserver_files=(pair, AUTHORITY),
        apiserver_digests=(_LOADED, _ISSUER),
        apiserver_egress=(network_rules.to_peers([network_rules.component(names.ETCD)], names.ETCD_PORT),),
        policies=(_policy(control_plane, inputs),),
        secrets=(names.ETCD_SERVER, names.API_SERVER_ETCD_CLIENT),
    )


def member_hosts(control_plane: ControlPlane, members: int) -> list[str]:
    """Host names. The search path of each pod completes them: the super cluster's domain may be any."""
    where = f"{names.ETCD}.{control_plane.key}.svc"
    return [f"{names.ETCD}-{index}.{where}" for index in range(members)]


def _policy(control_plane: ControlPlane, inputs: ManifestInputs) -> Object:
    """Clients are its API server and jobs for backups; members reach each other by their names. The operator
    asks for certificates in a handshake, and for alarms as an API server."""
    clients = [network_rules.component(each) for each in (names.API_SERVER, names.BACKUP)]
    members = [network_rules.component(names.ETCD)]
    operator = network_rules.namespace(inputs.operator_namespace)
    return network_rules.policy(
        control_plane,
        names.ETCD,
        pods.selector(names.ETCD),
        ingress=[
            network_rules.from_peers([*clients, operator], names.ETCD_PORT),
            network_rules.from_peers(members, names.ETCD_PEER_PORT),
        ],
        egress=[network_rules.to_peers(members, names.ETCD_PEER_PORT), network_rules.dns(inputs)],
    )


def _service(control_plane: ControlPlane) -> Object:
    """Headless. Members that are not ready have names too: they find each other before any is ready."""
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": pods.metadata(control_plane, names.ETCD, names.ETCD),
        "spec": {
            "clusterIP": "None",
            "publishNotReadyAddresses": True,
            "selector": pods.selector(names.ETCD)["matchLabels"],
            "ports": [
                {"name": "client", "port": names.ETCD_PORT, "targetPort": "client"},
                {"name": "peer", "port": names.ETCD_PEER_PORT, "targetPort": "peer"},
            ],
        },
    }


def _stateful_set(
    control_plane: ControlPlane, inputs: ManifestInputs, container: Object, members: int
) -> Object:
    datastore = control_plane.release.datastore
    volumes = [pods.files_volume((SERVER_PAIR, AUTHORITY))]
    spec: Object = {
        "replicas": 0 if control_plane.is_asleep else members,
        "serviceName": names.ETCD,
        # All members must run before one is ready.
        "podManagementPolicy": "Parallel",
        "revisionHistoryLimit": 2,
        "updateStrategy": {"type": "RollingUpdate", "rollingUpdate": {"partition": 0}},
        "selector": pods.selector(names.ETCD),
        "persistentVolumeClaimRetentionPolicy": {
            # Who deletes the StatefulSet by hand does not mean the data. The claims go with the namespace.
            "whenDeleted": "Retain",
            # It sleeps with no member.
            "whenScaled": "Retain",
        },
    }
    if datastore.size:
        spec["volumeClaimTemplates"] = [_claim(control_plane)]
    else:
        limit = pods.memory_quantity(_FILES_TO_QUOTA * control_plane.size.etcd.quota_bytes)
        volumes.append({"name": "data", "emptyDir": {"sizeLimit": limit}})
    spec["template"] = pods.pod_template(
        names.ETCD,
        control_plane,
        containers=[container],
        volumes=volumes,
        # It ends within a second; the rest is for a slow disk. One that is alone is not started again for a
        # rotation: no request would be served meanwhile.
        grace_seconds=30,
        digest=inputs.digests.get(_LOADED if members > 1 else _FIRST_LOADED, ""),
    )
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": pods.metadata(control_plane, names.ETCD, names.ETCD),
        "spec": spec,
    }


def _claim(control_plane: ControlPlane) -> Object:
    datastore = control_plane.release.datastore
    spec: Object = {
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": datastore.size}},
    }
    if datastore.storage_class_name is not None:
        spec["storageClassName"] = datastore.storage_class_name
    return {"metadata": {"name": "data", "labels": control_plane.labels}, "spec": spec}
