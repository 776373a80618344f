# SPDX-License-Identifier: Apache-2.0
"""`kubectl vc create` and `get`."""

from kubectl_vc.core import goals
from kubectl_vc.core.faults import FaultReason, PluginError, RequestError, sentence
from kubectl_vc.core.manifests import chosen_version, virtual_cluster
from kubectl_vc.core.table import table
from kubectl_vc.core.view import CLUSTER_VERSIONS, VIRTUAL_CLUSTERS, TenantView
from kubectl_vc.invocation import EXIT_DONE, Invocation
from kubectl_vc.port import EVERY_NAMESPACE
from kubectl_vc.wait import wait_for


def create(invocation: Invocation) -> int:
    """Make the object, and wait until it is Ready."""
    command = invocation.command
    manifest = virtual_cluster(command, _version(invocation))
    try:
        view = TenantView(invocation.cluster.create(manifest, command.scope.namespace))
    except RequestError as error:
        raise invocation.failed("create", error) from None
    invocation.print(f"virtualcluster.tenancy.x-k8s.io/{view.name} created in namespace {view.namespace}")
    if not command.waits:
        return EXIT_DONE
    code = wait_for(invocation, view, goals.ready())
    if code == EXIT_DONE:
        invocation.note(f"To use it: kubectl vc shell {view.name} -n {view.namespace}")
    return code


def get(invocation: Invocation) -> int:
    """Print a table, or what kubectl prints. Reads VirtualClusters alone, so nothing of a tenant wakes."""
    command = invocation.command
    namespace = EVERY_NAMESPACE if command.is_all_namespaces else command.scope.namespace
    try:
        if command.output not in ("", "wide"):
            printed = invocation.cluster.printed(VIRTUAL_CLUSTERS, namespace, command.names, command.output)
            invocation.out.write(printed)
            return EXIT_DONE
        found = invocation.cluster.list_objects(VIRTUAL_CLUSTERS, namespace, names=command.names)
    except RequestError as error:
        raise PluginError(sentence("list VirtualClusters", error.fault)) from None
    views = sorted((TenantView(each) for each in found), key=lambda view: (view.namespace, view.name))
    if not views:
        where = f" in namespace {namespace}" if namespace not in ("", EVERY_NAMESPACE) else ""
        invocation.note(f"no VirtualCluster{where}; make one: kubectl vc create NAME")
        return EXIT_DONE
    lines = table(
        views, invocation.now(), has_namespaces=command.is_all_namespaces, is_wide=command.output == "wide"
    )
    for line in lines:
        invocation.print(line)
    return EXIT_DONE


def _version(invocation: Invocation) -> str:
    """Raises PluginError. Who may not list ClusterVersions may name one, which the operator checks."""
    named = invocation.command.cluster_version
    try:
        return chosen_version(named, invocation.cluster.list_objects(CLUSTER_VERSIONS))
    except RequestError as error:
        if named and error.fault.reason is FaultReason.FORBIDDEN:
            return named
        raise PluginError(sentence("list ClusterVersions", error.fault)) from None
