# SPDX-License-Identifier: Apache-2.0
"""Scenario 3: Services inside guests. Two tenants have the same addresses; rules are applied, updated and
restored.

`run` has all steps. Each step is a function that needs only an open environment.
"""

import json
import time

from vcnode import explain, guests
from vcnode.terminal import columns
from vcnode_demo import cli_calls
from vcnode_demo.environment import Environment
from vcnode_demo.guest import GuestHttpResult
from vcnode_demo.narrator import DEADLINE_S, Narrator
from vcnode_demo.services_environment import (
    FRONT,
    SHOP_PORT,
    SHOPS,
    SUPER_IPS,
    TENANTS_IP,
    ServicesEnvironment,
    TenantPods,
)
from vcnode_demo.vpc import has_program, host_links, missing_requirement

TITLE = "Scenario 3: Services inside guests"
# A reset or an ICMP error arrives within a millisecond; a dropped packet takes seconds.
AT_ONCE_S = 0.5
REQUESTS = 24
# An agent checks for drift about every two seconds. After a repair at that moment, rules are flushed again.
_FLUSHES = 5
SHORT_TIMEOUT_S = 0.1


def run(narrator: Narrator, environment: Environment) -> None:
    """All steps, in order. Raises CheckFailedError."""
    why = missing_requirement()
    if why:
        narrator.skipped(TITLE, why)
        return
    narrator.begin_scenario(TITLE)
    services = environment.open_services()
    same_addresses(narrator, services)
    no_service(narrator, services)
    created(narrator, services)
    same_service(narrator, services)
    both_addresses(narrator, services)
    wrong_port(narrator, services)
    endpoint_removed(narrator, services)
    foreign_flush(narrator, services)
    bridge_killed(narrator, services)


def same_addresses(narrator: Narrator, environment: ServicesEnvironment) -> None:
    narrator.step("Two VPCs with the same addresses, which the host's network stack never sees")
    rows = [("VPC", "web/front", *(f"web/{name}" for name in SHOPS))]
    rows += [(tenant, FRONT, *SHOPS.values()) for tenant in environment.tenants]
    narrator.response("\n".join(columns(rows)))
    host, ours = host_links(), environment.vpcs.links()
    narrator.check(
        not set(ours.values()) & set(host.values()),
        f"none of their {len(ours)} links is in the host's network",
    )
    for tenant, vpc in environment.tenants.items():
        answer = _get(narrator, vpc, SHOPS["shop-1"], SHOP_PORT)
        narrator.check(answer.body == f"{tenant}'s shop-1", "it is its own VPC's")


def no_service(narrator: Narrator, environment: ServicesEnvironment) -> None:
    narrator.step("No Service yet: the guests have their rules, and the service ranges refuse at once")
    narrator.wait_for(
        lambda: _has_rules(environment), "both guests' agents are attached, and their rules are applied"
    )
    cli_calls.show(narrator, guests, "guests", "--socket", str(environment.bridge.socket))
    answer = _get(narrator, environment.tenants["acme"], TENANTS_IP, 80)
    narrator.check(_is_refused(answer), f"refused at once, after {answer.ms}")


def created(narrator: Narrator, environment: ServicesEnvironment) -> None:
    narrator.step("acme creates Service web/shop with two endpoints")
    acme = environment.tenants["acme"]
    narrator.note(f"(its cluster IP is {TENANTS_IP} to acme, {SUPER_IPS['acme']} in the super cluster)")
    _live(narrator, environment, "acme", ("shop-1", "shop-2"))
    _reaches(narrator, acme, TENANTS_IP, ("shop-1", "shop-2"))


def same_service(narrator: Narrator, environment: ServicesEnvironment) -> None:
    narrator.step(f"globex has a web/shop too, with the same cluster IP {TENANTS_IP}, and one endpoint")
    acme, globex = environment.tenants["acme"], environment.tenants["globex"]
    _live(narrator, environment, "globex", ("shop-1",))
    _reaches(narrator, globex, TENANTS_IP, ("shop-1",))
    _reaches(narrator, acme, TENANTS_IP, ("shop-1", "shop-2"))
    answer = _get(narrator, globex, SUPER_IPS["acme"], 80)
    narrator.check(_is_refused(answer), "acme's address in the super cluster is refused for globex")
    rules = _rules(globex)
    narrator.check(SUPER_IPS["globex"] in rules, "globex's Service is in the rules of its guest")
    narrator.check(
        SUPER_IPS["acme"] not in rules and SHOPS["shop-2"] not in rules, "acme's Service is absent from them"
    )


