# SPDX-License-Identifier: Apache-2.0
"""Affinity and topology spread, so that a pod meets its own tenant's pods alone. Pure.

The label with the cluster key scopes each term: whatever namespaces a term names, pods of others have
another label. Node affinity stays: vNodes have the names and labels of their nodes.
"""

from collections.abc import Mapping
from typing import Any

from syncer.core.objects import Object, text_of_value
from syncer.core.view import View
from syncer.kinds.metadata import NAMESPACE_NAME, selectable_label, translate_key, translate_selector
from tenancy import keys


def translate_affinity(spec: Object, labels: Mapping[str, str], view: View) -> None:
    """Change `affinity` and `topologySpreadConstraints`; `labels` are the tenant pod's own."""
    affinity = spec.get("affinity") or {}
    for field in ("podAffinity", "podAntiAffinity"):
        rules = affinity.get(field) or {}
        for term in rules.get("requiredDuringSchedulingIgnoredDuringExecution") or ():
            _translate_term(term, labels, view)
        for weighted in rules.get("preferredDuringSchedulingIgnoredDuringExecution") or ():
            if isinstance(term := weighted.get("podAffinityTerm"), dict):
                _translate_term(term, labels, view)
    for constraint in spec.get("topologySpreadConstraints") or ():
        _translate_own_labels(constraint, labels, view)


def _translate_own_labels(term: Object, labels: Mapping[str, str], view: View) -> None:
    """The selector over pods, and the keys whose values the API server takes from the pod's own labels.

    The tenant's API server has put those into the selector already. The super cluster's does the same, with
    the keys of the super pod, and refuses some that are there already: so they are taken out.
    """
    selector = term.get("labelSelector")
    for field, operator in (("matchLabelKeys", "In"), ("mismatchLabelKeys", "NotIn")):
        own_keys = term.get(field)
        if not own_keys:
            continue
        merged = [
            {"key": key, "operator": operator, "values": [labels[key]]} for key in own_keys if key in labels
        ]
        if isinstance(selector, dict) and selector.get("matchExpressions"):
            taken_out = {text_of_value(each) for each in merged}
            selector["matchExpressions"] = [
                each for each in selector["matchExpressions"] if text_of_value(each) not in taken_out
            ]
        term[field] = [translate_key(str(key), view) for key in own_keys]
    if isinstance(selector, dict):
        term["labelSelector"] = translate_selector(selector, view)


def _translate_term(term: Object, labels: Mapping[str, str], view: View) -> None:
    _translate_own_labels(term, labels, view)
    # Without a selector the term matches no pod; a selector of the cluster alone would match all.
    if isinstance(selector := term.get("labelSelector"), dict):
        selector["matchLabels"] = {**(selector.get("matchLabels") or {}), keys.CLUSTER: view.tenant.key}
    if namespaces := term.get("namespaces"):
        term["namespaces"] = [_super_namespace(str(each), view) for each in namespaces]
    if isinstance(selector := term.get("namespaceSelector"), dict):
        term["namespaceSelector"] = namespace_selector(selector, view)


def namespace_selector(selector: Object, view: View) -> Object:
    """A selector over the tenant's namespaces as one over super namespaces.

    Their labels stand on the super namespaces under other keys; only names are translated by value.
    """
    found: Object = dict(selector)
    if isinstance(labels := found.get("matchLabels"), dict):
        found["matchLabels"] = {
            _namespace_key(key): _super_namespace(value, view) if key == NAMESPACE_NAME else value
            for key, value in labels.items()
        }
    if expressions := found.get("matchExpressions"):
        found["matchExpressions"] = [_namespace_expression(each, view) for each in expressions]
    return found


def _namespace_expression(expression: Mapping[str, Any], view: View) -> Object:
    key = str(expression.get("key", ""))
    found: Object = {**expression, "key": _namespace_key(key)}
    if key == NAMESPACE_NAME and (values := found.get("values")):
        found["values"] = [_super_namespace(str(each), view) for each in values]
    return found


def _namespace_key(key: str) -> str:
    return key if key == NAMESPACE_NAME else selectable_label(key)


def _super_namespace(namespace: str, view: View) -> str:
    """One that can have no super namespace keeps its name, so that the list does not become empty: an empty
    one means the pod's own namespace."""
    found = view.tenant.super_namespace(namespace)
    return found if isinstance(found, str) else namespace
