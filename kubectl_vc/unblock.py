# SPDX-License-Identifier: Apache-2.0
"""`kubectl vc unblock`: asks the tenant's API server, with the tenant administrator's credential."""

from kubectl_vc.access import saved_kubeconfig
from kubectl_vc.core import webhooks
from kubectl_vc.core.faults import FaultReason, PluginError, RequestError, sentence
from kubectl_vc.core.table import aligned
from kubectl_vc.core.view import TenantView
from kubectl_vc.core.webhooks import MUTATING, VALIDATING, Webhook
from kubectl_vc.invocation import EXIT_DONE, EXIT_FAILED, Invocation
from kubectl_vc.port import EVERY_NAMESPACE, ApiServer

_GROUP = "admissionregistration.k8s.io"
_SLICES = "endpointslices.discovery.k8s.io"
# The API server calls admission webhooks for it, and keeps nothing of it (dry run).
_PROBE = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "kubectl-vc-probe-"}}
_PROBE_NAMESPACE = "default"


def unblock(invocation: Invocation) -> int:
    """List the webhooks that stop the tenant, or let the API server ignore those of a name."""
    view = invocation.virtual_cluster()
    with saved_kubeconfig(invocation, view) as path:
        tenant = invocation.connect([f"--kubeconfig={path}"], {})
        try:
            found = [
                webhook
                for resource in (VALIDATING, MUTATING)
                for webhook in webhooks.webhooks(resource, tenant.list_objects(f"{resource}.{_GROUP}"))
            ]
            if invocation.command.webhook:
                return _ignore(invocation, view, tenant, found)
            return _list(invocation, view, tenant, found)
        except RequestError as error:
            raise PluginError(
                sentence(
                    f"ask VirtualCluster {view.path} for its webhooks", error.fault, "the tenant's API server"
                )
            ) from None


def _list(invocation: Invocation, view: TenantView, tenant: ApiServer, found: list[Webhook]) -> int:
    stopped = webhooks.blockers(found, _served(tenant), _failed(tenant))
    if not stopped:
        invocation.print(
            f"no webhook stops VirtualCluster {view.path}: of {len(found)}, none that must answer is away"
            f" or matches all"
        )
        return EXIT_DONE
    rows = [
        [each.webhook.configuration, each.webhook.name, each.webhook.target, "; ".join(each.causes)]
        for each in stopped
    ]
    for line in aligned([["CONFIGURATION", "WEBHOOK", "CALLS", "STOPS THE TENANT AS"], *rows]):
        invocation.print(line)
    invocation.note(f"To ignore one: kubectl vc unblock {view.name} -n {view.namespace} --webhook WEBHOOK")
    return EXIT_FAILED


def _ignore(invocation: Invocation, view: TenantView, tenant: ApiServer, found: list[Webhook]) -> int:
    name = invocation.command.webhook
    chosen = webhooks.chosen(found, name)
    if not chosen:
        known = ", ".join(sorted({each.name for each in found})) or "none"
        raise PluginError(
            f"VirtualCluster {view.path} has no webhook or configuration {name} with failurePolicy Fail;"
            f" there are: {known}"
        )
    for each in chosen:
        tenant.patch(
            f"{each.resource}.{_GROUP}",
            each.configuration,
            "",
            webhooks.policy_patch(each, "Ignore"),
            is_json_patch=True,
        )
        invocation.print(f"{each.path}: failurePolicy is Ignore now")
        undo = f'[{{"op":"replace","path":"/webhooks/{each.place}/failurePolicy","value":"Fail"}}]'
        invocation.note(f"To undo it, in kubectl vc shell {view.name} -n {view.namespace}:")
        invocation.note(f"  kubectl patch {each.resource} {each.configuration} --type=json --patch='{undo}'")
    return EXIT_DONE


def _served(tenant: ApiServer) -> set[tuple[str, str]] | None:
    try:
        return webhooks.served_services(tenant.list_objects(_SLICES, EVERY_NAMESPACE))
    except RequestError:
        return None


def _failed(tenant: ApiServer) -> list[str]:
    """Which webhooks the API server names when it is asked for a write."""
    try:
        tenant.create(_PROBE, _PROBE_NAMESPACE, dry_run=True)
    except RequestError as error:
        if error.fault.reason is FaultReason.UNREACHABLE:
            raise
        return webhooks.failed_webhooks(error.fault.message)
    return []
