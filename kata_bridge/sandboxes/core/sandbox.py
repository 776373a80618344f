# SPDX-License-Identifier: Apache-2.0
"""A sandbox: what a source observed of it, and the pod that it runs."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from tenancy import keys
from tenancy.names import Refused
from tenancy.ownership import ContainerPolicy, owned_pod

# The kubelet's: in a static pod's sandbox this, and not the API's uid, is what the runtime knows.
CONFIG_HASH = "kubernetes.io/config.hash"

# kata-containers: the older annotation holds base64 Rego, the newer one packed TOML with a
# "policy.rego" in it. Wherever below Kata's prefix the latter is put, it counts.
_POLICY_ANNOTATION = "io.katacontainers.config.agent.policy"
_INIT_DATA_ANNOTATION = re.compile(r"io\.katacontainers\.config\..*\bcc_init_data")

# Handlers of confidential guests, as kata-deploy names them: kata-qemu-snp, kata-qemu-tdx-runtime-rs...
_CONFIDENTIAL_WORDS = frozenset({"cc", "cca", "coco", "se", "sev", "snp", "tdx"})

_NO_CONTAINERS = ContainerPolicy()

# containerd's are 64 hex digits. They become names of files, so nothing that a path is made of.
_SANDBOX_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,127}")


def is_sandbox_id(text: str) -> bool:
    """Whether `text` may be the id of a sandbox."""
    return _SANDBOX_ID.fullmatch(text) is not None


@dataclass(frozen=True, slots=True)
class Seen:
    """One sandbox as a source shows it; `netns` and `ips` are empty where the source has them not.

    `attempt` is None where the source does not tell it (NRI); `created_at_ns` is 0 then.
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
    """A living sandbox and the pod that it is, in the super cluster's names and the tenant's.

    `tenant` is empty for a pod that is no tenant's. `refusal` is not empty where the pod says to be
    a tenant's in words that cannot be used: it is nobody's then, and gets nothing.
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
    refusal: str = ""
    # Why the policy of its guest's stock agent is not ours to replace; empty if it may be.
    policy_refusal: str = ""
    # The ways in, where whoever described the sandbox decided them (a file of the static source).
    channels: tuple[str, ...] = ()


def sandbox_of(seen: Seen) -> Sandbox:
    """Say who a sandbox is."""
    uid = seen.uid or seen.annotations.get(CONFIG_HASH, "")
    owned = owned_pod(seen.namespace, seen.name, uid, seen.annotations, (), _NO_CONTAINERS)
    tenant = tenant_namespace = tenant_name = refusal = ""
    if isinstance(owned, Refused):
        refusal = f"whose pod it is cannot be told: {owned.reason}"
    elif owned is not None:
        tenant, tenant_namespace, tenant_name = owned.tenant, owned.namespace, owned.name
    return Sandbox(
        id=seen.id,
        namespace=seen.namespace,
        name=seen.name,
        uid=uid,
        tenant=tenant,
        tenant_namespace=tenant_namespace,
        tenant_name=tenant_name,
        networks=(seen.labels.get(keys.ARKTOS_NETWORK) or keys.DEFAULT_NETWORK,),
        ips=seen.ips,
        runtime_handler=seen.runtime_handler,
        netns=seen.netns,
        is_host_network=seen.is_host_network,
        refusal=refusal,
        policy_refusal=policy_lock_reason(seen.annotations, seen.runtime_handler),
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


@dataclass(frozen=True, slots=True)
class Appeared:
    """A sandbox is there, or what is known of it changed."""

    sandbox: Sandbox


@dataclass(frozen=True, slots=True)
class Vanished:
    id: str


Change = Appeared | Vanished
