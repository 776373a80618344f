# SPDX-License-Identifier: Apache-2.0
"""Scenario 4: DNS. Two tenants have two networks each, with the same addresses and a DNS server in each.

`run` has all steps. Each step is a function that needs only an open environment.
"""

import time
from collections.abc import Sequence

from vcnode import explain_dns, guests
from vcnode.core.dns_message import RecordType
from vcnode.dns_query import ask_all
from vcnode.terminal import columns
from vcnode_demo import cli_calls, dns_guests
from vcnode_demo.dns_environment import (
    DOMAINS,
    LATE,
    NAMESPACE,
    NETWORKS,
    NEW_SERVER_IP,
    NODE_ANSWER,
    NODE_RESOLVER,
    POD_IP,
    SERVER_IP,
    DemoNetwork,
    DnsEnvironment,
    DnsPod,
)
from vcnode_demo.environment import Environment
from vcnode_demo.narrator import DEADLINE_S, Narrator
from vcnode_demo.vpc import host_links, missing_requirement

TITLE = "Scenario 4: DNS of each network"
# The start gate answers from memory, at most 0.1 s later for a new sandbox. The fastest of some attempts
# counts, as the machine may be busy.
AT_ONCE_S = 1.0
_TRIES = 3
_MOVED_DB = "10.0.0.36"
_NOTHING = "-"


def run(narrator: Narrator, environment: Environment) -> None:
    """All steps, in order. Raises CheckFailedError."""
    why = missing_requirement() or dns_guests.missing_requirement()
    if why:
        narrator.skipped(TITLE, why)
        return
    narrator.begin_scenario(TITLE)
    dns = environment.open_dns()
    same_addresses(narrator, dns)
    pods_start(narrator, dns)
    own_names(narrator, dns)
    explained_query(narrator, dns)
    server_address_changed(narrator, dns)
    missing_network(narrator, dns)
    node_resolver_unused(narrator, dns)


def same_addresses(narrator: Narrator, environment: DnsEnvironment) -> None:
    narrator.step("Four networks with the same addresses, and a DNS server in each that knows its own")
    rows = [("TENANT", "NETWORK", "DNS SERVER", "POD", "ITS SERVICES")]
    for network in NETWORKS:
        environment.put_network(network, SERVER_IP)
        services = ", ".join(f"{name} {ip}" for name, ip in network.services.items())
        pod = f"{NAMESPACE}/{network.pod} {POD_IP}"
        rows.append((network.tenant, network.name, SERVER_IP, pod, services))
    narrator.response("\n".join(columns(rows)))
    ours, host = environment.vpcs.links(), host_links()
    narrator.check(
        not set(ours.values()) & set(host.values()),
        f"none of their {len(ours)} links is in the host's network",
    )


def pods_start(narrator: Narrator, environment: DnsEnvironment) -> None:
    narrator.step("A pod in each: its container is created with a resolv.conf mounted over the image's")
    for network in NETWORKS:
        _starts(narrator, environment, environment.start_pod(network))
    for tenant in DOMAINS:
        pod = environment.pods[next(network for network in NETWORKS if network.tenant == tenant)]
        _reads(narrator, pod)
        text = pod.app.resolv_conf()
        narrator.check(
            _servers(text) == [SERVER_IP] and f"{NAMESPACE}.svc.{DOMAINS[tenant]}" in text,
            f"the server is its network's, and the search list is in {tenant}'s own domain",
        )


def own_names(narrator: Narrator, environment: DnsEnvironment) -> None:
    narrator.step("Each pod asks for all names, with getaddrinfo: it resolves those of its own network only")
    names = list(dict.fromkeys(name for network in NETWORKS for name in network.services))
    rows = [("POD", *names)]
    found: dict[DemoNetwork, dict[str, str]] = {}
    for network in NETWORKS:
        app = environment.pods[network].app
        answers = {name: app.lookup(name).addresses for name in names}
        found[network] = {name: ", ".join(each) for name, each in answers.items() if each}
        row = [found[network].get(name, _NOTHING) for name in names]
        rows.append((f"{environment.pods[network].shown} ({network.name})", *row))
    narrator.response("\n".join(columns(rows)))
    for network in NETWORKS:
        narrator.check(
            found[network] == dict(network.services),
            f"{environment.pods[network].shown} resolves only {', '.join(network.services)}",
        )
    _whole_names(narrator, environment)


def _whole_names(narrator: Narrator, environment: DnsEnvironment) -> None:
    """Another tenant's Service stays unknown by its whole name too."""
    asks, has = NETWORKS[2], NETWORKS[0]
    name = next(name for name in has.names() if name.startswith("books."))
    found = environment.pods[asks].app.lookup(f"{name}.")
    _asked(narrator, environment.pods[asks], f"{name}.")
    narrator.response(found.error)
    narrator.check(not found.addresses, f"{has.tenant}'s Services do not exist for {asks.tenant}")


def explained_query(narrator: Narrator, environment: DnsEnvironment) -> None:
    narrator.step(
        "And why: the network, the server, the source of each value, and a query as the pod sends it"
    )
    code = _explain(narrator, environment, environment.pods[NETWORKS[1]], "db", "--query")
    narrator.check(code == 0, "it has its resolver, and its server has an answer")


