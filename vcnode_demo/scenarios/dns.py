# SPDX-License-Identifier: Apache-2.0
"""Act four: DNS. Two tenants with two networks each, all with the same addresses, and a server in each.

`play` is the whole act in order; each step is a function that stands by itself on an open stage.
"""

import time
from collections.abc import Sequence

from vcnode import explain_dns, guests
from vcnode.core.dns_message import RecordType
from vcnode.dns_query import ask_all
from vcnode.terminal import columns
from vcnode_demo import dns_guests
from vcnode_demo.cli_calls import said, verb
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
    DnsStage,
    Network,
    PodOnStage,
)
from vcnode_demo.environment import Stage
from vcnode_demo.narrator import DEADLINE_S, Story
from vcnode_demo.vpc import host_links, lacks

TITLE = "Act 4: DNS of each network"
# A refusal comes out of memory, after the tenth of a second that a new sandbox is given at most. The
# fastest of some counts: the machine may do other things.
AT_ONCE_S = 1.0
_TRIES = 3
_MOVED_DB = "10.0.0.36"
_NOTHING = "-"


def play(story: Story, stage: Stage) -> None:
    """All steps. Raises NotAsToldError at the first that is not as told."""
    why = lacks() or dns_guests.lacks()
    if why:
        story.left_out(TITLE, why)
        return
    story.act(TITLE)
    dns = stage.open_dns()
    same_addresses(story, dns)
    pods_start(story, dns)
    own_names(story, dns)
    why_so(story, dns)
    server_moves(story, dns)
    missing_network(story, dns)
    never_the_nodes(story, dns)


def same_addresses(story: Story, stage: DnsStage) -> None:
    story.step("Four networks with the same addresses, and a DNS server in each that knows its own")
    rows = [("TENANT", "NETWORK", "DNS SERVER", "POD", "ITS SERVICES")]
    for network in NETWORKS:
        stage.put_network(network, SERVER_IP)
        services = ", ".join(f"{name} {ip}" for name, ip in network.services.items())
        pod = f"{NAMESPACE}/{network.pod} {POD_IP}"
        rows.append((network.tenant, network.name, SERVER_IP, pod, services))
    story.came("\n".join(columns(rows)))
    ours, host = stage.vpcs.links(), host_links()
    story.check(
        not set(ours.values()) & set(host.values()),
        f"none of their {len(ours)} links is in the host's network",
    )


def pods_start(story: Story, stage: DnsStage) -> None:
    story.step("A pod in each: its container is created with a resolv.conf mounted over the image's")
    for network in NETWORKS:
        _starts(story, stage, stage.start_pod(network))
    for tenant in DOMAINS:
        pod = stage.pods[next(network for network in NETWORKS if network.tenant == tenant)]
        _reads(story, pod)
        text = pod.app.resolv_conf()
        story.check(
            _servers(text) == [SERVER_IP] and f"{NAMESPACE}.svc.{DOMAINS[tenant]}" in text,
            f"the server is its network's, and the search list is in {tenant}'s own domain",
        )


def own_names(story: Story, stage: DnsStage) -> None:
    story.step("Each pod asks for all names, with getaddrinfo: it finds its own network's, and no other's")
    names = list(dict.fromkeys(name for network in NETWORKS for name in network.services))
    rows = [("POD", *names)]
    found: dict[Network, dict[str, str]] = {}
    for network in NETWORKS:
        app = stage.pods[network].app
        answers = {name: app.lookup(name).addresses for name in names}
        found[network] = {name: ", ".join(each) for name, each in answers.items() if each}
        row = [found[network].get(name, _NOTHING) for name in names]
        rows.append((f"{stage.pods[network].shown} ({network.name})", *row))
    story.came("\n".join(columns(rows)))
    for network in NETWORKS:
        story.check(
            found[network] == dict(network.services),
            f"{stage.pods[network].shown} resolves {', '.join(network.services)}, and nobody else's",
        )
    _whole_names(story, stage)


def _whole_names(story: Story, stage: DnsStage) -> None:
    """By the whole name, too, another's Service is not there."""
    asks, has = NETWORKS[2], NETWORKS[0]
    name = next(name for name in has.names() if name.startswith("books."))
    found = stage.pods[asks].app.lookup(f"{name}.")
    _asked(story, stage.pods[asks], f"{name}.")
    story.came(found.error)
    story.check(not found.addresses, f"to {asks.tenant} {has.tenant}'s Services do not exist")


def why_so(story: Story, stage: DnsStage) -> None:
    story.step(
        "And why: the network, the server, the source of each value, and a question by the pod's own way"
    )
    code = _explain(story, stage, stage.pods[NETWORKS[1]], "db", "--query")
    story.check(code == 0, "it has its resolver, and its server has an answer")


