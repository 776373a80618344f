# SPDX-License-Identifier: Apache-2.0
"""Which specs a run has: by area, by a name of this table, or by any regular expression. Pure."""

from __future__ import annotations

AREAS = (
    "node",
    "storage",
    "apps",
    "auth",
    "cli",
    "network",
    "api-machinery",
    "instrumentation",
    "scheduling",
    "architecture",
)
# Some of each kind and none slow, for CI: about 140 specs.
_QUICK = (
    r"\[sig-node\] (Downward API should provide|InitContainer|Ephemeral Containers|Security Context)",
    r"\[sig-node\] (Container Lifecycle Hook.*exec|Pods should (support|get a host|be updated)|Kubelet )",
    r"\[sig-node\] (ConfigMap should be consumable|Variable Expansion should allow|PodTemplates)",
    r"\[sig-storage\] (Projected|Downward API volume|Secrets should be consumable|ConfigMap updates)",
    r"\[sig-apps\] Deployment (should run|deployment should (delete|support))",
    r"\[sig-apps\] (ReplicaSet should (adopt|serve)|DisruptionController should block)",
    r"\[sig-apps\] Job should (delete|adopt|run a job)",
    r"\[sig-(auth|architecture|instrumentation)\]",
    r"\[sig-cli\] .*(describe|expose|replace|run pod|Kubectl logs|Update Demo|Proxy server)",
    r"\[sig-network\] DNS should provide DNS for (the cluster|services|pods for Hostname)",
    r"\[sig-network\] (Proxy version v1|Services should (serve a basic endpoint|be able to change the type))",
    r"\[sig-network\] Networking Granular Checks: Pods should function for intra-pod",
    r"\[sig-api-machinery\] AdmissionWebhook.*(deny pod|mutate pod)",
    r"\[sig-api-machinery\] (Aggregator|Garbage collector should delete pods|OrderedNamespaceDeletion)",
)
NAMED = {"quick": "|".join(_QUICK), **{area: rf"\[sig-{area}\]" for area in AREAS}}


def pattern(focus: str) -> str:
    """The regular expression for ginkgo: conformance tests that `focus` matches, or all."""
    chosen = NAMED.get(focus, focus)
    return rf"(?:{chosen}).*\[Conformance\]" if chosen else r"\[Conformance\]"
