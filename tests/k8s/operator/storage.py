# SPDX-License-Identifier: Apache-2.0
"""Volumes for claims of the super cluster: its default StorageClass, and what provisions it.

As a provisioner of local disks: a claim waits for its first pod, gets a directory of that pod's node as a
`local` volume, for which the kubelet applies `fsGroup`, and both go with the claim.
"""

from __future__ import annotations

import shutil
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.k8s.ring.api import JsonObject, KubernetesApi
from tests.k8s.ring.processes import RingError
from tests.k8s.syncer.shops import object_of

CLASS = "disk"
CLASSES = "/apis/storage.k8s.io/v1/storageclasses"
VOLUMES = "/api/v1/persistentvolumes"
_PROVISIONER = "ring.test/disk"
_CLAIMS = "/api/v1/persistentvolumeclaims"
_SELECTED_NODE = "volume.kubernetes.io/selected-node"
_PROVISIONED_BY = "pv.kubernetes.io/provisioned-by"
_LOOK_S = 0.3
_STOPPED_S = 30.0


@dataclass(slots=True)
class DiskProvisioner:
    """Looks at all claims and volumes of its class, again and again, on a thread of its own.

    `directories` has that of each node's volumes, by the node's name. `failure` is the last error of a look.
    """

    api: KubernetesApi
    directories: Mapping[str, Path]
    failure: str = ""
    _is_over: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        """Until `stop`. The API server may be away for a while."""
        while not self._is_over.is_set():
            try:
                self.sync()
            except (OSError, RingError) as error:
                self.failure = str(error)
            # pace: a look is two lists, and a claim may wait so long
            self._is_over.wait(_LOOK_S)

    def stop(self) -> None:
        self._is_over.set()

    def sync(self) -> None:
        """Make the volume of each claim that has a node, and delete each volume whose claim has gone."""
        volumes = {
            volume["metadata"]["name"]: volume
            for volume in self.api.get(VOLUMES)["items"]
            if volume["spec"].get("storageClassName") == CLASS
        }
        for claim in self.api.get(_CLAIMS)["items"]:
            node = claim["metadata"].get("annotations", {}).get(_SELECTED_NODE)
            name = f"pvc-{claim['metadata']['uid']}"
            if claim["spec"].get("storageClassName") == CLASS and node and name not in volumes:
                self._create(name, claim, node)
        for name, volume in volumes.items():
            if volume.get("status", {}).get("phase") == "Released":
                # The data first: an object whose directory stays would say that it has gone.
                shutil.rmtree(volume["spec"]["local"]["path"], ignore_errors=True)
                self.api.delete(f"{VOLUMES}/{name}")

    def _create(self, name: str, claim: JsonObject, node: str) -> None:
        path = self.directories[node] / name
        path.mkdir(exist_ok=True)
        metadata = claim["metadata"]
        hostname = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
        made = object_of(
            "v1",
            "PersistentVolume",
            name,
            spec={
                "capacity": {"storage": claim["spec"]["resources"]["requests"]["storage"]},
                "accessModes": claim["spec"]["accessModes"],
                "storageClassName": CLASS,
                "persistentVolumeReclaimPolicy": "Delete",
                "local": {"path": str(path)},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [hostname]}]}},
                "claimRef": {
                    "apiVersion": "v1",
                    "kind": "PersistentVolumeClaim",
                    **{key: metadata[key] for key in ("namespace", "name", "uid")},
                },
            },
        )
        made["metadata"]["annotations"] = {_PROVISIONED_BY: _PROVISIONER}
        self.api.create(VOLUMES, made, may_exist=True)


@contextmanager
def provisioning(api: KubernetesApi, nodes: Mapping[str, Path]) -> Iterator[DiskProvisioner]:
    """The default class of the super cluster within, and volumes for its claims.

    `nodes` has the directory of each node, by its name.
    """
    directories = {name: directory / "volumes" for name, directory in nodes.items()}
    for directory in directories.values():
        directory.mkdir()
    made = object_of(
        "storage.k8s.io/v1",
        "StorageClass",
        CLASS,
        provisioner=_PROVISIONER,
        volumeBindingMode="WaitForFirstConsumer",
        reclaimPolicy="Delete",
    )
    made["metadata"]["annotations"] = {"storageclass.kubernetes.io/is-default-class": "true"}
    api.create(CLASSES, made)
    provisioner = DiskProvisioner(api, directories)
    thread = threading.Thread(target=provisioner.run, name="disk provisioner")
    thread.start()
    try:
        yield provisioner
    finally:
        provisioner.stop()
        thread.join(_STOPPED_S)
        api.delete(f"{CLASSES}/{CLASS}")
