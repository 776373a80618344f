# SPDX-License-Identifier: Apache-2.0
"""`kubectl vc kubeconfig` and `credential`, and the tenant's API server as others verbs reach it."""

import base64
import contextlib
import json
import os
import shutil
from collections.abc import Iterator

from kubectl_vc.core.command import Scope
from kubectl_vc.core.faults import FaultReason, PluginError, RequestError, sentence
from kubectl_vc.core.kubeconfig import (
    AccessError,
    PluginCall,
    TenantAccess,
    access_of,
    context_name,
    exec_credential,
    kubeconfig,
    merge_commands,
)
from kubectl_vc.core.view import Object, TenantView, text
from kubectl_vc.files import private_directory, write_private
from kubectl_vc.invocation import EXIT_DONE, Invocation
from kubectl_vc.port import ApiServer
from tenancy import keys

_PROGRAM = "kubectl-vc"
# Set for the kubectl that `credential` starts: if that asks for a credential of the same tenant, the flags
# lead to the tenant, and the two would start each other for ever.
_ASKS_FOR = "KUBECTL_VC_CREDENTIAL_OF"


def credential(invocation: Invocation) -> int:
    """Print the ExecCredential of a tenant's administrator."""
    scope, name = invocation.command.scope, invocation.command.name
    path = f"{scope.namespace}/{name}"
    if invocation.environment.get(_ASKS_FOR) == path:
        raise PluginError(
            f"the kubeconfig of VirtualCluster {path} leads to the tenant and not to the super cluster: make"
            f" it again with the super cluster's --context: kubectl vc kubeconfig {name} -n {scope.namespace}"
        )
    cluster = invocation.connect(scope.flags(), {_ASKS_FOR: path})
    access = _access(invocation, _secret(invocation, cluster, name, scope.namespace), path)
    try:
        invocation.out.write(exec_credential(access))
    except AccessError as error:
        raise _unusable(path, error) from None
    return EXIT_DONE


def save_kubeconfig(invocation: Invocation) -> int:
    """Print it, write it into a file, or merge it."""
    command = invocation.command
    view = invocation.virtual_cluster()
    access = access_to(invocation, view)
    call = plugin_call(invocation)
    name = context_name(view, call.scope.context)
    if command.can_merge:
        with private_directory() as directory:
            authorities = os.path.join(directory, "ca.crt")  # noqa: PTH118 - pathlib loads slowly
            write_private(authorities, base64.b64decode(access.authorities).decode())
            config = invocation.connect(_config_file_flags(invocation), {})
            for words in merge_commands(access, view, call, authorities):
                _change_config(config, words)
        invocation.print(
            f"context {name} is in your kubeconfig; to use it: kubectl --context '{name}' get pods"
        )
        return EXIT_DONE
    made = kubeconfig(access, view, call)
    if command.output == "-":
        invocation.out.write(made)
        return EXIT_DONE
    try:
        write_private(command.output, made)
    except OSError as error:
        raise PluginError(
            f"cannot write {command.output}: {error.strerror}; choose another --output"
        ) from None
    invocation.print(
        f"{command.output} is written; to use it: kubectl --kubeconfig {command.output} get pods"
    )
    return EXIT_DONE


def access_to(invocation: Invocation, view: TenantView) -> TenantAccess:
    """Address and credential of a tenant's API server. Raises PluginError."""
    return _access(invocation, _secret(invocation, invocation.cluster, view.name, view.namespace), view.path)


@contextlib.contextmanager
def saved_kubeconfig(invocation: Invocation, view: TenantView) -> Iterator[str]:
    """A file that is there as long as it is needed. Raises PluginError."""
    made = kubeconfig(access_to(invocation, view), view, plugin_call(invocation))
    with private_directory() as directory:
        path = os.path.join(directory, "kubeconfig")  # noqa: PTH118 - as above
        write_private(path, made)
        yield path


def plugin_call(invocation: Invocation) -> PluginCall:
    """How kubeconfigs start this program again, with the context that is the current one now."""
    scope = invocation.command.scope
    if not scope.context:
        with contextlib.suppress(
            RequestError
        ):  # none is set: in a pod, or where --cluster and --user are given
            current = invocation.cluster.config(["current-context"]).strip()
            scope = scope._replace(context=current)
    program = (
        _PROGRAM
        if shutil.which(_PROGRAM, path=invocation.environment.get("PATH", ""))
        else invocation.program
    )
    return PluginCall(program, scope, invocation.config_files())


def _config_file_flags(invocation: Invocation) -> list[str]:
    """Of the flags that choose the super cluster: `kubectl config` would write the others into the file."""
    return Scope(kubeconfig=invocation.command.scope.kubeconfig).flags()


def _change_config(config: ApiServer, words: list[str]) -> None:
    try:
        config.config(words)
    except RequestError as error:
        raise PluginError(
            sentence(f"change your kubeconfig ({words[0]})", error.fault, "kubectl config")
        ) from None


def _secret(invocation: Invocation, cluster: ApiServer, name: str, namespace: str) -> Object:
    secret = f"{name}{keys.TENANT_KUBECONFIG_SUFFIX}"
    try:
        return cluster.get("secrets", secret, namespace)
    except RequestError as error:
        action = f"read Secret {namespace}/{secret}"
        if error.fault.reason is FaultReason.NOT_FOUND:
            raise PluginError(
                f"cannot {action}: vc-operator has not written it yet; wait until the tenant is Ready:"
                f" kubectl vc get {name} -n {namespace}"
            ) from None
        raise PluginError(sentence(action, error.fault)) from None


def _access(invocation: Invocation, secret: Object, path: str) -> TenantAccess:
    try:
        data = base64.b64decode(text(secret, "data", keys.TENANT_KUBECONFIG_KEY), validate=True).decode()
        return access_of(_parsed(invocation, data))
    except AccessError as error:
        raise _unusable(path, error) from None
    except ValueError:
        raise _unusable(path, AccessError("its data is no base64")) from None


def _parsed(invocation: Invocation, kubeconfig_text: str) -> Object:
    """JSON by ourselves; YAML by kubectl, which is slower."""
    try:
        found = json.loads(kubeconfig_text)
    except RecursionError:
        raise AccessError("it is no kubeconfig") from None
    except ValueError:
        with private_directory() as directory:
            path = os.path.join(directory, "kubeconfig")  # noqa: PTH118 - as above
            write_private(path, kubeconfig_text)
            try:
                config = invocation.connect([f"--kubeconfig={path}"], {})
                found = json.loads(config.config(["view", "--raw", "--output=json"]))
            except (RequestError, RecursionError):
                raise AccessError("it is no kubeconfig") from None
    if not isinstance(found, dict):
        raise AccessError("it is no kubeconfig")
    return found


def _unusable(path: str, error: AccessError) -> PluginError:
    return PluginError(
        f"the kubeconfig that vc-operator wrote for VirtualCluster {path} cannot be used: {error}; delete the"
        f" Secret, and vc-operator writes it again"
    )
