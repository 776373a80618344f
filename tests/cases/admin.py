# SPDX-License-Identifier: Apache-2.0
"""Parses the sentences of admin steps and runs them on an environment."""

import re
import signal
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tests.cases.environment import AgentEnvironment

AdminAction = Callable[[AgentEnvironment], None]

_CLAUSES = re.compile(r"\s*(?:[,;.]|\bthen\b|\band\b(?! its))\s+")
_NAME = r"(?P<name>[\w.-]+)"


class AdminError(Exception):
    """The harness does not know this sentence."""


@dataclass(frozen=True, slots=True)
class _Rule:
    pattern: re.Pattern[str]
    make: Callable[[re.Match[str]], AdminAction]


def parse_admin(sentence: str) -> list[AdminAction]:
    """The actions of one sentence, in order. Raises AdminError."""
    clauses = _CLAUSES.split(sentence.strip().rstrip("."))
    return [_parse_clause(clause, sentence) for clause in clauses if clause]


def run_admin(environment: AgentEnvironment, actions: Iterable[AdminAction]) -> None:
    """Run the actions of one sentence; publish the pods once if they changed."""
    before = environment.fixtures.pods
    for action in actions:
        action(environment)
    if environment.fixtures.pods is not before:
        environment.push_pods()


def _parse_clause(clause: str, sentence: str) -> AdminAction:
    for rule in _RULES:
        match = rule.pattern.fullmatch(clause.strip())
        if match is not None:
            return rule.make(match)
    raise AdminError(f"harness does not know {clause!r} of the admin step {sentence!r}")


def _rule(pattern: str, make: Callable[[re.Match[str]], AdminAction]) -> _Rule:
    return _Rule(re.compile(pattern, re.IGNORECASE), make)


def _delete_pod(match: re.Match[str]) -> AdminAction:
    def run(environment: AgentEnvironment) -> None:
        uid = match["name"]
        for pod in environment.fixtures.pods:
            if uid in (pod.super_uid, pod.uid, pod.name, f"{pod.super_namespace}/{pod.name}"):
                environment.fixtures.delete_pod(pod.super_uid)
                return
        raise AdminError(f"no pod {uid!r} to delete")

    return run


def _create_pod(match: re.Match[str]) -> AdminAction:
    def run(environment: AgentEnvironment) -> None:
        like = environment.fixtures.last_deleted
        if like is None:
            raise AdminError("no pod was deleted that this one could be the same as")
        owner = match["owner"] or ""
        uid = match["name"] or like.super_uid
        is_same = owner.casefold() in ("", "the same tenant", "same tenant")
        tenant = like.tenant if is_same else owner
        if owner.casefold() in ("nobody", "no tenant", "no one", "the host"):
            tenant = None
        elif not is_same and owner not in environment.fixtures.tenants:
            raise AdminError(f"harness does not know the owner {owner!r}")
        environment.fixtures.add_pod(like, super_uid=uid, tenant=tenant)

    return run


def _on(method: Callable[[AgentEnvironment, str], None]) -> Callable[[re.Match[str]], AdminAction]:
    return lambda match: lambda environment: method(environment, match["name"])


def _plain(method: Callable[[AgentEnvironment], None]) -> Callable[[re.Match[str]], AdminAction]:
    return lambda _: method


def _kubelet_certificate(match: re.Match[str]) -> AdminAction:
    words = match["kind"].casefold().replace(" ", "-") if match["kind"] else "good"
    kind = {"self-signed": "self-signed", "rogue": "rogue", "wrong-name": "wrong-name"}.get(words)
    if kind is None:
        kind = "rogue" if "ca" in words.split("-") else "good"
    return lambda environment: environment.kubelet_certificate(kind)


def _remove_tenant(environment: AgentEnvironment, key: str) -> None:
    if key not in environment.fixtures.tenants:
        raise AdminError(f"no tenant {key!r}")
    environment.remove_tenant(key)


_REMOVE = r"(?:delete|remove|deregister|unregister|offboard|drop)s?"
_TAKE_OFF = r"(?:de-?register|unregister|revoke|remove|delete|take off|drop)s?"
_OTHER_CERTIFICATE = (
    r"(?:its |an? |another |the )?(?:new |other )?(?:(?P<kind>self-signed|rogue|wrong name|other CA) )?"
    r"(?:serving )?(?:cert|certificate)(?: .*)?"
)
_RULES = (
    _rule(rf"{_REMOVE} (?:the )?(?:super )?pod {_NAME}(?: from the node)?", _delete_pod),
    _rule(
        r"(?:re-?)?creates? (?:it|(?:the )?same (?:super_ns/pod|super pod|pod|name)|pod of the same name)"
        r"(?: again)?(?: with (?:super_uid|uid|super uid) (?P<name>[\w.-]+))?"
        r"(?: (?:owned by|for|of|in) (?P<owner>[\w -]+))?",
        _create_pod,
    ),
    _rule(
        rf"{_TAKE_OFF} (?:the )?(?:leaf|certificate|client|spki) {_NAME}(?: .*)?",
        _on(AgentEnvironment.deregister),
    ),
    _rule(r"(?:de-?register|unregister|revoke)s? (?P<name>leaf_\w+)", _on(AgentEnvironment.deregister)),
    _rule(r"take (?P<name>leaf_\w+) off the list", _on(AgentEnvironment.deregister)),
    _rule(rf"{_REMOVE} (?:the )?tenant {_NAME}", _on(_remove_tenant)),
    _rule(rf"{_REMOVE} (?P<name>ten-[\w-]+)", _on(_remove_tenant)),
    _rule(r"(?:the )?tenant (?P<name>[\w.-]+) is (?:removed|deleted)", _on(_remove_tenant)),
    _rule(
        r"(?:add|register|restore|re-?add)s? (?:the )?tenant (?P<name>[\w.-]+)(?: again| back)?",
        _on(AgentEnvironment.add_tenant),
    ),
    _rule(r"(?:add|register)s? (?:the )?(?:leaf )?(?P<name>leaf_\w+)", _on(AgentEnvironment.register)),
    _rule(
        r"(?:break|corrupt|garble)s? (?:the )?(?:tenant )?(?:file )?(?:of )?(?:tenant )?(?P<name>ten-[\w-]+)",
        _on(AgentEnvironment.break_tenant_file),
    ),
    _rule(
        r"(?:restart|bounce)s? (?:the )?kubelet|(?:the )?kubelet (?:is restarted|restarts)",
        _plain(lambda s: s.kubelet_certificate("good")),
    ),
    _rule(
        r"stops? (?:the )?kubelet|(?:the )?kubelet (?:goes away|goes down|is down|stops)",
        _plain(AgentEnvironment.kubelet_down),
    ),
    _rule(
        rf"(?:the )?kubelet (?:changes|rotates|renews|gets|presents|shows) {_OTHER_CERTIFICATE}",
        _kubelet_certificate,
    ),
    _rule(
        rf"(?:change|rotate|renew|replace)s? (?:the )?kubelet(?:'s)? {_OTHER_CERTIFICATE}",
        _kubelet_certificate,
    ),
    _rule(
        r"(?:SIGHUP|reload|send(?:s)? SIGHUP)(?: (?:the )?(?:agent|config|configuration))?",
        _plain(AgentEnvironment.reload_signal),
    ),
    _rule(
        r"(?:SIGTERM|drain|send(?:s)? SIGTERM)(?: (?:the )?agent)?",
        _plain(lambda s: s.daemon.signal(signal.SIGTERM)),
    ),
)
