# SPDX-License-Identifier: Apache-2.0
"""`kubectl_complete-vc`: kubectl starts it when a person presses Tab behind `kubectl vc`."""

from collections.abc import Sequence

from kubectl_vc.arguments import verb_words
from kubectl_vc.core.command import WHAT_ROTATES, Command, Scope
from kubectl_vc.core.completion import WordPlace, lines, place_of
from kubectl_vc.core.faults import RequestError
from kubectl_vc.core.view import CLUSTER_VERSIONS, COMPLETED, VIRTUAL_CLUSTERS, TenantView, objects, text
from kubectl_vc.port import DEFAULT_NAMESPACE, ApiServer

_OUTPUTS = ("json", "name", "wide", "yaml")
_FILES = ("kubeconfig", "cache_dir", "output_file")


def complete(words: Sequence[str], cluster: ApiServer) -> list[str]:
    """The lines to print. What cannot be asked, as without a network, completes to nothing."""
    verbs = verb_words()
    place = place_of(words, verbs)
    last = words[-1] if words else ""
    if place.kind == "verb":
        return lines(list(verbs), last, has_files=False)
    if place.kind == "flag":
        flags = verbs[place.verb].flags if place.verb in verbs else {}
        return lines(sorted(flags), last, has_files=False)
    try:
        found = _values(place, cluster)
    except RequestError:
        found = []
    return lines(found, last, has_files=place.kind in _FILES)


def _values(place: WordPlace, cluster: ApiServer) -> list[str]:
    match place.kind:
        case "name" if place.verb != "create":
            return _names(cluster, VIRTUAL_CLUSTERS, place.namespace)
        case "names":
            return (
                list(WHAT_ROTATES)
                if place.verb == "rotate"
                else _names(cluster, VIRTUAL_CLUSTERS, place.namespace)
            )
        case "cluster_version":
            return _names(cluster, CLUSTER_VERSIONS, DEFAULT_NAMESPACE)
        case "backup" if place.verb == "restore" and place.name:
            view = TenantView(cluster.get(VIRTUAL_CLUSTERS, place.name, place.namespace))
            backups = objects(view.value, "status", "backups")
            return [text(each, "name") for each in backups if text(each, "phase") == COMPLETED]
        case "output":
            return list(_OUTPUTS)
        case "namespace":
            return _names(cluster, "namespaces", DEFAULT_NAMESPACE)
        case "context":
            return cluster.config(["get-contexts", "--output=name"]).split()
    return []


def _names(cluster: ApiServer, resource: str, namespace: str) -> list[str]:
    return sorted(text(each, "metadata", "name") for each in cluster.list_objects(resource, namespace))


def command_of(words: Sequence[str]) -> Command:
    """Which super cluster the words before the last name, as far as they do."""
    found: dict[str, str] = {}
    for at, word in enumerate(words[:-1]):
        flag, has_value, value = word.partition("=")
        found[flag] = value if has_value else words[at + 1]
    scope = Scope(
        kubeconfig=found.get("--kubeconfig", ""),
        context=found.get("--context", ""),
        as_user=found.get("--as", ""),
    )
    return Command("get", scope)
