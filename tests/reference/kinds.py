# SPDX-License-Identifier: Apache-2.0
"""The kinds of files that operators write, with the dataclass that reads each."""

from dataclasses import dataclass
from typing import Any

import dns_webhook.config
import dnsconfig.config
import kata_bridge.config
import kubeproxy_ext.config
import vnagent.config
from kata_bridge.sandboxes import file_source


@dataclass(frozen=True, slots=True)
class FileKind:
    """`example`: the file in `examples/`; `reader`: what reads it."""

    name: str
    cls: Any
    example: str
    reader: str


KINDS = (
    FileKind(vnagent.config.KIND, vnagent.config.VnAgentConfiguration, "vn-agent.yaml", "vn-agent"),
    FileKind(
        kata_bridge.config.KIND, kata_bridge.config.KataBridgeConfiguration, "kata-bridge.yaml", "kata-bridge"
    ),
    FileKind(
        kubeproxy_ext.config.KIND,
        kubeproxy_ext.config.KubeproxyExtConfiguration,
        "kubeproxy-ext.yaml",
        "kubeproxy-ext",
    ),
    FileKind(dnsconfig.config.KIND, dnsconfig.config.DnsConfigConfiguration, "dnsconfig.yaml", "dnsconfig"),
    FileKind(
        dns_webhook.config.KIND,
        dns_webhook.config.DnsWebhookConfiguration,
        "dnsconfig-webhook.yaml",
        "dnsconfig-webhook",
    ),
    FileKind(file_source.KIND, file_source.GuestFile, "guest.yaml", "kata-bridge (`sandboxes.directory`)"),
)
