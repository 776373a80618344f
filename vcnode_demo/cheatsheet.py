# SPDX-License-Identifier: Apache-2.0
"""Addresses and paths of the running demo, and commands to try with `--keep`.

They run as pasted into another terminal, in whatever directory: paths are absolute, also that of `vcnode`,
which stands in the clone's environment and in no PATH.
"""

import shlex
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from vcnode.terminal import columns
from vcnode_demo.daemon import Daemon
from vcnode_demo.dns_environment import DnsEnvironment
from vcnode_demo.environment import Environment
from vcnode_demo.services_environment import TENANTS_IP, ServicesEnvironment
from vcnode_demo.syncer_environment import SyncerEnvironment


def overview(environment: Environment) -> list[str]:
    """The addresses of what was started."""
    agent = environment.agent
    rows = [
        ("super cluster", f"fake kube-apiserver at {environment.super_cluster.url}"),
        ("kubelet", f"fake, at 127.0.0.1:{environment.kubelet.port}"),
        ("vn-agent", f"real, pid {agent.pid}, at 127.0.0.1:{environment.agent_port}"),
    ]
    rows += [
        (f"tenant {tenant.name}", f"cluster key {tenant.key}") for tenant in environment.tenants.values()
    ]
    return ["", *(f"  {line}" for line in columns(rows))]


def commands(environment: Environment) -> list[str]:
    """Commands with their paths and ports."""
    here = environment.directory
    base = f"https://127.0.0.1:{environment.agent_port}"

    def curl(tenant: str, file: str, path: str, extra: str = "") -> str:
        leaf = here / tenant / file
        trust = f"--cacert {environment.serving_ca_file} --cert {leaf}.crt --key {leaf}.key"
        return f"curl {extra}{trust} '{base}{path}'"

    tool = vcnode()
    lines = [
        "",
        "The demo keeps running. Try, in another terminal:",
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
        f"  {_shell(environment)}",
        *(_services(environment.services, tool) if environment.services is not None else ()),
        *(_dns(environment.dns, tool) if environment.dns is not None else ()),
        *(_syncer(environment.syncer, tool) if environment.syncer is not None else ()),
        "  # the status of the daemons",
        f"  {tool} status --socket {' '.join(str(daemon.socket) for daemon in _daemons(environment))}",
        f"  curl --unix-socket {environment.agent.socket} http://localhost/metrics",
        f"  tail -f {environment.agent.audit_file}",
        f"  less {environment.agent.log_file} {environment.agent.config_file}",
        "",
        "Ctrl-C takes it all down.",
    ]
    return [without_missing(line, shutil.which) for line in lines]


def vcnode(executable: str = sys.executable) -> str:
    """The operator's tool as a shell takes it: the program beside this interpreter, or its module."""
    program = Path(executable).with_name("vcnode")
    return shlex.quote(str(program)) if program.exists() else f"{shlex.quote(executable)} -m vcnode"


def programs(line: str) -> list[str]:
    """The programs that a command runs, besides the shell's own: at its start, after `(`, `|` and nsenter."""
    if not line.startswith("  "):
        return []
    words = shlex.shlex(line, posix=True, punctuation_chars="();|")
    words.whitespace_split = True
    found: list[str] = []
    is_next = True
    for word in words:
        is_entering = found[-1:] == ["nsenter"] and not is_next
        if is_next or (is_entering and not (word.startswith("-") or word.isdigit())):
            found.append(word)
        is_next = word in ("(", "|", ";")
    return [word for word in found if word != "("]


def without_missing(line: str, which: Callable[[str], str | None]) -> str:
    """The line, as a comment if this machine lacks one of its programs."""
    missing = [each for each in programs(line) if which(each) is None]
    return f"  # {missing[0]} is not installed: {line.lstrip()}" if missing else line


