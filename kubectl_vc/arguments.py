# SPDX-License-Identifier: Apache-2.0
"""The command line. kubectl refuses flags before the plugin's name: its own may stand anywhere behind it."""

import argparse
import re
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from daemonkit.version import VERSION
from kubectl_vc.core.command import (
    CREATE_TIMEOUT_S,
    CREDENTIAL,
    DEFAULT_TIMEOUT_S,
    WHAT_ROTATES,
    Command,
    Scope,
)
from kubectl_vc.core.completion import VerbWords
from tenancy import keys

PROGRAM = "kubectl vc"
_DURATION = re.compile(r"(?:(\d{1,6})h)?(?:(\d{1,6})m)?(?:(\d{1,6})s?)?")
_TENANT = "the VirtualCluster"
_REVOCABLE = " or ".join(keys.REVOCABLE)
_Add = Callable[[argparse.ArgumentParser], None]


def parse(words: Sequence[str]) -> Command:
    """Raises SystemExit for wrong usage (2) and --help (0), when it has printed which."""
    words = _without_values(words)
    verb = _verb_of(words)
    if verb is None:
        top = parser()
        if not words:
            top.print_help()
            raise SystemExit(2)
        top.parse_args(words)
        raise AssertionError("argparse accepted a command line without a verb")
    chosen = _verb_parser(argparse.ArgumentParser(prog=f"{PROGRAM} {verb}", **_settings(verb)), verb)
    at = words.index(verb)
    found = chosen.parse_intermixed_args([*words[:at], *words[at + 1 :]])
    if verb == "upgrade" and bool(found.cluster_version) == found.can_confirm:
        chosen.error("name a ClusterVersion to upgrade to, or --confirm the upgrade before")
    if verb == "rotate" and found.can_revoke and not set(found.names) <= set(keys.REVOCABLE):
        chosen.error(f"--revoke is for {_REVOCABLE}: nothing that others signed outlives another rotation")
    return _command(verb, found)


def parser() -> argparse.ArgumentParser:
    """All verbs, for help, man pages and shells."""
    top = argparse.ArgumentParser(
        prog=PROGRAM,
        description="Tenants' control planes, from the super cluster's side.",
        epilog="Flags may stand anywhere. Those of kubectl, as --context and --as, choose the super cluster.",
        allow_abbrev=False,
    )
    top.add_argument("--version", action="version", version=f"kubectl-vc {VERSION}")
    added = top.add_subparsers(metavar="VERB", required=True)
    for verb in VERBS:
        _verb_parser(added.add_parser(verb, help=_VERBS[verb][0], **_settings(verb)), verb)
    return top


def seconds(value: str) -> float:
    """A duration as kubectl takes it: `90s`, `5m`, `1h30m`; a number alone is of seconds."""
    found = _DURATION.fullmatch(value)
    parts = found.groups() if found else ()
    total = sum(int(part or 0) * unit for part, unit in zip(parts, (3600, 60, 1), strict=False))
    if not total:
        raise argparse.ArgumentTypeError(f"{value!r} is no duration such as 90s or 5m")
    return float(total)


def _settings(verb: str) -> dict[str, Any]:
    help_ = _VERBS[verb][0]
    return {"description": f"{help_[0].upper()}{help_[1:]}.", "allow_abbrev": False}


def _verb_parser(made: argparse.ArgumentParser, verb: str) -> argparse.ArgumentParser:
    _VERBS[verb][1](made)
    # Those of kubectl are in the help, and would hide the few of the verb here.
    usage = made.format_usage().removeprefix("usage: ").rstrip()
    made.usage = f"{usage} [flags of kubectl]"
    _add_scope(made)
    return made


def _without_values(words: Sequence[str]) -> list[str]:
    """kubectl's users write `--wait=false`; argparse has switches without values alone."""
    same = {"--wait=true": "--wait", "--wait=false": "--no-wait"}
    return [same.get(word, word) for word in words]


