# SPDX-License-Identifier: Apache-2.0
"""Whether the Secret that a VirtualCluster imports can be adopted. No key comes in here, and none goes out.

It is decided in two parts. `choose` says which key of the Secret has the kubeconfig. The edge reads that,
and asks the API server that it leads to; `judge` decides by what it found.
"""

import ipaddress
from collections.abc import Collection, Mapping
from urllib.parse import urlsplit

import msgspec

from tenancy import keys, names
from tenant_operator.model.objects import OPERATOR
from tenant_operator.model.problem import SpecProblem
from tenant_operator.model.virtual_cluster import ImportRef
from tenant_operator.provisioners.imported.shapes import RULES, SourceShape, rule_of

_SECRET_FIELD = "spec.import.secretName"  # noqa: S105 - a field's name
_KEY_FIELD = "spec.import.key"
_MAX_SHOWN_KEYS = 10


class SourceSecret(msgspec.Struct, frozen=True):
    """The Secret without its values."""

    name: str
    keys: tuple[str, ...]
    labels: Mapping[str, str] = {}


class SourceChoice(msgspec.Struct, frozen=True):
    """Which value of the Secret is the kubeconfig. `owner` is its writer's name of the control plane."""

    secret: str
    key: str
    shape: SourceShape
    owner: str

    @property
    def text(self) -> str:
        """For the condition."""
        by = "" if self.shape is SourceShape.PLAIN else f", written by {self.shape} for {self.owner}"
        return f"key {self.key} of Secret {self.secret}{by}"


class KubeconfigFacts(msgspec.Struct, frozen=True):
    """What a kubeconfig says. `refusal` is why it cannot be read or used, as its reader words it."""

    digest: str
    refusal: str = ""
    server: str = ""
    has_credential: bool = False
    has_authority: bool = False
    files: tuple[str, ...] = ()


class SuperClusterFacts(msgspec.Struct, frozen=True):
    """By which a kubeconfig that leads to the super cluster is known."""

    server: str
    kube_system_uid: str


class ImportProbe(msgspec.Struct, frozen=True):
    """What the API server answered that a kubeconfig leads to. `failure`: why it did not answer, or refused.

    `is_administrator`: whether the credential may do everything, as what it is used for needs more than any
    role that could be listed here: rights are granted by those who have them.
    """

    kube_system_uid: str = ""
    version: str = ""
    is_administrator: bool = False
    failure: str = ""


class AdoptedSource(msgspec.Struct, frozen=True):
    """A control plane that can be adopted. `digest` is of the kubeconfig: another one is copied anew."""

    choice: SourceChoice
    digest: str
    server: str
    version: str


def choose(reference: ImportRef, secret: SourceSecret | None, namespace: str) -> SourceChoice | SpecProblem:
    """Which key of the Secret is read. `secret` is the one of this name in the VirtualCluster's namespace."""
    name = reference.secret_name
    if not names.is_pod_name(name):
        return _problem(
            "SecretNameRefused",
            f"{name!r} is no name of a Secret",
            f"name a Secret of namespace {namespace}: one of another namespace is not read",
        )
    if secret is None:
        return _problem(
            "SecretMissing",
            f"Secret {namespace}/{name} does not exist",
            "create it, or copy it into this namespace where its writer has another one",
        )
    if secret.labels.get(keys.MANAGED_BY) == OPERATOR:
        return _problem(
            "SecretOfOperator",
            f"Secret {namespace}/{name} is of a control plane that vc-operator runs",
            "name a Secret that others wrote",
        )
    return _chosen(reference, secret, namespace)


def judge(
    choice: SourceChoice,
    facts: KubeconfigFacts,
    super_cluster: SuperClusterFacts,
    probe: ImportProbe | None,
) -> AdoptedSource | SpecProblem | None:
    """Whether the control plane can be adopted; None while its API server has not been asked."""
    problem = _kubeconfig_problem(choice, facts, super_cluster)
    if problem is not None or probe is None:
        return problem
    if probe.kube_system_uid and probe.kube_system_uid == super_cluster.kube_system_uid:
        return _leads_to_super_cluster(choice, "its Namespace kube-system is the super cluster's")
    if probe.failure:
        return _problem(
            "ImportNotReachable",
            f"{choice.text}: {facts.server}: {probe.failure}",
            "check that the control plane runs, that pods of the super cluster reach this address, and that"
            " the credential is valid",
        )
    if not probe.is_administrator:
        return _problem(
            "ImportLacksRights",
            f"{choice.text}: its user may not do everything, and vc-syncer's rights cannot be granted by it",
            "bind its user to the ClusterRole cluster-admin in that cluster, or name another key or Secret",
        )
    return AdoptedSource(choice, facts.digest, facts.server, probe.version)


