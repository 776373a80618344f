# SPDX-License-Identifier: Apache-2.0
"""A sandbox: what a source observed of it, and the pod that it runs."""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from tenancy import keys
from tenancy.names import Refused
from tenancy.ownership import ContainerPolicy, owned_pod

# Set by the kubelet: of a static pod the runtime has this instead of the API's uid.
CONFIG_HASH = "kubernetes.io/config.hash"

# kata-containers: the older annotation holds base64 Rego, the newer one packed TOML with a
# "policy.rego" in it. Wherever below Kata's prefix the latter is put, it counts.
_POLICY_ANNOTATION = "io.katacontainers.config.agent.policy"
_INIT_DATA_ANNOTATION = re.compile(r"io\.katacontainers\.config\..*\bcc_init_data")

# Handlers of confidential guests, as kata-deploy names them: kata-qemu-snp, kata-qemu-tdx-runtime-rs...
_CONFIDENTIAL_WORDS = frozenset({"cc", "cca", "coco", "se", "sev", "snp", "tdx"})

_NO_CONTAINERS = ContainerPolicy()

# containerd's ids are 64 hex digits. They become file names, so no part of a path may be in them.
_SANDBOX_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")


def is_sandbox_id(text: str) -> bool:
    return _SANDBOX_ID.fullmatch(text) is not None


@dataclass(frozen=True, slots=True)
class SandboxObservation:
    """A sandbox as one source reports it; `netns` and `ips` are empty where the source lacks them.

    `attempt` is None and `created_at_ns` is 0 where the source lacks them (NRI).
    """

    id: str
    namespace: str
    name: str
    uid: str
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    runtime_handler: str = ""
    ips: tuple[str, ...] = ()
    netns: str = ""
    is_host_network: bool = False
    is_alive: bool = True
    attempt: int | None = None
    created_at_ns: int = 0


@dataclass(frozen=True, slots=True)
class Sandbox:
    """A living sandbox and its pod, with the names of the super cluster and of the tenant.

    `tenant` is empty for a pod of the super cluster itself. `ownership_problem` is why the pod's ownership
    annotations cannot be used; such a pod has no tenant, rules or resolver.
    """

    id: str
    namespace: str
    name: str
    uid: str
    tenant: str = ""
    tenant_namespace: str = ""
    tenant_name: str = ""
    networks: tuple[str, ...] = (keys.DEFAULT_NETWORK,)
    ips: tuple[str, ...] = ()
    runtime_handler: str = ""
    netns: str = ""
    is_host_network: bool = False
    ownership_problem: str = ""
    # Why kata-bridge must not replace the policy of its guest's stock agent; empty if it may.
    agent_policy_lock: str = ""
    # The channels to use, where a file of the static source names them.
    channels: tuple[str, ...] = ()


def sandbox_of(observation: SandboxObservation) -> Sandbox:
    """The sandbox that a source observed, with the owner of its pod."""
    uid = observation.uid or observation.annotations.get(CONFIG_HASH, "")
    owned = owned_pod(
        observation.namespace, observation.name, uid, observation.annotations, (), _NO_CONTAINERS
    )
    tenant = tenant_namespace = tenant_name = ownership_problem = ""
    if isinstance(owned, Refused):
        ownership_problem = f"its ownership annotations are invalid: {owned.reason}"
    elif owned is not None:
        tenant, tenant_namespace, tenant_name = owned.tenant, owned.namespace, owned.name
    return Sandbox(
        id=observation.id,
        namespace=observation.namespace,
        name=observation.name,
        uid=uid,
        tenant=tenant,
        tenant_namespace=tenant_namespace,
        tenant_name=tenant_name,
        networks=(observation.labels.get(keys.ARKTOS_NETWORK) or keys.DEFAULT_NETWORK,),
        ips=observation.ips,
        runtime_handler=observation.runtime_handler,
        netns=observation.netns,
        is_host_network=observation.is_host_network,
        ownership_problem=ownership_problem,
        agent_policy_lock=policy_lock_reason(observation.annotations, observation.runtime_handler),
    )


def policy_lock_reason(annotations: Mapping[str, str], runtime_handler: str) -> str:
    """Return why kata-bridge must not replace the agent policy of this pod's guest; empty if it may.

    SetPolicy replaces the whole policy. A confidential pod's policy protects the tenant against the
    node, and a policy that the pod brought is its author's choice.
    """
    for name in sorted(annotations):
        if name == _POLICY_ANNOTATION or _INIT_DATA_ANNOTATION.fullmatch(name):
            return f"the pod brought a policy of its own ({name})"
    if _CONFIDENTIAL_WORDS.intersection(re.split(r"[^a-z0-9]+", runtime_handler.lower())):
        return f"the runtime handler {runtime_handler} is for confidential guests"
    return ""


def resolver_applies_to(issued_for: Collection[str], networks: Collection[str]) -> bool:
    """Whether a resolver that was issued for some networks is for a sandbox that is attached to `networks`.

    `issued_for` is empty where that is unknown: such a resolver applies to any sandbox.
    """
    return not issued_for or frozenset(issued_for) == frozenset(networks)


@dataclass(frozen=True, slots=True)
class Appeared:
    """A sandbox started, or its observed state changed."""

    sandbox: Sandbox


@dataclass(frozen=True, slots=True)
class Vanished:
    id: str


SandboxChange = Appeared | Vanished
