# SPDX-License-Identifier: Apache-2.0
"""Reads what is to be known of an imported control plane, and has it judged.

Of the Secrets of others only certificates and digests leave this module.
"""

from collections.abc import Callable
from typing import Protocol

from daemonkit.kube.client import ApiClient
from daemonkit.kube.kubeconfig import Access
from tenancy import names
from tenant_operator.core.observed import ProbeResult
from tenant_operator.core.probes import SourceProbe
from tenant_operator.edge.imported_source import probe_import, read_kubeconfig, secret_value
from tenant_operator.model.objects import Object, Ref
from tenant_operator.model.problem import SpecProblem
from tenant_operator.provisioners.imported.kubelet_client import (
    KubeletClientMissing,
    kubelet_client,
    places,
    secrets_to_read,
)
from tenant_operator.provisioners.imported.source import (
    AdoptedSource,
    SourceChoice,
    SourceSecret,
    SuperClusterFacts,
    choose,
    judge,
)


class ObjectReader(Protocol):
    """What reads single objects of the super cluster."""

    async def get(self, ref: Ref) -> Object | None: ...


async def ask_source(
    super_cluster: ObjectReader,
    super_server: str,
    open_tenant: Callable[[Access], ApiClient],
    probe: SourceProbe,
    now: float,
) -> ProbeResult:
    """Whether the control plane can be adopted; the facts have what is copied and registered."""
    secret = None
    if names.is_pod_name(probe.reference.secret_name):
        secret = await super_cluster.get(Ref("Secret", probe.namespace, probe.reference.secret_name))
    choice = choose(probe.reference, _without_values(secret), probe.namespace)
    if isinstance(choice, SpecProblem) or secret is None:
        return _refused(choice, now)
    text = secret_value(secret, choice.key)
    facts, access = read_kubeconfig(text)
    kube_system = await super_cluster.get(Ref("Namespace", "", "kube-system")) or {}
    known = SuperClusterFacts(super_server, kube_system.get("metadata", {}).get("uid", ""))
    found = judge(choice, facts, known, None)
    if found is None and access is not None:
        client = open_tenant(access)
        try:
            answer = await probe_import(client)
        finally:
            await client.close()
        found = judge(choice, facts, known, answer)
    if not isinstance(found, AdoptedSource):
        return _refused(found, now)
    detail = f"{found.server} answers, Kubernetes {found.version}; {choice.text}"
    adopted = {"digest": found.digest, "server": found.server, "version": found.version, "key": choice.key}
    registered = await _kubelet_client(super_cluster, probe, choice)
    return ProbeResult(is_ok=True, at=now, detail=detail, facts=adopted | registered)


async def _kubelet_client(
    super_cluster: ObjectReader, probe: SourceProbe, choice: SourceChoice
) -> dict[str, str]:
    values: dict[tuple[str, str], str] = {}
    for name in sorted(secrets_to_read(places(choice, probe.virtual_cluster))):
        secret = await super_cluster.get(Ref("Secret", probe.namespace, name)) or {}
        data = secret.get("data") or {}
        values |= {(name, key): value for key, value in data.items() if key.endswith(".crt")}
    found = kubelet_client(choice, probe.virtual_cluster, probe.namespace, values)
    if isinstance(found, KubeletClientMissing):
        return {"kubeletClient": found.message}
    return {
        "certificate": found.certificate_pem,
        "authority": found.authority_pem,
        "certificatePlace": f"Secret {probe.namespace}/{found.place.certificate_secret}",
    }


def _without_values(secret: Object | None) -> SourceSecret | None:
    if secret is None:
        return None
    metadata = secret["metadata"]
    return SourceSecret(metadata["name"], tuple(secret.get("data") or ()), metadata.get("labels") or {})


def _refused(problem: SpecProblem | object, now: float) -> ProbeResult:
    if isinstance(problem, SpecProblem):
        return ProbeResult(is_ok=False, at=now, detail=problem.text, facts={"reason": problem.reason})
    return ProbeResult(is_ok=False, at=now, detail="it was not asked")