def _chosen(reference: ImportRef, secret: SourceSecret, namespace: str) -> SourceChoice | SpecProblem:
    rule = rule_of(secret.name, secret.keys)
    key = reference.key or (next(each for each in rule.keys if each in secret.keys) if rule else "")
    if key not in secret.keys:
        what = f"no key {key}" if key else "no key that has a kubeconfig by its name"
        expected = ", ".join(dict.fromkeys(each for known in RULES for each in known.keys))
        return _problem(
            "SecretKeyMissing",
            f"Secret {namespace}/{secret.name} has {what}; it has {_shown(secret.keys)}",
            f"name one of its keys; by themselves are read: {expected}",
            field=_KEY_FIELD,
        )
    shape = rule.shape if rule else SourceShape.PLAIN
    return SourceChoice(secret.name, key, shape, rule.owner_of(secret.name) if rule else secret.name)


def _kubeconfig_problem(
    choice: SourceChoice, facts: KubeconfigFacts, super_cluster: SuperClusterFacts
) -> SpecProblem | None:
    remedy = "write a kubeconfig with certificate-authority-data and client-certificate-data or a token"
    if facts.refusal:
        return _problem("KubeconfigRefused", f"{choice.text}: {facts.refusal}", remedy)
    if facts.files:
        files = ", ".join(facts.files[:_MAX_SHOWN_KEYS])
        return _problem(
            "KubeconfigNamesFiles", f"{choice.text} names files, which no daemon has: {files}", remedy
        )
    for has_it, what in (
        (facts.has_authority, "certificate authority"),
        (facts.has_credential, "credential"),
    ):
        if not has_it:
            return _problem("KubeconfigIncomplete", f"{choice.text} has no {what}", remedy)
    if _is_loopback(facts.server):
        return _problem(
            "ServerIsLoopback",
            f"{choice.text} leads to {facts.server}, which is each machine itself",
            _exposed(choice),
        )
    if _is_no_host(facts.server):
        return _problem(
            "ServerAddressRefused",
            f"{choice.text} leads to {facts.server}, which is the address of no single machine of a cluster",
            "write the DNS name or the unicast address of the API server",
        )
    if _place(facts.server) == _place(super_cluster.server):
        return _leads_to_super_cluster(choice, f"its server {facts.server} is the super cluster's")
    return None


def _exposed(choice: SourceChoice) -> str:
    """How those who wrote the Secret write an address that others reach."""
    match choice.shape:
        case SourceShape.VCLUSTER:
            return (
                f"set exportKubeConfig.server of vcluster to https://{choice.owner}.NAMESPACE.svc:443, which"
                " also has to be in controlPlane.proxy.extraSANs"
            )
        case SourceShape.K3K:
            return "expose the k3k cluster (spec.expose), and generate its kubeconfig again"
        case _:
            return "write a server that pods of the super cluster reach"


def _leads_to_super_cluster(choice: SourceChoice, why: str) -> SpecProblem:
    return _problem(
        "LeadsToSuperCluster",
        f"{choice.text} leads to the super cluster: {why}",
        "name the kubeconfig of the tenant's own control plane",
    )


def _problem(reason: str, message: str, remedy: str, field: str = _SECRET_FIELD) -> SpecProblem:
    return SpecProblem(field, reason, message, remedy)


def _shown(found: Collection[str]) -> str:
    shown = ", ".join(sorted(found)[:_MAX_SHOWN_KEYS])
    return shown + (", …" if len(found) > _MAX_SHOWN_KEYS else "") if found else "none"


def _place(server: str) -> tuple[str, int]:
    parts = urlsplit(server)
    host = (parts.hostname or "").rstrip(".").lower()
    return str(_address(host) or host), parts.port or 443


def _is_loopback(server: str) -> bool:
    """Whether each machine reaches itself by it: also by `0.0.0.0` and `::`."""
    host = _place(server)[0]
    address = _address(host)
    if address is None:
        return host == "localhost" or host.endswith(".localhost")
    return address.is_loopback or address.is_unspecified


def _is_no_host(server: str) -> bool:
    """Whether it is an address that is another machine's on each network, such as that of cloud metadata."""
    address = _address(_place(server)[0])
    return address is not None and (address.is_link_local or address.is_multicast or address.is_reserved)


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """The address that a host is, in one form; None for a name."""
    try:
        found = ipaddress.ip_address(host)
    except ValueError:
        return None
    return found if isinstance(found, ipaddress.IPv4Address) else found.ipv4_mapped or found
