# SPDX-License-Identifier: Apache-2.0
"""The kinds of files that operators write, with the dataclass that reads each."""

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import dns_webhook.config
import dnsconfig.config
import kata_bridge.config
import kubeproxy_ext.config
import syncer.config
import tenant_operator.config
import vnagent.config
from daemonkit.config import binding
from daemonkit.config.binding import setting
from kata_bridge.sandboxes import file_source
from tenancy import keys
from tenancy.document import MAX_AUTHORITIES, MAX_CLIENTS, parse_tenant
from tenancy.tenant import DEFAULT_CLUSTER_DOMAIN, Role


@dataclass(frozen=True, slots=True)
class FileKind:
    """`example`: the file in `examples/`; `reader`: what reads it."""

    name: str
    cls: Any
    example: str
    reader: str
    parser: Callable[[object], object] | None = None
    """What reads the document; by default `binding.parse`, as `cls`."""

    def parse(self, document: object) -> object:
        """Read it as its reader does. Raises ConfigError or TenantError."""
        if self.parser is not None:
            return self.parser(document)
        return binding.parse(json.dumps(document).encode(), self.cls, kind=self.name, source="document")


# `tenancy.document` reads Tenant files, and imports no daemonkit. These have only their keys.
@dataclass(frozen=True, slots=True)
class _TenantMetadata:
    name: str = setting(minimum_length=1, doc="the tenant's cluster key")


@dataclass(frozen=True, slots=True)
class _TenantClient:
    spki: str = setting(
        key="spkiSHA256", minimum_length=64, doc="SHA-256 of the client's public key (SPKI), 64 hex digits"
    )
    role: Role = setting(doc="an apiserver may use every endpoint, a metrics client the pages only")


@dataclass(frozen=True, slots=True)
class _TenantSpec:
    certificate_authority: str | None = setting(
        None,
        minimum_length=1,
        doc=f"PEM of the authorities of its clients, at most {MAX_AUTHORITIES}; none: it comes by SPIFFE",
    )
    clients: tuple[_TenantClient, ...] | None = setting(
        None, doc=f"its registered clients, at most {MAX_CLIENTS}; needs certificateAuthority"
    )
    cluster_domain: str = setting(
        DEFAULT_CLUSTER_DOMAIN, minimum_length=1, doc="its DNS domain, in lower case"
    )


@dataclass(frozen=True, slots=True)
class _TenantFile:
    metadata: _TenantMetadata
    spec: _TenantSpec = field(default_factory=_TenantSpec)


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
    FileKind(syncer.config.KIND, syncer.config.SyncerConfiguration, "vc-syncer.yaml", "vc-syncer"),
    FileKind(
        tenant_operator.config.KIND,
        tenant_operator.config.OperatorConfiguration,
        "vc-operator.yaml",
        "vc-operator",
    ),
    FileKind(
        keys.TENANT_KIND,
        _TenantFile,
        "tenant.yaml",
        "vn-agent (`tenants.directory`), written by `vcnode tenant add`",
        parse_tenant,
    ),
    FileKind(file_source.KIND, file_source.GuestFile, "guest.yaml", "kata-bridge (`sandboxes.directory`)"),
)
