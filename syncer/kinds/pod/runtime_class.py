# SPDX-License-Identifier: Apache-2.0
"""A RuntimeClass of the tenant as the super cluster's class of the same handler. Pure.

Only the name of a class goes down, and only one that the policy lists. So no object of the tenant leads to a
handler that the policy does not list. A super class counts only if it is published: tenants know those.
"""

from typing import Any

from syncer.core.objects import Object, is_deleting, text_of_value
from syncer.core.plan import Wait
from syncer.core.unknown import Unknown
from syncer.core.view import View
from syncer.kinds.published import is_published

_KIND = "RuntimeClass"


def translate_runtime_class(pod: Object, view: View) -> Wait | None:
    """Give a tenant's new pod the class of the super cluster; one that has none there stays, to be refused.

    Returns what it waits for: one that cannot be read may be the class, and is no reason to refuse the pod.

    What the policy lists by its name is meant by that name, whatever class the tenant has of it. Among
    classes of one handler the forced one comes first, then the first by its name.
    """
    own = remove_class_scheduling(pod, view)
    if isinstance(own, Unknown):
        return own.wait()
    if own is None:
        return None
    spec, allowed = pod["spec"], view.policy.pods
    if spec["runtimeClassName"] in allowed.runtime_classes | {allowed.runtime_class}:
        return None
    for name in (allowed.runtime_class, *sorted(allowed.runtime_classes)):
        found = view.in_super(_KIND, "", name) if name else None
        if isinstance(found, Unknown):
            return found.wait()
        if found is not None and _is_of_handler(found, own.get("handler")):
            spec["runtimeClassName"] = name
            return None
    return None


def remove_class_scheduling(pod: Object, view: View) -> Object | Unknown | None:
    """Take from a pod what the tenant's admission gave it for its class, and return that class.

    The super cluster's admission gives it what the super class has, and refuses a selector that differs.
    None if the pod names no class, or one that is not there, or the kind is not synced.
    """
    spec = pod.get("spec")
    named = spec.get("runtimeClassName") if type(spec) is dict else None
    own = view.in_tenant(_KIND, "", named) if type(named) is str and named else None
    if type(spec) is not dict or own is None or isinstance(own, Unknown):
        return own
    scheduling = _fields(own.get("scheduling"))
    if selector := _fields(scheduling.get("nodeSelector")):
        chosen = _fields(spec.get("nodeSelector"))
        rest = {key: value for key, value in chosen.items() if key not in selector or selector[key] != value}
        if len(rest) < len(chosen):
            spec["nodeSelector"] = rest
    tolerations, given = scheduling.get("tolerations"), spec.get("tolerations")
    if type(tolerations) is list and type(given) is list:
        # As text, since a tenant may have thousands of both.
        of_class = {text_of_value(each) for each in tolerations}
        spec["tolerations"] = [each for each in given if text_of_value(each) not in of_class]
    return own


def _fields(value: Any) -> Object:
    return value if type(value) is dict else {}


def _is_of_handler(found: Object, handler: Any) -> bool:
    return (
        bool(handler) and found.get("handler") == handler and is_published(found) and not is_deleting(found)
    )
