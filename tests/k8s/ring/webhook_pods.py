# SPDX-License-Identifier: Apache-2.0
"""The DNS webhook, vc-syncer and vc-operator as they are shipped: their images, and Deployments as pods.

No registry is used. The super cluster gets what Deployments need and the ring lacks: a second apiserver on
the same objects, which gives pods their account's token and calls a webhook at its pods, and the controllers
of Deployments. Pods are bound to the node by hand.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from tests.k8s.ring import manifests, virtual_clusters
from tests.k8s.ring.api import JsonObject
from tests.k8s.ring.cluster import Ring
from tests.k8s.ring.controlplane import Apiserver, start_apiserver
from tests.k8s.ring.kubectl import Kubectl
from tests.k8s.ring.processes import RingError, RingProcess, run
from tests.k8s.ring.shipped import PACKAGING
from tests.k8s.ring.webhook import NAMESPACE

# Beside the ring's own addresses.
_ADDRESS = "10.70.0.4"
_CONTROLLERS = (
    *("deployment-controller", "replicaset-controller", "endpointslice-controller"),
    *("serviceaccount-controller", "root-ca-certificate-publisher-controller"),
)
_POLL_S = 0.2


@contextmanager
def pod_apiserver(ring: Ring) -> Iterator[Apiserver]:
    """The second apiserver of the super cluster, and controllers that work through it."""
    with ExitStack() as stack:
        enter = ring.control.enter
        run([*enter, "ip", "address", "add", f"{_ADDRESS}/32", "dev", "lo"])
        stack.callback(run, [*enter, "ip", "address", "del", f"{_ADDRESS}/32", "dev", "lo"])
        made = start_apiserver(
            "super-pods",
            ring.control,
            _ADDRESS,
            ring.binaries,
            ring.directory,
            authority=ring.super_cluster.authority,
            accounts_of=ring.super_cluster.kubeconfig.parent,
        )
        stack.callback(made.daemon.stop)
        made.wait_ready()
        authority = made.kubeconfig.with_name("ca.crt")
        argv = [
            *enter,
            ring.binaries["kube-controller-manager"],
            f"--kubeconfig={made.kubeconfig}",
            f"--controllers={','.join(_CONTROLLERS)}",
            f"--root-ca-file={authority}",
            "--leader-elect=false",
            "--secure-port=0",
        ]
        stack.callback(RingProcess("controllers", argv, ring.directory / "controllers-super.log").stop)
        yield made


@contextmanager
def deployed(ring: Ring, apiserver: Apiserver, images: manifests.Images) -> Iterator[Kubectl]:
    """A site's kustomization on packaging/cluster applied; pods get bound meanwhile."""
    for archive in images.archives:
        ring.node.import_image(archive)
    kubectl = Kubectl(ring.control, ring.binaries["kubectl"], apiserver.kubeconfig, NAMESPACE)
    endpoint = ring.super_cluster.api.endpoint
    authority = ring.authorities.agent_serving.cert_pem.decode()
    site = manifests.site_kustomization(
        ring.directory / "site", images, endpoint.address, endpoint.port, authority
    )
    text = manifests.kustomize(ring.binaries["kubectl"], site)
    ended = threading.Event()
    scheduler = threading.Thread(target=_bind_pods, args=(apiserver, ring.node.name, ended), name="scheduler")
    definitions = ("virtualclusters.yaml", "clusterversions.yaml")
    for each in definitions:
        virtual_clusters.install(apiserver.api, each)
    # Another module applies these files too, where nothing makes pods of a Deployment.
    _remove(kubectl)
    try:
        # A dry run makes neither the namespace nor the kinds that all else needs.
        for base in ("namespace", "crds"):
            kubectl("apply", "--server-side", "--force-conflicts", "-k", str(PACKAGING / base)).check()
        apply(kubectl, text, "--dry-run=server")
        apply(kubectl, text)
        scheduler.start()
        yield kubectl
    finally:
        # The registration first: with it the apiservers call a webhook that is being removed.
        kubectl("delete", "--ignore-not-found", "-f", str(PACKAGING / "webhook" / "registration.yaml"))
        _remove(kubectl)
        for each in definitions:
            virtual_clusters.uninstall(apiserver.api, each)
        ended.set()
        if scheduler.ident is not None:
            scheduler.join()


def apply(kubectl: Kubectl, text: str, *options: str) -> None:
    """Server-side apply of rendered objects, which the apiserver validates strictly."""
    words = ("apply", "--server-side", "--force-conflicts", "--validate=strict", *options, "-f", "-")
    kubectl(*words, stdin=text.encode()).check()


def _remove(kubectl: Kubectl) -> None:
    """Take the Deployment away, and by hand what its owners' collector would: none runs here."""
    for kind in ("deployments", "replicasets", "pods"):
        kubectl("delete", kind, "--all", "--cascade=background", "--grace-period=1").check()


def _bind_pods(apiserver: Apiserver, node: str, ended: threading.Event) -> None:
    """A scheduler's work, for one node."""
    path = f"/api/v1/namespaces/{NAMESPACE}/pods"
    while not ended.wait(_POLL_S):
        try:
            for pod in apiserver.api.get(path)["items"]:
                if "nodeName" not in pod["spec"]:
                    _bind(apiserver, pod["metadata"]["name"], node)
        except RingError:
            continue  # retried in the next round


def _bind(apiserver: Apiserver, pod: str, node: str) -> None:
    value: JsonObject = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": pod},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }
    apiserver.api.create(f"/api/v1/namespaces/{NAMESPACE}/pods/{pod}/binding", value, may_exist=True)
