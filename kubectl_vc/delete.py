# SPDX-License-Identifier: Apache-2.0
"""`kubectl vc delete`."""

from kubectl_vc.core import goals, manifests
from kubectl_vc.core.faults import RequestError
from kubectl_vc.core.view import VIRTUAL_CLUSTERS, text
from kubectl_vc.invocation import EXIT_DONE, EXIT_FAILED, Invocation
from kubectl_vc.wait import wait_for


def delete(invocation: Invocation) -> int:
    """Delete exactly the object that was read, and wait until it is gone."""
    view = invocation.virtual_cluster()
    command = invocation.command
    keeps = command.keeps_volumes or text(view.value, "spec", "volumes") == "Retain"
    volumes = "its volumes stay" if keeps else "its volumes are deleted"
    consequence = (
        f"VirtualCluster {view.path} and all objects in it are deleted; {volumes}, its keys are destroyed."
    )
    if not view.is_deleting and not invocation.confirm(view, consequence):
        return EXIT_FAILED
    try:
        if command.keeps_volumes:
            patch = manifests.volumes_patch(view)
            invocation.cluster.patch(VIRTUAL_CLUSTERS, view.name, view.namespace, patch)
        invocation.cluster.delete(view)
    except RequestError as error:
        raise invocation.failed("delete", error) from None
    invocation.print(f"virtualcluster.tenancy.x-k8s.io/{view.name} is being deleted")
    return wait_for(invocation, view, goals.gone(), until_deleted=True) if command.waits else EXIT_DONE