def _daemons(environment: Environment) -> list[Daemon]:
    services, dns, syncer = environment.services, environment.dns, environment.syncer
    return [
        environment.agent,
        *((services.bridge, services.proxy) if services is not None else ()),
        *((dns.bridge, dns.dns) if dns is not None else ()),
        *((syncer.syncer,) if syncer is not None else ()),
    ]


def _services(environment: ServicesEnvironment, tool: str) -> list[str]:
    """Commands for guests and their Services."""
    where = f"--socket {environment.proxy.socket} --bridge {environment.bridge_socket}"
    acme = environment.tenants["acme"]
    inside = {name: f"nsenter -t {vpc.front.pid} -n" for name, vpc in environment.tenants.items()}
    return [
        "  # the same cluster IP from acme's and globex's guest; a shell in acme's",
        *(f"  {enter} curl http://{TENANTS_IP}/" for enter in inside.values()),
        f"  {inside['acme']} bash",
        "  # acme's rules in its kernel; another program deletes them",
        *(f"  {inside['acme']} {command}" for command in _rules_commands()),
        "  # the guests, and the explanation of a packet",
        f"  {tool} guests --socket {environment.bridge.socket}",
        f"  {tool} explain web/front {TENANTS_IP}:80 --tenant {acme.key} {where}",
        f"  less {environment.bridge.log_file} {environment.proxy.log_file}",
    ]


def _rules_commands() -> tuple[str, str]:
    if shutil.which("nft") is not None:
        return "nft list ruleset", "nft flush ruleset"
    return "iptables-save", "iptables -t nat -F"


def _dns(environment: DnsEnvironment, tool: str) -> list[str]:
    """Commands for DNS names."""
    where = f"--socket {environment.dns.socket} --bridge-status {environment.bridge.socket}"
    pods = [pod for pod in environment.pods.values() if pod.container is not None]
    first = pods[0]
    key = environment.tenants[first.network.tenant]
    return [
        "  # the same name in each pod, as its container sees it; the resolv.conf of one",
        *(f"  nsenter -t {pod.app.pid} -n -m getent ahostsv4 db   # {pod.network.shown}" for pod in pods),
        f"  nsenter -t {first.app.pid} -n -m cat /etc/resolv.conf",
        "  # and the explanation of it",
        f"  {tool} explain dns {first.name} db --query --tenant {key} {where}",
        f"  {tool} guests --socket {environment.bridge.socket}",
        f"  less {environment.bridge.log_file} {environment.dns.log_file}",
    ]


def _syncer(environment: SyncerEnvironment, tool: str) -> list[str]:
    """Commands for what vc-syncer makes."""
    tenant, plane = environment.tenants["umbrella"], environment.planes["umbrella"]
    leaf = environment.directory.parent / tenant.name / "admin"
    curl = f"curl --cacert {environment.ca_files[tenant.name]} --cert {leaf}.crt --key {leaf}.key"
    prices = f"'{plane.url}/api/v1/namespaces/shop/configmaps/prices'"
    patch = "--request PATCH --header 'Content-Type: application/merge-patch+json'"
    socket = f"--socket {environment.syncer.socket}"
    return [
        "  # umbrella's pod in its own API server, with the status that came up; change its ConfigMap",
        f"  {curl} '{plane.url}/api/v1/namespaces/shop/pods/web'",
        f'  {curl} {patch} --data \'{{"data": {{"anvil": "9"}}}}\' {prices}',
        "  # vc-syncer's tenants (acme and globex have no control plane here), and one object on both sides",
        f"  {tool} tenants {socket}",
        f"  {tool} explain object ConfigMap shop/prices --tenant {tenant.key} {socket}",
        f"  less {environment.syncer.log_file} {environment.syncer.config_file}",
    ]


def _shell(environment: Environment) -> str:
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
    leaf = environment.directory / "acme" / "apiserver"
    request = "\\r\\n".join(lines)
    return (
        f"(printf '{request}'; cat) | openssl s_client -quiet -CAfile {environment.serving_ca_file}"
        f" -cert {leaf}.crt -key {leaf}.key -connect 127.0.0.1:{environment.agent_port}"
    )
