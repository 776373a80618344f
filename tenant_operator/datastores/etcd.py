# SPDX-License-Identifier: Apache-2.0
"""An etcd of the tenant's own, with one member or three.

Members know each other by the names that the headless Service gives them, never by a pod's address: a pod
that is rescheduled is the same member. They trust etcd's own authority alone, as a tenant can make its
controller manager sign any client certificate of the cluster's authority.
"""

from tenant_operator.datastores.port import Datastore
from tenant_operator.model import names, network_rules, pods
from tenant_operator.model.control_plane import ControlPlane, ManifestInputs
from tenant_operator.model.objects import Object

_METRICS_PORT = 2381
_DATA_DIRECTORY = "/var/lib/etcd"
_DIGEST = f"{names.AUTHORITIES}/{names.ETCD_BUNDLE}"
_STATE = "initial-cluster-state"
# etcd ends within a second; the rest is for a slow disk.
_GRACE_S = 30
# The database, a snapshot of it that is being received, and the log.
_FILES_TO_QUOTA = 3


def etcd(control_plane: ControlPlane, inputs: ManifestInputs) -> Datastore:
    """The default datastore."""
    files = (pods.key_pair(names.API_SERVER_ETCD_CLIENT), pods.authorities(names.ETCD_BUNDLE))
    pair, authority = files
    return Datastore(
        manifests=(
            _service(control_plane),
            _config(control_plane, inputs),
            _stateful_set(control_plane, inputs),
        ),
        apiserver_flags={
            "etcd-servers": ",".join(f"https://{each}:{names.ETCD_PORT}" for each in _members(control_plane)),
            "etcd-cafile": authority.path(names.ETCD_BUNDLE),
            "etcd-certfile": pair.path("tls.crt"),
            "etcd-keyfile": pair.path("tls.key"),
            # etcd compacts by itself. With an interval the API server would read a key each second.
            "etcd-compaction-interval": "0",
        },
        apiserver_files=files,
        apiserver_digests=(_DIGEST,),
        apiserver_egress=(network_rules.to_peers([network_rules.component(names.ETCD)], names.ETCD_PORT),),
        policies=(_policy(control_plane, inputs),),
        secrets=(names.ETCD_SERVER, names.API_SERVER_ETCD_CLIENT),
    )


def _members(control_plane: ControlPlane) -> list[str]:
    """Host names. The search path of each pod completes them: the super cluster's domain may be any."""
    where = f"{names.ETCD}.{control_plane.key}.svc"
    return [f"{names.ETCD}-{index}.{where}" for index in range(control_plane.size.etcd.replicas)]


