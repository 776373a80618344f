# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest

from daemonkit.config.binding import ConfigError, parse
from daemonkit.config.status_config import StatusConfig
from dns_webhook.config import KIND, DnsWebhookConfiguration, Listen, Serving, load
from dnsconfig.config import SuperCluster, TenantDomain

LEAST = """
apiVersion: vcnode.io/v1alpha1
kind: DnsWebhookConfiguration
superCluster: {kubeconfigFile: kubeconfig}
listen: {names: [dns.vcnode.svc]}
stateDirectory: state
"""
ALL = """
clusterDomain: k8s.example
tenants:
- {key: a, clusterDomain: a.example}
resolvConf: /etc/nodes/resolv.conf
plainKubeDns: false
status: {address: localhost, port: 9000}
"""


def read(text: str) -> DnsWebhookConfiguration:
    return parse(text.encode(), DnsWebhookConfiguration, kind=KIND, source="x", directory=Path("/etc"))


def test_minimal_configuration_has_defaults() -> None:
    assert read(LEAST) == DnsWebhookConfiguration(
        SuperCluster(Path("/etc/kubeconfig")),
        Listen(("dns.vcnode.svc",), port=9443),
        Path("/etc/state"),
        cluster_domain="cluster.local",
        tenants=(),
        resolv_conf="/etc/resolv.conf",
    )


def test_every_key_is_read(tmp_path: Path) -> None:
    text = LEAST.replace("kubeconfig}", "kubeconfig, hasVirtualClusters: false}") + ALL
    text = text.replace("[dns.vcnode.svc]", "[dns.vcnode.svc, 10.0.0.1, 'fd00::1'], address: '::', port: 443")
    expected = DnsWebhookConfiguration(
        SuperCluster(tmp_path / "kubeconfig", has_virtual_clusters=False),
        Listen(("dns.vcnode.svc", "10.0.0.1", "fd00::1"), "::", 443),
        tmp_path / "state",
        cluster_domain="k8s.example",
        tenants=(TenantDomain("a", "a.example"),),
        resolv_conf="/etc/nodes/resolv.conf",
        plain_kube_dns=False,
        status=StatusConfig(address="localhost", port=9000),
    )
    (tmp_path / "config.yaml").write_text(text)
    assert load(tmp_path / "config.yaml") == expected


def test_an_empty_resolv_conf_is_allowed() -> None:
    assert read(LEAST + "resolvConf: ''\n").resolv_conf == ""


@pytest.mark.parametrize(
    ("text", "errors"),
    [
        (
            LEAST + "clusterDomain: a..b\nresolvConf: here\n",
            (
                "clusterDomain: expected a domain, got 'a..b'",
                "resolvConf: expected an absolute path or nothing, got 'here'",
            ),
        ),
        (
            LEAST.replace("[dns.vcnode.svc]", "[], address: here"),
            (
                "listen.names: expected at least one, such as SERVICE.NAMESPACE.svc",
                "listen.address: expected an address, got 'here'",
            ),
        ),
        (
            LEAST.replace("[dns.vcnode.svc]", "[a.svc], port: 65536"),
            ("listen.port: expected an integer between 0 and 65535, got 65536",),
        ),
        (
            LEAST.replace("[dns.vcnode.svc]", "['*.vcnode.svc', Dns.svc, a.svc]"),
            (
                "listen.names: expected a DNS name or an address, got '*.vcnode.svc'",
                "listen.names: expected a DNS name or an address, got 'Dns.svc'",
            ),
        ),
        (
            LEAST + "tenants: [{key: A, clusterDomain: a}]\n",
            ("tenants[0].key: cluster key 'A' is not a DNS label of at most 63 characters",),
        ),
        (
            LEAST + "tenants: [{key: b, clusterDomain: b}, {key: b, clusterDomain: c}]\n",
            ("tenants: b is listed more than once",),
        ),
    ],
)
def test_all_problems_are_reported_at_once(text: str, errors: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError) as caught:
        read(text)
    assert caught.value.errors == errors


def test_a_certificate_of_another_program_needs_no_state() -> None:
    text = LEAST.replace("stateDirectory: state", "serving: {certificateFile: tls.crt, keyFile: tls.key}")
    config = read(text)
    assert config.state_directory is None
    assert config.serving == Serving(Path("/etc/tls.crt"), Path("/etc/tls.key"))


def test_either_state_or_a_given_certificate_is_needed() -> None:
    with pytest.raises(ConfigError, match="expected stateDirectory or serving"):
        read(LEAST.replace("stateDirectory: state", ""))
