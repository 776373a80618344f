# SPDX-License-Identifier: Apache-2.0
"""Act three: Services inside guests. Two tenants with the same addresses; rules that come, follow and
come back.

`play` is the whole act in order; each step is a function that stands by itself on an open stage.
"""

import json
import time

from vcnode import explain, guests
from vcnode.terminal import columns
from vcnode_demo.cli_calls import said, verb
from vcnode_demo.environment import Stage
from vcnode_demo.guest import Answer
from vcnode_demo.narrator import DEADLINE_S, Story
from vcnode_demo.services_environment import (
    FRONT,
    SHOP_PORT,
    SHOPS,
    SUPER_IPS,
    TENANTS_IP,
    ServicesStage,
    TenantsVpc,
)
from vcnode_demo.vpc import has_program, host_links, lacks

TITLE = "Act 3: Services inside guests"
# A reset or an ICMP error comes within a millisecond; what is dropped takes seconds.
AT_ONCE_S = 0.5
REQUESTS = 24
# An agent looks for drift every two seconds or so, which may be just now: then the stranger comes again.
_FLUSHES = 5
IMPATIENT_S = 0.1


def play(story: Story, stage: Stage) -> None:
    """All steps. Raises NotAsToldError at the first that is not as told."""
    why = lacks()
    if why:
        story.left_out(TITLE, why)
        return
    story.act(TITLE)
    services = stage.open_services()
    same_addresses(story, services)
    no_service(story, services)
    created(story, services)
    same_service(story, services)
    both_addresses(story, services)
    wrong_port(story, services)
    endpoint_goes(story, services)
    stranger(story, services)
    bridge_killed(story, services)


def same_addresses(story: Story, stage: ServicesStage) -> None:
    story.step("Two VPCs with the same addresses, which the host's network stack never sees")
    rows = [("VPC", "web/front", *(f"web/{name}" for name in SHOPS))]
    rows += [(tenant, FRONT, *SHOPS.values()) for tenant in stage.tenants]
    story.came("\n".join(columns(rows)))
    host, ours = host_links(), stage.vpcs.links()
    story.check(
        not set(ours.values()) & set(host.values()),
        f"none of their {len(ours)} links is in the host's network",
    )
    for tenant, vpc in stage.tenants.items():
        answer = _get(story, vpc, SHOPS["shop-1"], SHOP_PORT)
        story.check(answer.body == f"{tenant}'s shop-1", "it is its own VPC's")


def no_service(story: Story, stage: ServicesStage) -> None:
    story.step("No Service yet: the guests have their rules, and the service ranges refuse at once")
    story.wait(lambda: _has_rules(stage), "both guests' agents are attached, and their rules are in")
    verb(story, guests, "guests", "--socket", str(stage.bridge.socket))
    answer = _get(story, stage.tenants["acme"], TENANTS_IP, 80)
    story.check(_is_refused(answer), f"refused at once, after {answer.ms}")


def created(story: Story, stage: ServicesStage) -> None:
    story.step("acme creates Service web/shop with two endpoints")
    acme = stage.tenants["acme"]
    story.say(f"(its cluster IP is {TENANTS_IP} to acme, {SUPER_IPS['acme']} in the super cluster)")
    _live(story, stage, "acme", ("shop-1", "shop-2"))
    _reaches(story, acme, TENANTS_IP, ("shop-1", "shop-2"))


def same_service(story: Story, stage: ServicesStage) -> None:
    story.step(f"globex has a web/shop too, with the same cluster IP {TENANTS_IP}, and one endpoint")
    acme, globex = stage.tenants["acme"], stage.tenants["globex"]
    _live(story, stage, "globex", ("shop-1",))
    _reaches(story, globex, TENANTS_IP, ("shop-1",))
    _reaches(story, acme, TENANTS_IP, ("shop-1", "shop-2"))
    answer = _get(story, globex, SUPER_IPS["acme"], 80)
    story.check(_is_refused(answer), "to globex, acme's address in the super cluster is nobody's")
    rules = _rules(globex)
    story.check(SUPER_IPS["globex"] in rules, "globex's Service is in the rules of its guest")
    story.check(
        SUPER_IPS["acme"] not in rules and SHOPS["shop-2"] not in rules, "no word of acme's Service is there"
    )


