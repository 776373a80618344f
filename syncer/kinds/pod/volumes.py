# SPDX-License-Identifier: Apache-2.0
"""Volumes: the tenant's CA, its tokens, and what its downward API volumes read. Pure."""

import hashlib
from collections.abc import Iterator
from typing import Any

from syncer.core.objects import Object, labels_of, name_of, namespace_of, uid_of
from syncer.core.plan import IssueTokens, Refusal, TokenRequest, Wait
from syncer.core.unknown import Unknown
from syncer.core.view import View
from syncer.kinds.configmap import ROOT_CA, TENANT_ROOT_CA
from syncer.kinds.pod.metadata import MetadataRules, downward_items, mounted_path
from tenancy import keys

WAITS_FOR_SECRET = "FailedCreate"  # noqa: S105 - the reason of upstream's Event

# The API server's default of `expirationSeconds`, which an object that it gave us always has.
_DEFAULT_EXPIRATION_S = 3600

# The kubelet's mode of a token where the pod has an fsGroup: it adds read permission for the group.
# For `runAsUser` without fsGroup it would give the file to that user, which a Secret's file cannot have:
# there the volume's own mode stays, so that the user can read it.
_TOKEN_MODE = 0o600

_MAX_NAME = 200


def missing_secret(tenant: Object, view: View) -> Wait | None:
    """What the pod waits for: a Secret that a volume needs, and that the tenant does not have."""
    namespace = namespace_of(tenant)
    for volume in tenant["spec"].get("volumes") or ():
        source = volume.get("secret")
        if not isinstance(source, dict) or source.get("optional"):
            continue
        name = str(source.get("secretName", ""))
        found = view.tenant_uid("Secret", namespace, name) if name else None
        if isinstance(found, Unknown):
            return found.wait()
        if name and found is None:
            return Wait(WAITS_FOR_SECRET, f'Error creating: Secret "{name}" not found')
    return None


def credential_refusals(tenant: Object) -> tuple[Refusal, ...]:
    """Projected sources that would give the pod an identity in the super cluster."""
    return tuple(
        Refusal(
            f"spec.volumes[{index}].projected.sources[{number}].podCertificate",
            "certificates for pods are issued by the super cluster and are not available",
        )
        for index, volume in enumerate(tenant["spec"].get("volumes") or ())
        for number, source in enumerate((volume.get("projected") or {}).get("sources") or ())
        if source.get("podCertificate") is not None
    )


def translate_volumes(spec: Object, tenant: Object, rules: MetadataRules) -> None:
    """Change the volumes.

    Those with tokens mount a Secret that is not there yet (`required_tokens`). It is not optional, so the
    kubelet waits for it.
    """
    number, secret_name = 0, ""
    has_group = (spec.get("securityContext") or {}).get("fsGroup") is not None
    for volume in spec.get("volumes") or ():
        if isinstance(source := volume.get("configMap"), dict):
            _rename_root_ca(source)
        if volume.pop("ephemeral", None) is not None:
            # The tenant's controller makes the claim, and it comes down. The super cluster's would make
            # another one of the same name, and refuses one that its own pod does not own.
            claim = f"{name_of(tenant)}-{volume.get('name')}"
            volume["persistentVolumeClaim"] = {"claimName": claim}
        if not isinstance(projected := volume.get("projected"), dict):
            continue
        sources: list[Any] = projected.get("sources") or []
        for index, source in enumerate(sources):
            if isinstance(config_map := source.get("configMap"), dict):
                _rename_root_ca(config_map)
            if not isinstance(token := source.get("serviceAccountToken"), dict):
                continue
            secret_name = secret_name or token_secret_name(tenant)
            item: Object = {"key": _key(number), "path": token.get("path", "")}
            number += 1
            if has_group:
                item["mode"] = _TOKEN_MODE
            sources[index] = {"secret": {"name": secret_name, "items": [item]}}
    for each in downward_items({"spec": spec}):
        each["fieldRef"]["fieldPath"] = mounted_path(str(each["fieldRef"].get("fieldPath", "")), rules)


def required_tokens(tenant: Object) -> IssueTokens | None:
    """The tokens that the super pod mounts, if any."""
    tokens = [
        source["serviceAccountToken"]
        for source in _projected_sources(tenant)
        # In the order in which `translate_volumes` counts them.
        if isinstance(source.get("serviceAccountToken"), dict)
    ]
    if not tokens:
        return None
    return IssueTokens(
        namespace_of(tenant),
        name_of(tenant),
        uid_of(tenant),
        str(tenant["spec"].get("serviceAccountName") or "default"),
        token_secret_name(tenant),
        tuple(_request(token, number) for number, token in enumerate(tokens)),
    )


def missing_tokens(tenant: Object, found: Object, view: View) -> IssueTokens | None:
    """The tokens that a super pod mounts, as long as their Secret is not there.

    One that mounts other Secrets, as upstream's does, needs none.
    """
    tokens = required_tokens(tenant)
    if tokens is None:
        return None
    mounted = {(source.get("secret") or {}).get("name") for source in _projected_sources(found)}
    if tokens.secret_name not in mounted:
        return None
    secret = view.in_super("Secret", tokens.namespace, tokens.secret_name)
    if isinstance(secret, Unknown):
        return tokens  # who has them issued reads the Secret itself
    is_there = secret is not None and labels_of(secret).get(keys.POD_TOKENS) == tokens.uid
    return None if is_there else tokens


def _projected_sources(pod: Object) -> Iterator[Object]:
    for volume in pod["spec"].get("volumes") or ():
        if isinstance(projected := volume.get("projected"), dict):
            yield from projected.get("sources") or ()


def _request(token: Object, number: int) -> TokenRequest:
    return TokenRequest(
        _key(number),
        str(token.get("audience") or ""),
        int(token.get("expirationSeconds") or _DEFAULT_EXPIRATION_S),
    )


def _key(number: int) -> str:
    return f"token-{number}"


def token_secret_name(tenant: Object) -> str:
    """The Secret of one pod's tokens: a pod made again under the same name has another."""
    digest = hashlib.sha256(uid_of(tenant).encode()).hexdigest()[:10]
    return f"{name_of(tenant)[:_MAX_NAME].rstrip('.-')}-token-{digest}"


def _rename_root_ca(source: Object) -> None:
    if source.get("name") == ROOT_CA:
        source["name"] = TENANT_ROOT_CA