def _policy(control_plane: ControlPlane, inputs: ManifestInputs) -> Object:
    """Clients are its API server and jobs for backups; members reach each other by their names."""
    clients = [network_rules.component(each) for each in (names.API_SERVER, names.BACKUP)]
    members = [network_rules.component(names.ETCD)]
    return network_rules.policy(
        control_plane,
        names.ETCD,
        pods.selector(names.ETCD),
        ingress=[
            network_rules.from_peers(clients, names.ETCD_PORT),
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


def _config(control_plane: ControlPlane, inputs: ManifestInputs) -> Object:
    """Read at a pod's start, so that a change of it restarts no member.

    `new` makes an empty cluster. Once all members were ready, a member that has lost its volume must join the
    others, and a single one must not start empty: its tenant would seem to have deleted everything. A member
    without a volume starts empty each time, which is what labs ask for with the size "".
    """
    is_kept = control_plane.release.datastore.size != ""
    state = "existing" if inputs.has_started_store and is_kept else "new"
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": pods.metadata(control_plane, names.ETCD_CONFIG, names.ETCD),
        "data": {_STATE: state},
    }


def _stateful_set(control_plane: ControlPlane, inputs: ManifestInputs) -> Object:
    datastore = control_plane.release.datastore
    is_deleted = control_plane.volumes == "Delete"
    volumes = [pods.files_volume(_FILES)]
    spec: Object = {
        "replicas": 0 if control_plane.is_asleep else control_plane.size.etcd.replicas,
        "serviceName": names.ETCD,
        # All members must run before one is ready.
        "podManagementPolicy": "Parallel",
        "revisionHistoryLimit": 2,
        "selector": pods.selector(names.ETCD),
        "persistentVolumeClaimRetentionPolicy": {
            "whenDeleted": "Delete" if is_deleted else "Retain",
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
        containers=[_container(control_plane)],
        volumes=volumes,
        grace_seconds=_GRACE_S,
        digest=inputs.digests.get(_DIGEST, ""),
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


_PAIR = pods.key_pair(names.ETCD_SERVER)
_FILES = (_PAIR, pods.authorities(names.ETCD_BUNDLE))


def _container(control_plane: ControlPlane) -> Object:
    size = control_plane.size.etcd
    release = control_plane.etcd_release or control_plane.release
    liveness = pods.probe("/livez", "metrics", scheme="HTTP", period_s=10, failures=8)
    return pods.container(
        names.ETCD,
        release.images.etcd,
        size,
        command=["etcd"],
        args=pods.flags(_flags(control_plane)),
        env=[
            {"name": "POD_NAME", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
            {
                "name": "ETCD_INITIAL_CLUSTER_STATE",
                "valueFrom": {"configMapKeyRef": {"name": names.ETCD_CONFIG, "key": _STATE}},
            },
        ],
        mounts=[pods.FILES_MOUNT, {"name": "data", "mountPath": _DATA_DIRECTORY}],
        ports={"client": names.ETCD_PORT, "peer": names.ETCD_PEER_PORT, "metrics": _METRICS_PORT},
        probes={
            # A member replays its log first: up to ten minutes.
            "startupProbe": pods.probe("/readyz", "metrics", scheme="HTTP", period_s=1, failures=600),
            "readinessProbe": pods.probe("/readyz", "metrics", scheme="HTTP", period_s=5, failures=3),
            "livenessProbe": liveness,
        },
    )


def _flags(control_plane: ControlPlane) -> dict[str, str]:
    own = f"$(POD_NAME).{names.ETCD}.{control_plane.key}.svc"
    peers = ",".join(
        f"{each.split('.', 1)[0]}=https://{each}:{names.ETCD_PEER_PORT}" for each in _members(control_plane)
    )
    pair, authority = _FILES
    return {
        "name": "$(POD_NAME)",
        "data-dir": f"{_DATA_DIRECTORY}/data",
        "listen-client-urls": f"https://0.0.0.0:{names.ETCD_PORT}",
        "listen-peer-urls": f"https://0.0.0.0:{names.ETCD_PEER_PORT}",
        # Plain, and without any key's content: for probes alone.
        "listen-metrics-urls": f"http://0.0.0.0:{_METRICS_PORT}",
        "advertise-client-urls": f"https://{own}:{names.ETCD_PORT}",
        "initial-advertise-peer-urls": f"https://{own}:{names.ETCD_PEER_PORT}",
        "initial-cluster": peers,
        # Members of two control planes never join each other.
        "initial-cluster-token": control_plane.uid,
        "client-cert-auth": "true",
        "trusted-ca-file": authority.path(names.ETCD_BUNDLE),
        "cert-file": pair.path("tls.crt"),
        "key-file": pair.path("tls.key"),
        "peer-client-cert-auth": "true",
        "peer-trusted-ca-file": authority.path(names.ETCD_BUNDLE),
        "peer-cert-file": pair.path("tls.crt"),
        "peer-key-file": pair.path("tls.key"),
        "auto-compaction-mode": "periodic",
        "auto-compaction-retention": "5m",
        "snapshot-count": "5000",
        "quota-backend-bytes": str(control_plane.size.etcd.quota_bytes),
    }
