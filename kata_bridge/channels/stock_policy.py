# SPDX-License-Identifier: Apache-2.0
"""Whether kata-bridge may replace the policy of a guest's agent. Pure.

SetPolicy replaces the whole policy. That of a confidential pod is the tenant's own protection
against its node, and a policy that came with the pod is its author's word: neither is ours to touch.
"""

import re
from collections.abc import Mapping

# kata-containers: the older annotation holds base64 Rego, the newer one packed TOML with a
# "policy.rego" in it. Wherever below Kata's prefix the latter is put, it counts.
_POLICY_ANNOTATION = "io.katacontainers.config.agent.policy"
_INIT_DATA_ANNOTATION = re.compile(r"io\.katacontainers\.config\..*\bcc_init_data")

# Handlers of confidential guests, as kata-deploy names them: kata-qemu-snp, kata-qemu-tdx-runtime-rs...
_CONFIDENTIAL_WORDS = frozenset({"cc", "cca", "coco", "se", "sev", "snp", "tdx"})


def why_untouchable(annotations: Mapping[str, str], runtime_handler: str) -> str:
    """Return why the policy of this pod's guest must stay as it is; empty if it need not."""
    for name in sorted(annotations):
        if name == _POLICY_ANNOTATION or _INIT_DATA_ANNOTATION.fullmatch(name):
            return f"the pod brought a policy of its own ({name})"
    if _CONFIDENTIAL_WORDS.intersection(re.split(r"[^a-z0-9]+", runtime_handler.lower())):
        return f"the runtime handler {runtime_handler} is for confidential guests"
    return ""