def _verb_of(words: Sequence[str]) -> str | None:
    """The first word that is no flag and no flag's value."""
    if words and words[0] in _VERBS:
        return words[0]
    with_value = set(_flags_with_value())
    is_value = False
    for word in words:
        if not is_value and not word.startswith("-"):
            return word if word in _VERBS else None
        is_value = not is_value and word in with_value
    return None


def _flags_with_value() -> Iterator[str]:
    for verb in _VERBS:
        made = _verb_parser(argparse.ArgumentParser(), verb)
        for action in made._actions:  # noqa: SLF001 - argparse shows its flags in no other way
            if action.nargs is None:
                yield from action.option_strings


def verb_words() -> dict[str, VerbWords]:
    """Flags and places of each verb, for shells."""
    found = {}
    for verb in VERBS:
        made = _verb_parser(argparse.ArgumentParser(), verb)
        flags, places = {}, []
        for action in made._actions:  # noqa: SLF001 - as above
            kind = "output_file" if verb == "kubeconfig" and action.dest == "output" else action.dest
            if not action.option_strings:
                places.append(kind)
            for flag in action.option_strings:
                flags[flag] = "" if action.nargs == 0 else kind
        found[verb] = VerbWords(flags, tuple(places))
    return found


def _command(verb: str, found: argparse.Namespace) -> Command:
    given: dict[str, Any] = vars(found)
    scope = Scope(**{field: _as_given(given.pop(field)) for field in Scope._fields})
    values = {key: _as_given(value) for key, value in given.items() if value is not None}
    return Command(verb, scope, **values)


