# SPDX-License-Identifier: Apache-2.0
"""Verbs that ask vc-operator for something: each writes one field or annotation, and waits."""

from collections.abc import Callable

from kubectl_vc.core import goals, manifests
from kubectl_vc.core.faults import FaultReason, PluginError, RequestError, sentence
from kubectl_vc.core.goals import Goal
from kubectl_vc.core.view import CLUSTER_VERSIONS, VIRTUAL_CLUSTERS, Object, TenantView, text
from kubectl_vc.invocation import EXIT_DONE, EXIT_FAILED, Invocation
from kubectl_vc.wait import wait_for
from tenancy import keys

_SIGNED = "copies of kubeconfigs, or tokens that are held outside of pods"


def upgrade(invocation: Invocation) -> int:
    """Change to another ClusterVersion, or confirm that it stays."""
    view = invocation.virtual_cluster()
    command = invocation.command
    if command.can_confirm:
        if not view.version:
            raise PluginError(f"VirtualCluster {view.path} runs no version yet: there is nothing to confirm")
        return _annotate(
            invocation,
            view,
            {keys.CONFIRM_UPGRADE: view.version},
            f"confirms {view.version}",
            goals.confirmed(),
        )
    target = command.cluster_version
    _check_version(invocation, target)
    if view.desired_version == target:
        invocation.note(f"VirtualCluster {view.path} is to run {target} already")
        return wait_for(invocation, view, goals.upgraded(target)) if command.waits else EXIT_DONE
    code = _change(invocation, view, target)
    if code == EXIT_DONE and command.waits:
        which = f"{view.name} -n {view.namespace}"
        invocation.note(
            f"To take it back: kubectl vc rollback {which}. To keep it: kubectl vc upgrade {which} --confirm"
        )
    return code


def rollback(invocation: Invocation) -> int:
    """Take the last upgrade back."""
    view = invocation.virtual_cluster()
    return _change(invocation, view, manifests.rollback_target(view))


def sleep(invocation: Invocation) -> int:
    """Stop all pods."""
    view = invocation.virtual_cluster()
    at = manifests.request_time(view, keys.WAKE_REQUESTED_AT, invocation.now())
    return _annotate(invocation, view, {keys.SLEEP_REQUESTED_AT: at}, "is to sleep", goals.asleep())


def wake(invocation: Invocation) -> int:
    """Start them again."""
    view = invocation.virtual_cluster()
    at = manifests.request_time(view, keys.SLEEP_REQUESTED_AT, invocation.now())
    return _annotate(invocation, view, {keys.WAKE_REQUESTED_AT: at}, "is to wake", goals.awake())


def backup(invocation: Invocation) -> int:
    """Save the objects."""
    view = invocation.virtual_cluster()
    name = invocation.command.backup or manifests.backup_name(view, invocation.now())
    manifests.check_new_backup(view, name)
    action = f"is to have the backup {name}"
    return _annotate(invocation, view, {keys.BACKUP_REQUESTED: name}, action, goals.backup_complete(name))


def rotate(invocation: Invocation) -> int:
    """Replace authorities, keys or certificates."""
    view = invocation.virtual_cluster()
    if invocation.command.can_revoke:
        return _revoke(invocation, view)
    tokens = manifests.rotations(invocation.command.names, manifests.request_token(invocation.now()))
    annotations = {f"{keys.ROTATE_PREFIX}{what}": token for what, token in tokens.items()}
    return _annotate(
        invocation, view, annotations, f"is to rotate {', '.join(tokens)}", goals.rotated(tokens)
    )


def _revoke(invocation: Invocation, view: TenantView) -> int:
    """End the former keys of rotations that are under way."""
    tokens = manifests.revoked_rotations(view, invocation.command.names)
    what = ", ".join(tokens)
    consequence = (
        f"What the former {what} of VirtualCluster {view.path} signed is refused once all that vc-operator"
        f" can ask have the next one: {_SIGNED}."
    )
    if not invocation.confirm(view, consequence):
        return EXIT_FAILED
    annotations = {f"{keys.REVOKE_PREFIX}{each}": token for each, token in tokens.items()}
    return _annotate(invocation, view, annotations, f"revokes the former {what}", goals.rotated(tokens))