def server_moves(story: Story, stage: DnsStage) -> None:
    moving = NETWORKS[3]
    pod, others = stage.pods[moving], [stage.pods[each] for each in NETWORKS if each is not moving]
    story.step(f"The DNS server of {moving.tenant}'s network {moving.name} moves to {NEW_SERVER_IP}")
    names = {name: _MOVED_DB if name.startswith("db.") else ip for name, ip in moving.names().items()}
    before = [each.app.resolv_conf() for each in others]
    pid = pod.app.pid
    server = stage.start_server(moving, NEW_SERVER_IP, names)
    began_s = time.monotonic()
    stage.put_network(moving, NEW_SERVER_IP)
    found = pod.app.follow("db", _MOVED_DB, DEADLINE_S)
    _asked(story, pod, "db")
    story.came(", ".join(found.addresses) or found.error)
    story.check(
        found.addresses == (_MOVED_DB,) and pod.app.pid == pid,
        f"{pod.shown} has its answer from there after {(found.at_s - began_s) * 1000:.0f} ms, "
        f"by the process that was running",
    )
    stage.servers[f"{moving.shown} {SERVER_IP}"].stop()
    story.check(pod.app.lookup("vault").addresses == ("10.0.0.44",), "the old server may go")
    story.check(len(server.asked()) > 0, "the new one was asked")
    _reads(story, pod)
    after = [each.app.resolv_conf() for each in others]
    story.check(after == before, "nobody else's resolv.conf has changed")


def missing_network(story: Story, stage: DnsStage) -> None:
    story.step(f"A pod of {LATE.tenant}'s is to be in network {LATE.name}, which is not there")
    pod = stage.start_pod(LATE)
    story.wait(lambda: bool(stage.said_of(pod).get("waits")), "dnsconfig knows the pod")
    story.wait(lambda: f"network {LATE.name}" in stage.try_container(pod), "its container is not created")
    why, took_s = min((_refusal(stage, pod) for _ in range(_TRIES)), key=lambda each: each[1])
    story.asked("kubelet", "CreateContainer")
    story.came(why)
    story.check(
        f"network {LATE.name} does not exist" in why and took_s < AT_ONCE_S,
        f"refused after {took_s * 1000:.0f} ms, and the pod's author reads why",
    )
    verb(story, guests, "guests", "--socket", str(stage.bridge.socket))
    code = _explain(story, stage, pod)
    story.check(code == 1, "it waits")
    story.say(f"({LATE.tenant} creates network {LATE.name})")
    stage.put_network(LATE, SERVER_IP)
    story.wait(lambda: not _is_held(stage, pod), "the gate is open")
    story.check(stage.try_container(pod) == "", "its container is created")
    found = pod.app.lookup("db")
    _asked(story, pod, "db")
    story.came(", ".join(found.addresses) or found.error)
    story.check(
        found.addresses == (LATE.services["db"],), "and its first question is answered by its own server"
    )


def never_the_nodes(story: Story, stage: DnsStage) -> None:
    story.step(
        f"In each pod's network somebody listened at the address of the node's resolver, {NODE_RESOLVER}"
    )
    pods = list(stage.pods.values())
    counts = [(pod.shown, str(len(pod.holder.asked()))) for pod in pods]
    story.came("\n".join(columns([("POD", "QUESTIONS"), *counts])))
    story.check(all(count == "0" for _, count in counts), "no pod has ever asked the node's resolver")
    for pod in pods:
        (one,) = ask_all(("db",), RecordType.A, (NODE_RESOLVER,), f"/proc/{pod.holder.pid}/ns/net")
        heard = [record.value for record in one.answer.records] if one.answer is not None else []
        if heard != [NODE_ANSWER] or len(pod.holder.asked()) != 1:
            story.check(False, f"who asks there from {pod.shown} is noticed")
    story.check(True, "who does it on purpose is answered there, and noticed")


# ---- what the steps have in common


def _starts(story: Story, stage: DnsStage, pod: PodOnStage) -> None:
    """Claim that a pod's container is created: as the kubelet does, it is tried until it is let in."""
    story.wait(lambda: not stage.try_container(pod), f"{pod.shown} runs")


def _asked(story: Story, pod: PodOnStage, name: str) -> None:
    story.asked(pod.shown, f"getaddrinfo {name}")


def _reads(story: Story, pod: PodOnStage) -> None:
    story.asked(pod.shown, f"cat {dns_guests.RESOLV_CONF}")
    story.came(pod.app.resolv_conf())


def _servers(text: str) -> Sequence[str]:
    return [line.split()[1] for line in text.splitlines() if line.startswith("nameserver ")]


def _refusal(stage: DnsStage, pod: PodOnStage) -> tuple[str, float]:
    """Why the pod's container may not be created, and after how many seconds that was said."""
    began_s = time.monotonic()
    why = stage.try_container(pod)
    return why, time.monotonic() - began_s


def _is_held(stage: DnsStage, pod: PodOnStage) -> bool:
    return any(each["id"] == pod.sandbox.id for each in stage.bridge.status()["startGate"]["blocked"])


def _explain(story: Story, stage: DnsStage, pod: PodOnStage, *more: str) -> int:
    key = stage.tenants[pod.network.tenant]
    story.asked("operator", " ".join(("vcnode explain dns", pod.name, *more, "--tenant", key)))
    where = ("--socket", str(stage.dns.socket), "--bridge-status", str(stage.bridge.socket))
    code, text = said(explain_dns, explain_dns.VERB, pod.name, *more, "--tenant", key, *where)
    story.came(text)
    return code