def both_addresses(narrator: Narrator, environment: ServicesEnvironment) -> None:
    narrator.step("A Service has two cluster IPs, the tenant's own and the super cluster's: both work")
    for tenant, vpc in environment.tenants.items():
        answer = _get(narrator, vpc, SUPER_IPS[tenant], 80)
        narrator.check(
            answer.body.startswith(f"{tenant}'s shop-"), f"the super cluster's reaches {tenant}'s shop"
        )
    code = _explain(narrator, environment, "acme", f"{TENANTS_IP}:80")
    narrator.check(code == 0, "and why: the model, the guest's own rules, and that they agree")


def wrong_port(narrator: Narrator, environment: ServicesEnvironment) -> None:
    narrator.step("A wrong port")
    answer = _get(narrator, environment.tenants["acme"], TENANTS_IP, 81)
    narrator.check(_is_refused(answer), f"refused at once, after {answer.ms}, without waiting for a time-out")
    code = _explain(narrator, environment, "acme", f"{TENANTS_IP}:81")
    narrator.check(code == 0, "expected and actual outcome agree, and the right port is named")


def endpoint_removed(narrator: Narrator, environment: ServicesEnvironment) -> None:
    narrator.step("acme's shop-2 leaves the Service while requests arrive")
    acme = environment.tenants["acme"]
    with acme.front.leave(TENANTS_IP, 80, "shop-2", DEADLINE_S) as found:
        began_s = time.monotonic()
        environment.put_endpoints("acme", ("shop-1",))
    (leaving,) = found
    acme.shops["shop-2"].stop()
    last_ms = max(0.0, leaving.last_s - began_s) * 1000
    narrator.note(f"({leaving.answers} requests, one after another)")
    narrator.check(
        leaving.has_left, f"it answered for the last time {last_ms:.0f} ms after its removal from the Service"
    )
    narrator.check(leaving.errors == 0, "not one request failed")
    _reaches(narrator, acme, TENANTS_IP, ("shop-1",))


def foreign_flush(narrator: Narrator, environment: ServicesEnvironment) -> None:
    narrator.step("Another program in acme's guest flushes its rules")
    acme = environment.tenants["acme"]
    flush = _flush(environment, acme)
    if not has_program(flush[0]):
        narrator.note(f"(left out: {flush[0]} is missing, which flushes them)")
        return
    for _ in range(_FLUSHES):
        acme.front.run(*flush)
        flushed_s = time.monotonic()
        code, text = cli_calls.run(
            explain, "explain", *_explain_arguments(environment, "acme", f"{TENANTS_IP}:80")
        )
        answer = acme.front.get(TENANTS_IP, 80, SHORT_TIMEOUT_S)
        if answer.error and code == 1 and "drifted" in text:
            break
        _healed(acme)  # the agent repaired it too soon
    narrator.request("root in the guest", " ".join(flush))
    _show_answer(narrator, acme, TENANTS_IP, 80, answer)
    narrator.check(bool(answer.error), "the Service is gone from the guest")
    narrator.request("operator", f"vcnode explain web/front {TENANTS_IP}:80 --tenant {acme.key}")
    narrator.response(text)
    narrator.check(
        "drifted" in text, "the model has the expected destination, and the guest's rules have drifted"
    )
    back = _healed(acme)
    ms = (back.at_s - flushed_s) * 1000
    narrator.check(
        not back.error, f"{ms:.0f} ms after the flush the rules were applied again, without an operator"
    )
    _reaches(narrator, acme, TENANTS_IP, ("shop-1",))
    narrator.wait_for(lambda: _has_rules(environment), "kata-bridge has observed it")
    repairs = environment.bridge.metric("vcnode_katabridge_drift_repairs_total")
    narrator.check(repairs >= 1, "the repair is counted")


def bridge_killed(narrator: Narrator, environment: ServicesEnvironment) -> None:
    narrator.step("kata-bridge is killed with kill -9 and started again")
    environment.bridge.kill()
    for vpc in environment.tenants.values():
        _reaches(narrator, vpc, TENANTS_IP, ("shop-1",))
    environment.bridge.start()
    narrator.wait_for(
        lambda: _has_rules(environment), "the guests' agents are attached again and report their rules"
    )
    pushes = environment.bridge.metric("vcnode_katabridge_pushes_total")
    narrator.check(pushes == 0, "these are the desired rules: kata-bridge applied none again")
    cli_calls.show(narrator, guests, "guests", "--socket", str(environment.bridge.socket))


# ---- what the steps have in common