def server_address_changed(narrator: Narrator, environment: DnsEnvironment) -> None:
    moving = NETWORKS[3]
    pod, others = (
        environment.pods[moving],
        [environment.pods[each] for each in NETWORKS if each is not moving],
    )
    narrator.step(f"The DNS server of {moving.tenant}'s network {moving.name} moves to {NEW_SERVER_IP}")
    names = {name: _MOVED_DB if name.startswith("db.") else ip for name, ip in moving.names().items()}
    before = [each.app.resolv_conf() for each in others]
    pid = pod.app.pid
    server = environment.start_server(moving, NEW_SERVER_IP, names)
    began_s = time.monotonic()
    environment.put_network(moving, NEW_SERVER_IP)
    found = pod.app.follow("db", _MOVED_DB, DEADLINE_S)
    _asked(narrator, pod, "db")
    narrator.response(", ".join(found.addresses) or found.error)
    narrator.check(
        found.addresses == (_MOVED_DB,) and pod.app.pid == pid,
        f"{pod.shown} has its answer from there after {(found.at_s - began_s) * 1000:.0f} ms, "
        f"by the process that was running",
    )
    environment.servers[f"{moving.shown} {SERVER_IP}"].stop()
    narrator.check(
        pod.app.lookup("vault").addresses == ("10.0.0.44",), "the pod no longer needs the old server"
    )
    narrator.check(len(server.queried_names()) > 0, "the new server got queries")
    _reads(narrator, pod)
    after = [each.app.resolv_conf() for each in others]
    narrator.check(after == before, "the resolv.conf of all other pods is unchanged")


def missing_network(narrator: Narrator, environment: DnsEnvironment) -> None:
    narrator.step(f"A pod of {LATE.tenant}'s is in network {LATE.name}, which does not exist")
    pod = environment.start_pod(LATE)
    narrator.wait_for(
        lambda: bool(environment.pod_status(pod).get("waitMessage")), "dnsconfig has observed the pod"
    )
    narrator.wait_for(
        lambda: f"network {LATE.name}" in environment.try_container(pod), "its container is denied"
    )
    why, took_s = min((_refusal(environment, pod) for _ in range(_TRIES)), key=lambda each: each[1])
    narrator.request("kubelet", "CreateContainer")
    narrator.response(why)
    narrator.check(
        f"network {LATE.name} does not exist" in why and took_s < AT_ONCE_S,
        f"denied after {took_s * 1000:.0f} ms, with the reason for the pod's author",
    )
    cli_calls.show(narrator, guests, "guests", "--socket", str(environment.bridge.socket))
    code = _explain(narrator, environment, pod)
    narrator.check(code == 1, "it waits")
    narrator.note(f"({LATE.tenant} creates network {LATE.name})")
    environment.put_network(LATE, SERVER_IP)
    narrator.wait_for(lambda: not _is_blocked(environment, pod), "the start gate is open")
    narrator.check(environment.try_container(pod) == "", "its container is created")
    found = pod.app.lookup("db")
    _asked(narrator, pod, "db")
    narrator.response(", ".join(found.addresses) or found.error)
    narrator.check(found.addresses == (LATE.services["db"],), "and its own server answers its first query")


def node_resolver_unused(narrator: Narrator, environment: DnsEnvironment) -> None:
    narrator.step(
        f"In each pod's network a server listened at the address of the node's resolver, {NODE_RESOLVER}"
    )
    pods = list(environment.pods.values())
    counts = [(pod.shown, str(len(pod.holder.queried_names()))) for pod in pods]
    narrator.response("\n".join(columns([("POD", "QUERIES"), *counts])))
    narrator.check(all(count == "0" for _, count in counts), "no pod has ever queried the node's resolver")
    for pod in pods:
        (one,) = ask_all(("db",), RecordType.A, (NODE_RESOLVER,), f"/proc/{pod.holder.pid}/ns/net")
        answers = [record.value for record in one.answer.records] if one.answer is not None else []
        if answers != [NODE_ANSWER] or len(pod.holder.queried_names()) != 1:
            narrator.check(False, f"a query to it from {pod.shown} is observed")
    narrator.check(True, "a deliberate query to it is answered, and observed")


# ---- what the steps have in common


def _starts(narrator: Narrator, environment: DnsEnvironment, pod: DnsPod) -> None:
    """Claim that a pod's container is created: retried, as by the kubelet, until the gate allows it."""
    narrator.wait_for(lambda: not environment.try_container(pod), f"{pod.shown} runs")


def _asked(narrator: Narrator, pod: DnsPod, name: str) -> None:
    narrator.request(pod.shown, f"getaddrinfo {name}")


def _reads(narrator: Narrator, pod: DnsPod) -> None:
    narrator.request(pod.shown, f"cat {dns_guests.RESOLV_CONF}")
    narrator.response(pod.app.resolv_conf())


def _servers(text: str) -> Sequence[str]:
    return [line.split()[1] for line in text.splitlines() if line.startswith("nameserver ")]


def _refusal(environment: DnsEnvironment, pod: DnsPod) -> tuple[str, float]:
    """Why the pod's container is denied, and the seconds until the answer."""
    began_s = time.monotonic()
    why = environment.try_container(pod)
    return why, time.monotonic() - began_s


def _is_blocked(environment: DnsEnvironment, pod: DnsPod) -> bool:
    return any(each["id"] == pod.sandbox.id for each in environment.bridge.status()["startGate"]["blocked"])


def _explain(narrator: Narrator, environment: DnsEnvironment, pod: DnsPod, *more: str) -> int:
    key = environment.tenants[pod.network.tenant]
    narrator.request("operator", " ".join(("vcnode explain dns", pod.name, *more, "--tenant", key)))
    where = ("--socket", str(environment.dns.socket), "--bridge-status", str(environment.bridge.socket))
    code, text = cli_calls.run(explain_dns, explain_dns.VERB, pod.name, *more, "--tenant", key, *where)
    narrator.response(text)
    return code