def restore(invocation: Invocation) -> int:
    """Go back to a backup, in place or as a new tenant."""
    view = invocation.virtual_cluster()
    command = invocation.command
    manifests.check_backup(view, command.backup)
    if command.new_name:
        return _restore_copy(invocation, view)
    consequence = (
        f"All objects of VirtualCluster {view.path} go back to the backup {command.backup}: what was"
        f" written since is"
        f" lost. (--to NEW restores it beside.)"
    )
    if not invocation.confirm(view, consequence):
        return EXIT_FAILED
    if manifests.was_restored(view, command.backup):
        view = _patch(invocation, view, manifests.annotations_patch(view, {keys.RESTORE_REQUESTED: None}))
        if wait_for(invocation, view, goals.ready_to_restore()) != EXIT_DONE:
            return EXIT_FAILED
    goal = goals.restored(command.backup)
    asked = {keys.RESTORE_REQUESTED: command.backup}
    code = _annotate(invocation, view, asked, f"goes back to {command.backup}", goal)
    if code == EXIT_DONE and command.waits:
        # Deletions are held after a restore: the message has how to let them go.
        invocation.note(text(invocation.virtual_cluster().value, "status", "restore", "message"))
    return code


def _restore_copy(invocation: Invocation, view: TenantView) -> int:
    manifest = manifests.restored_copy(view, invocation.command)
    try:
        made = TenantView(invocation.cluster.create(manifest, view.namespace))
    except RequestError as error:
        raise PluginError(
            sentence(f"create VirtualCluster {view.namespace}/{invocation.command.new_name}", error.fault)
        ) from None
    invocation.print(f"virtualcluster.tenancy.x-k8s.io/{made.name} created in namespace {made.namespace}")
    return wait_for(invocation, made, goals.ready()) if invocation.command.waits else EXIT_DONE


def _annotate(
    invocation: Invocation, view: TenantView, annotations: dict[str, str], action: str, goal: Goal
) -> int:
    changed = _patch(invocation, view, manifests.annotations_patch(view, annotations))
    invocation.print(f"virtualcluster.tenancy.x-k8s.io/{view.name} {action}")
    return wait_for(invocation, changed, goal) if invocation.command.waits else EXIT_DONE


def _change(invocation: Invocation, view: TenantView, target: str) -> int:
    changed = _patch(invocation, view, manifests.version_patch(view, target))
    before = view.version or view.desired_version
    invocation.print(f"virtualcluster.tenancy.x-k8s.io/{view.name} goes from {before} to {target}")
    return wait_for(invocation, changed, goals.upgraded(target)) if invocation.command.waits else EXIT_DONE


def _patch(invocation: Invocation, view: TenantView, patch: Object) -> TenantView:
    try:
        return TenantView(invocation.cluster.patch(VIRTUAL_CLUSTERS, view.name, view.namespace, patch))
    except RequestError as error:
        raise invocation.failed("change", error) from None


def _check_version(invocation: Invocation, target: str) -> None:
    """Raises PluginError. Whether the step is allowed, the operator decides: it knows the skew rules."""
    try:
        manifests.chosen_version(target, invocation.cluster.list_objects(CLUSTER_VERSIONS))
    except RequestError as error:
        if error.fault.reason is not FaultReason.FORBIDDEN:
            raise PluginError(sentence("list ClusterVersions", error.fault)) from None


REQUESTS: dict[str, Callable[[Invocation], int]] = {
    "upgrade": upgrade,
    "rollback": rollback,
    "sleep": sleep,
    "wake": wake,
    "backup": backup,
    "restore": restore,
    "rotate": rotate,
}
"""By the verb."""