def _get(narrator: Narrator, vpc: TenantPods, address: str, port: int) -> GuestHttpResult:
    answer = vpc.front.get(address, port)
    _show_answer(narrator, vpc, address, port, answer)
    return answer


def _show_answer(
    narrator: Narrator, vpc: TenantPods, address: str, port: int, answer: GuestHttpResult
) -> None:
    narrator.request(f"{vpc.tenant}'s front", f"GET http://{address}:{port}/")
    narrator.response(answer.body or f"{address}:{port}: {answer.error}")


def _is_refused(answer: GuestHttpResult) -> bool:
    return answer.error == "Connection refused" and answer.took_s < AT_ONCE_S


def _reaches(narrator: Narrator, vpc: TenantPods, address: str, shops: tuple[str, ...]) -> None:
    """Claim that requests reach each of these pods of the tenant, and no other."""
    narrator.request(f"{vpc.tenant}'s front", f"GET http://{address}:80/   ({REQUESTS} times)")
    answers = [vpc.front.get(address, 80) for _ in range(REQUESTS)]
    bodies = [answer.body or answer.error for answer in answers]
    counts = {body: bodies.count(body) for body in sorted(set(bodies))}
    narrator.response(", ".join(f"{body}: {count}" for body, count in counts.items()))
    wanted = {f"{vpc.tenant}'s {shop}" for shop in shops}
    each = "each of its two endpoints" if len(shops) > 1 else "its one endpoint"
    narrator.check(counts.keys() == wanted, f"{vpc.tenant}'s guest reaches {each} and no other pod")


def _live(narrator: Narrator, environment: ServicesEnvironment, tenant: str, shops: tuple[str, ...]) -> None:
    """Create a Service, and claim that it answers in the tenant's guest, with the delay."""
    with environment.tenants[tenant].front.until(TENANTS_IP, 80, tenant, DEADLINE_S) as found:
        began_s = time.monotonic()
        environment.put_service(tenant, shops)
    (answer,) = found
    ms = (answer.at_s - began_s) * 1000
    narrator.check(not answer.error, f"its rules were live in {tenant}'s guest after {ms:.0f} ms")


def _healed(vpc: TenantPods) -> GuestHttpResult:
    with vpc.front.until(TENANTS_IP, 80, vpc.tenant, DEADLINE_S) as found:
        pass
    return found[0]


def _has_rules(environment: ServicesEnvironment) -> bool:
    """Whether kata-bridge reports the desired rules of kubeproxy-ext for each guest."""
    applied = {guest["id"]: guest for guest in environment.bridge.status()["guests"]}
    desired = {guest["id"]: guest["desiredDigest"] for guest in environment.proxy.status()["guests"]}
    return all(
        applied.get(vpc.sandbox, {}).get("state") == "current"
        and applied[vpc.sandbox]["digest"] == desired.get(vpc.sandbox)
        for vpc in environment.tenants.values()
    )


def _backend(environment: ServicesEnvironment, vpc: TenantPods) -> str:
    """The packet filter with the guest's rules."""
    _, text = cli_calls.run(
        explain, "explain", *_explain_arguments(environment, vpc.tenant, f"{TENANTS_IP}:80"), "-o", "json"
    )
    steps = " ".join(json.loads(text)["actual"]["steps"])
    return "nft" if "vcnode nat-output" in steps else "iptables"


def _flush(environment: ServicesEnvironment, vpc: TenantPods) -> tuple[str, ...]:
    """The command that deletes all rules in the guest."""
    if _backend(environment, vpc) == "nft":
        return ("nft", "flush", "ruleset")
    return ("iptables", "-t", "nat", "-F")


def _rules(vpc: TenantPods) -> str:
    """All rules in a guest's network, of each packet filter."""
    programs = (("nft", "list", "ruleset"), ("iptables-save",), ("iptables-legacy-save",))
    return "\n".join(vpc.front.run(*program) for program in programs if has_program(program[0]))


def _explain(narrator: Narrator, environment: ServicesEnvironment, tenant: str, to: str) -> int:
    narrator.request("operator", f"vcnode explain web/front {to} --tenant {environment.tenants[tenant].key}")
    code, text = cli_calls.run(explain, "explain", *_explain_arguments(environment, tenant, to))
    narrator.response(text)
    return code


def _explain_arguments(environment: ServicesEnvironment, tenant: str, to: str) -> tuple[str, ...]:
    where = ("--socket", str(environment.proxy.socket), "--bridge", str(environment.bridge_socket))
    return ("web/front", to, "--tenant", environment.tenants[tenant].key, *where)