def _as_given(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _add_scope(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("as of kubectl: which super cluster, as whom")
    group.add_argument(
        "-n", "--namespace", default="", help="of the VirtualCluster; default: that of the context"
    )
    group.add_argument("--kubeconfig", metavar="FILE", default="", help="instead of KUBECONFIG")
    group.add_argument("--context", default="", help="of the super cluster; default: the current one")
    group.add_argument("--cluster", default="")
    group.add_argument("--user", default="")
    group.add_argument("--as", dest="as_user", metavar="USER", default="", help="impersonate this user")
    group.add_argument("--as-group", dest="as_groups", metavar="GROUP", action="append", default=[])
    group.add_argument("--as-uid", metavar="UID", default="")
    group.add_argument("--request-timeout", metavar="TIME", default="")
    group.add_argument("--cache-dir", metavar="DIRECTORY", default="")


def _add_name(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", help=_TENANT)


def _add_wait(
    parser: argparse.ArgumentParser, *, waits: bool = True, timeout_s: float = DEFAULT_TIMEOUT_S
) -> None:
    default = "the default" if waits else "not the default"
    parser.add_argument(
        "--wait", action="store_true", dest="waits", default=waits, help=f"until it is done ({default})"
    )
    parser.add_argument("--no-wait", action="store_false", dest="waits", default=waits, help="return at once")
    text = f"of the wait, such as 90s or 5m (default {int(timeout_s)}s)"
    parser.add_argument(
        "--timeout", dest="timeout_s", metavar="TIME", type=seconds, default=timeout_s, help=text
    )


def _add_yes(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--yes", action="store_true", dest="is_confirmed", help="ask for no confirmation")


def _create(parser: argparse.ArgumentParser) -> None:
    _add_name(parser)
    parser.add_argument(
        "--cluster-version", default="", help="default: the only one, or the one annotated so"
    )
    parser.add_argument(
        "--class", dest="size_class", metavar="CLASS", default="", help="size of the control plane"
    )
    parser.add_argument(
        "--service-cidr", metavar="CIDR", default="", help="addresses of the tenant's Services"
    )
    parser.add_argument("--cluster-domain", metavar="DOMAIN", default="", help="default: cluster.local")
    _add_wait(parser, timeout_s=CREATE_TIMEOUT_S)


def _get(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("names", metavar="NAME", nargs="*", help="default: all of the namespace")
    parser.add_argument("-A", "--all-namespaces", dest="is_all_namespaces", action="store_true")
    parser.add_argument("-o", "--output", choices=("wide", "json", "yaml", "name"), default="")


def _kubeconfig(parser: argparse.ArgumentParser) -> None:
    _add_name(parser)
    parser.add_argument("-o", "--output", metavar="FILE", default="-", help="default: stdout")
    parser.add_argument(
        "--merge", dest="can_merge", action="store_true", help="add a context to your kubeconfig"
    )


def _upgrade(parser: argparse.ArgumentParser) -> None:
    _add_name(parser)
    parser.add_argument("cluster_version", metavar="VERSION", nargs="?", default="", help="a ClusterVersion")
    parser.add_argument(
        "--confirm",
        dest="can_confirm",
        action="store_true",
        help="keep the last upgrade: no step back any more",
    )
    _add_wait(parser)


def _named(parser: argparse.ArgumentParser) -> None:
    _add_name(parser)
    _add_wait(parser)


def _backup(parser: argparse.ArgumentParser) -> None:
    _add_name(parser)
    parser.add_argument(
        "backup", metavar="BACKUP", nargs="?", default="", help="its name; default: with the time"
    )
    _add_wait(parser)


def _restore(parser: argparse.ArgumentParser) -> None:
    _add_name(parser)
    parser.add_argument(
        "--from", dest="backup", metavar="BACKUP", required=True, help="status.backups has them"
    )
    parser.add_argument("--to", dest="new_name", metavar="NEW", default="", help="into a new VirtualCluster")
    _add_yes(parser)
    _add_wait(parser)


def _rotate(parser: argparse.ArgumentParser) -> None:
    _add_name(parser)
    parser.add_argument(
        "names", metavar="WHAT", nargs="+", choices=WHAT_ROTATES, help=", ".join(WHAT_ROTATES)
    )
    parser.add_argument(
        "--revoke",
        dest="can_revoke",
        action="store_true",
        help=f"end what the former key signed now, while {_REVOCABLE} is replaced",
    )
    _add_yes(parser)
    _add_wait(parser, waits=False)


def _delete(parser: argparse.ArgumentParser) -> None:
    _add_name(parser)
    parser.add_argument("--keep-volumes", dest="keeps_volumes", action="store_true", help="of the datastore")
    _add_yes(parser)
    _add_wait(parser)


def _unblock(parser: argparse.ArgumentParser) -> None:
    _add_name(parser)
    parser.add_argument("--webhook", metavar="NAME", default="", help="set failurePolicy Ignore of this one")


_VERBS: dict[str, tuple[str, _Add]] = {
    "create": ("make a tenant with a control plane of its own", _create),
    "get": ("list tenants, and what each waits for; wakes none", _get),
    "kubeconfig": ("print or save a kubeconfig of a tenant, without a key in it", _kubeconfig),
    "shell": ("start a shell whose kubectl asks the tenant", _add_name),
    "upgrade": ("change to another ClusterVersion, or confirm that", _upgrade),
    "rollback": ("take the last upgrade back, until it is confirmed", _named),
    "sleep": ("stop all pods of a control plane, and keep its objects", _named),
    "wake": ("start them again", _named),
    "backup": ("save the objects of a tenant", _backup),
    "restore": ("go back to a backup, in place or as a new tenant", _restore),
    "rotate": ("replace authorities, keys or certificates, in phases", _rotate),
    "delete": ("remove a tenant with all that is its own", _delete),
    "doctor": ("find what is wrong with a control plane, each with its remedy", _add_name),
    "unblock": ("find admission webhooks that stop a tenant, and disable one", _unblock),
    CREDENTIAL: ("print an ExecCredential: kubeconfigs of tenants call it", _add_name),
}
# `credential` is for programs.
VERBS = tuple(verb for verb in _VERBS if verb != CREDENTIAL)
