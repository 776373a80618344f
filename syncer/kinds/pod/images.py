# SPDX-License-Identifier: Apache-2.0
"""Images of super pods. Pure.

An image that is on a node was pulled for some pod, with its credentials. A pod that does not pull it runs,
or mounts, what it may not have. So all pull, as the admission plugin AlwaysPullImages has it: what is there
already is not fetched again, but the registry is asked.
"""

from collections.abc import Iterator
from typing import Any

from syncer.core.objects import Object
from syncer.core.plan import Change
from syncer.core.view import View
from syncer.kinds.pod.metadata import CONTAINER_LISTS
from syncer.policy.sync_policy import ImagePull

_ALWAYS, _NEVER = "Always", "Never"


def pull_always(spec: Object, view: View) -> None:
    """Change the policies of containers and image volumes."""
    if view.policy.pods.image_pull is ImagePull.ALWAYS:
        for _, _, owner, field in _policies(spec):
            owner[field] = _ALWAYS


def pull_changes(pod: Object, view: View) -> Iterator[Change]:
    """The policies that a super pod has otherwise, and that mean that nothing is pulled.

    Of the others the author hears nothing: they pull what a node lacks. `pod` is as its author wrote it.
    """
    spec = pod.get("spec")
    if type(spec) is not dict or view.policy.pods.image_pull is not ImagePull.ALWAYS:
        return
    for listed, index, owner, field in _policies(spec):
        if owner.get(field) == _NEVER:
            how = "SyncPolicy field spec.pods.imagePull does not allow another"
            path = f"spec.{listed}[{index}]" + (".image" if listed == "volumes" else "")
            yield Change(f"{path}.{field}", f"is {_ALWAYS} in the super cluster: {how}")


def _policies(spec: Object) -> Iterator[tuple[str, int, dict[str, Any], str]]:
    """The objects with a policy: list of the specification, index, the object, and the policy's field."""
    for name in CONTAINER_LISTS:
        listed = spec.get(name)
        if type(listed) is list:
            for index, each in enumerate(listed):
                if type(each) is dict:
                    yield name, index, each, "imagePullPolicy"
    volumes = spec.get("volumes")
    for index, each in enumerate(volumes if type(volumes) is list else ()):
        if type(each) is dict and type(image := each.get("image")) is dict:
            yield "volumes", index, image, "pullPolicy"