def both_addresses(story: Story, stage: ServicesStage) -> None:
    story.step("A Service has two cluster IPs, the tenant's own and the super cluster's: both work")
    for tenant, vpc in stage.tenants.items():
        answer = _get(story, vpc, SUPER_IPS[tenant], 80)
        story.check(
            answer.body.startswith(f"{tenant}'s shop-"), f"the super cluster's reaches {tenant}'s shop"
        )
    code = _explain(story, stage, "acme", f"{TENANTS_IP}:80")
    story.check(code == 0, "and why: the model, the guest's own rules, and that they agree")


def wrong_port(story: Story, stage: ServicesStage) -> None:
    story.step("A wrong port")
    answer = _get(story, stage.tenants["acme"], TENANTS_IP, 81)
    story.check(_is_refused(answer), f"refused at once, after {answer.ms}: nobody waits for a time-out")
    code = _explain(story, stage, "acme", f"{TENANTS_IP}:81")
    story.check(code == 0, "it should be refused, it is, and the right port is named")


def endpoint_goes(story: Story, stage: ServicesStage) -> None:
    story.step("acme's shop-2 goes while requests come in")
    acme = stage.tenants["acme"]
    with acme.front.leave(TENANTS_IP, 80, "shop-2", DEADLINE_S) as found:
        began_s = time.monotonic()
        stage.put_endpoints("acme", ("shop-1",))
    (leaving,) = found
    acme.shops["shop-2"].stop()
    last_ms = max(0.0, leaving.last_s - began_s) * 1000
    story.say(f"({leaving.answers} requests, one after another)")
    story.check(
        leaving.has_left, f"it answered for the last time {last_ms:.0f} ms after it was gone from the Service"
    )
    story.check(leaving.errors == 0, "not one request failed")
    _reaches(story, acme, TENANTS_IP, ("shop-1",))


def stranger(story: Story, stage: ServicesStage) -> None:
    story.step("A stranger in acme's guest flushes its rules")
    acme = stage.tenants["acme"]
    flush = _flush(stage, acme)
    if not has_program(flush[0]):
        story.say(f"(left out: there is no {flush[0]} here to flush them with)")
        return
    for _ in range(_FLUSHES):
        acme.front.run(*flush)
        flushed_s = time.monotonic()
        code, text = said(explain, "explain", *_explain_arguments(stage, "acme", f"{TENANTS_IP}:80"))
        answer = acme.front.get(TENANTS_IP, 80, IMPATIENT_S)
        if answer.error and code == 1 and "drifted" in text:
            break
        _healed(acme)  # it was repaired before anybody could look
    story.asked("stranger", " ".join(flush))
    _told(story, acme, TENANTS_IP, 80, answer)
    story.check(bool(answer.error), "the Service is gone from the guest")
    story.asked("operator", f"vcnode explain web/front {TENANTS_IP}:80 --tenant {acme.key}")
    story.came(text)
    story.check("drifted" in text, "the model says where it should go, and that the guest's rules drifted")
    back = _healed(acme)
    ms = (back.at_s - flushed_s) * 1000
    story.check(not back.error, f"{ms:.0f} ms after the flush the rules were back, without anybody's help")
    _reaches(story, acme, TENANTS_IP, ("shop-1",))
    story.wait(lambda: _has_rules(stage), "and kata-bridge knows it")
    repairs = stage.bridge.metric("vcnode_katabridge_drift_repairs_total")
    story.check(repairs >= 1, "the repair is counted")


def bridge_killed(story: Story, stage: ServicesStage) -> None:
    story.step("kata-bridge is killed with kill -9 and started again")
    stage.bridge.kill()
    for vpc in stage.tenants.values():
        _reaches(story, vpc, TENANTS_IP, ("shop-1",))
    stage.bridge.start()
    story.wait(lambda: _has_rules(stage), "the guests' agents are back and say what they hold")
    pushes = sum(
        float(line.rpartition(" ")[2])
        for line in stage.bridge.metrics()
        if line.startswith("vcnode_pushes_total{")
    )
    story.check(pushes == 0, "it is what they should hold: nothing was applied again")
    verb(story, guests, "guests", "--socket", str(stage.bridge.socket))


# ---- what the steps have in common


def _get(story: Story, vpc: TenantsVpc, address: str, port: int) -> Answer:
    answer = vpc.front.get(address, port)
    _told(story, vpc, address, port, answer)
    return answer


