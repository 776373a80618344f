# SPDX-License-Identifier: Apache-2.0
"""What is where on the stage, and what one can try by hand while it is kept. Text only."""

from vcnode.terminal import columns
from vcnode_demo.daemon import Daemon
from vcnode_demo.dns_environment import DnsStage
from vcnode_demo.environment import Stage
from vcnode_demo.services_environment import TENANTS_IP, ServicesStage


def stage_lines(stage: Stage) -> list[str]:
    """What was started."""
    agent = stage.agent
    rows = [
        ("super cluster", f"stand-in kube-apiserver at {stage.super_cluster.url}"),
        ("kubelet", f"stand-in at 127.0.0.1:{stage.kubelet.port}"),
        ("vn-agent", f"the real one, pid {agent.pid}, at 127.0.0.1:{stage.agent_port}"),
    ]
    rows += [(f"tenant {tenant.name}", f"cluster key {tenant.key}") for tenant in stage.tenants.values()]
    return ["", *(f"  {line}" for line in columns(rows))]


def commands(stage: Stage) -> list[str]:
    """Commands to play with, complete with paths and ports."""
    here = stage.directory
    base = f"https://127.0.0.1:{stage.agent_port}"

    def curl(tenant: str, file: str, path: str, extra: str = "") -> str:
        leaf = here / tenant / file
        return (
            f"curl {extra}--cacert {stage.serving_ca_file} --cert {leaf}.crt --key {leaf}.key '{base}{path}'"
        )

    return [
        "",
        "The stage is kept. Try, in another terminal:",
        "",
        "  # acme's log, and follow it (the shop sells an anvil every 2 s)",
        f"  {curl('acme', 'apiserver', '/containerLogs/web/shop/app')}",
        f"  {curl('acme', 'apiserver', '/containerLogs/web/shop/app?follow=true', '-N ')}",
        "  # acme's pod vault, as acme and as globex",
        f"  {curl('acme', 'apiserver', '/containerLogs/web/vault/app')}",
        f"  {curl('globex', 'apiserver', '/containerLogs/web/vault/app', '-i ')}",
        "  # acme's administrator, whose certificate is not registered",
        f"  {curl('acme', 'admin', '/pods', '-i ')}",
        "  # pages: acme's apiserver, acme's metrics-server",
        f"  {curl('acme', 'apiserver', '/pods')}",
        f"  {curl('acme', 'metrics', '/metrics/resource')}",
        "  # a shell: type hostname, or cat /etc/owner",
        f"  {_shell(stage)}",
        *(_services(stage.services) if stage.services is not None else ()),
        *(_dns(stage.dns) if stage.dns is not None else ()),
        "  # what the daemons say of themselves",
        f"  vcnode status --socket {' '.join(str(daemon.socket) for daemon in _daemons(stage))}",
        f"  curl --unix-socket {stage.agent.socket} http://localhost/metrics",
        f"  tail -f {stage.agent.audit_file}",
        f"  less {stage.agent.log_file} {stage.agent.config_file}",
        "",
        "Ctrl-C takes it all down.",
    ]


def _daemons(stage: Stage) -> list[Daemon]:
    services, dns = stage.services, stage.dns
    return [
        stage.agent,
        *((services.bridge, services.proxy) if services is not None else ()),
        *((dns.bridge, dns.dns) if dns is not None else ()),
    ]


def _services(stage: ServicesStage) -> list[str]:
    """What one can do with guests and their Services."""
    where = f"--socket {stage.proxy.socket} --bridge {stage.bridge_socket}"
    acme = stage.tenants["acme"]
    inside = {name: f"nsenter -t {vpc.front.pid} -n" for name, vpc in stage.tenants.items()}
    return [
        "  # the same cluster IP from acme's and globex's guest; a shell in acme's",
        *(f"  {enter} curl http://{TENANTS_IP}/" for enter in inside.values()),
        f"  {inside['acme']} bash",
        "  # acme's rules as its kernel has them; a stranger takes them away",
        f"  {inside['acme']} nft list ruleset       # or iptables-save",
        f"  {inside['acme']} nft flush ruleset      # or iptables -t nat -F",
        "  # what the daemons say of guests and of a packet",
        f"  vcnode guests --socket {stage.bridge.socket}",
        f"  vcnode explain web/front {TENANTS_IP}:80 --tenant {acme.key} {where}",
        f"  less {stage.bridge.log_file} {stage.proxy.log_file}",
    ]


def _dns(stage: DnsStage) -> list[str]:
    """What one can do with names."""
    where = f"--socket {stage.dns.socket} --bridge-status {stage.bridge.socket}"
    pods = [pod for pod in stage.pods.values() if pod.container is not None]
    first = pods[0]
    key = stage.tenants[first.network.tenant]
    return [
        "  # the same name in each pod, as its container sees it; the resolv.conf of one",
        *(f"  nsenter -t {pod.app.pid} -n -m getent ahostsv4 db   # {pod.network.shown}" for pod in pods),
        f"  nsenter -t {first.app.pid} -n -m cat /etc/resolv.conf",
        "  # and why it is so",
        f"  vcnode explain dns {first.name} db --query --tenant {key} {where}",
        f"  vcnode guests --socket {stage.bridge.socket}",
        f"  less {stage.bridge.log_file} {stage.dns.log_file}",
    ]


def _shell(stage: Stage) -> str:
    """A raw stream by openssl: the request, then whatever is typed."""
    lines = (
        "POST /exec/web/shop/app?command=sh&input=1&output=1 HTTP/1.1",
        "Host: node-1",
        "Connection: Upgrade",
        "Upgrade: SPDY/3.1",
        "X-Stream-Protocol-Version: v4.channel.k8s.io",
        "",
        "",
    )
    leaf = stage.directory / "acme" / "apiserver"
    request = "\\r\\n".join(lines)
    return (
        f"(printf '{request}'; cat) | openssl s_client -quiet -CAfile {stage.serving_ca_file}"
        f" -cert {leaf}.crt -key {leaf}.key -connect 127.0.0.1:{stage.agent_port}"
    )