def _told(story: Story, vpc: TenantsVpc, address: str, port: int, answer: Answer) -> None:
    story.asked(f"{vpc.tenant}'s front", f"GET http://{address}:{port}/")
    story.came(answer.body or f"{address}:{port}: {answer.error}")


def _is_refused(answer: Answer) -> bool:
    return answer.error == "Connection refused" and answer.took_s < AT_ONCE_S


def _reaches(story: Story, vpc: TenantsVpc, address: str, shops: tuple[str, ...]) -> None:
    """Claim that requests reach each of these pods of the tenant, and nobody else."""
    story.asked(f"{vpc.tenant}'s front", f"GET http://{address}:80/   ({REQUESTS} times)")
    answers = [vpc.front.get(address, 80) for _ in range(REQUESTS)]
    bodies = [answer.body or answer.error for answer in answers]
    counts = {body: bodies.count(body) for body in sorted(set(bodies))}
    story.came(", ".join(f"{body}: {count}" for body, count in counts.items()))
    wanted = {f"{vpc.tenant}'s {shop}" for shop in shops}
    each = "each of its two endpoints" if len(shops) > 1 else "its one endpoint"
    story.check(counts.keys() == wanted, f"{vpc.tenant}'s guest reaches {each}, and nobody else's")


def _live(story: Story, stage: ServicesStage, tenant: str, shops: tuple[str, ...]) -> None:
    """Create a Service, and claim that it answers in the tenant's guest; say how soon."""
    with stage.tenants[tenant].front.until(TENANTS_IP, 80, tenant, DEADLINE_S) as found:
        began_s = time.monotonic()
        stage.put_service(tenant, shops)
    (answer,) = found
    ms = (answer.at_s - began_s) * 1000
    story.check(not answer.error, f"its rules were live in {tenant}'s guest after {ms:.0f} ms")


def _healed(vpc: TenantsVpc) -> Answer:
    with vpc.front.until(TENANTS_IP, 80, vpc.tenant, DEADLINE_S) as found:
        pass
    return found[0]


def _has_rules(stage: ServicesStage) -> bool:
    """Whether each guest has the rules that kubeproxy-ext wants for it, and kata-bridge knows."""
    held = {guest["id"]: guest for guest in stage.bridge.status()["guests"]}
    wanted = {guest["id"]: guest["desiredDigest"] for guest in stage.proxy.status()["guests"]}
    return all(
        held.get(vpc.sandbox, {}).get("state") == "current"
        and held[vpc.sandbox]["digest"] == wanted.get(vpc.sandbox)
        for vpc in stage.tenants.values()
    )


def _backend(stage: ServicesStage, vpc: TenantsVpc) -> str:
    """The packet filter that the guest's rules are in."""
    _, text = said(explain, "explain", *_explain_arguments(stage, vpc.tenant, f"{TENANTS_IP}:80"), "--json")
    steps = " ".join(json.loads(text)["actual"]["steps"])
    return "nft" if "vcnode nat-output" in steps else "iptables"


def _flush(stage: ServicesStage, vpc: TenantsVpc) -> tuple[str, ...]:
    """What a stranger does who wants no rules in the guest."""
    if _backend(stage, vpc) == "nft":
        return ("nft", "flush", "ruleset")
    return ("iptables", "-t", "nat", "-F")


def _rules(vpc: TenantsVpc) -> str:
    """All rules in a guest's network, of whatever packet filter."""
    programs = (("nft", "list", "ruleset"), ("iptables-save",), ("iptables-legacy-save",))
    return "\n".join(vpc.front.run(*program) for program in programs if has_program(program[0]))


def _explain(story: Story, stage: ServicesStage, tenant: str, to: str) -> int:
    story.asked("operator", f"vcnode explain web/front {to} --tenant {stage.tenants[tenant].key}")
    code, text = said(explain, "explain", *_explain_arguments(stage, tenant, to))
    story.came(text)
    return code


def _explain_arguments(stage: ServicesStage, tenant: str, to: str) -> tuple[str, ...]:
    where = ("--socket", str(stage.proxy.socket), "--bridge", str(stage.bridge_socket))
    return ("web/front", to, "--tenant", stage.tenants[tenant].key, *where)
