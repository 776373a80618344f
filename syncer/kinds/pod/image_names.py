# SPDX-License-Identifier: Apache-2.0
"""The names of images in the status of a pod's containers. Pure.

A runtime knows an image by its content, and calls it by the first of the names under which it was pulled
(containerd, `toCRIContainerStatus`): that may be one in the registry of another tenant.
"""

from syncer.core.objects import Object

_DEFAULT_REGISTRY = "docker.io"


def repository(image: str) -> str:
    """The repository of an image's name, in the form in which runtimes show it; empty if it is no name.

    As distribution's reference.ParseNormalizedNamed: the first part is a registry if it has a dot or a colon.
    """
    name = image.partition("@")[0]
    head, slash, last = name.rpartition("/")
    name = head + slash + last.partition(":")[0]
    if not name or name == "sha256":
        return ""
    first, slash, rest = name.partition("/")
    if not slash:
        return f"{_DEFAULT_REGISTRY}/library/{name}"
    if first == "index.docker.io":
        return f"{_DEFAULT_REGISTRY}/{rest}"
    return name if "." in first or ":" in first or first == "localhost" else f"{_DEFAULT_REGISTRY}/{name}"


def own_image_names(status: Object, images: tuple[str, str]) -> Object:
    """The fields of a container's status that are to have another name of its image.

    `images` are the names in the specifications of the super pod and of the tenant's pod. An image that is
    only known by its digest keeps that.
    """
    own = {repository(each) for each in images if each}
    spec = images[0] or images[1]
    changed: Object = {}
    image = status.get("image")
    if isinstance(image, str) and image and (shown := repository(image)) and shown not in own:
        changed["image"] = spec
    known = status.get("imageID")
    if isinstance(known, str) and known:
        name, at, digest = known.rpartition("@")
        scheme, separator, plain = name.rpartition("://")
        if at and repository(plain) not in own:
            changed["imageID"] = f"{scheme}{separator}{repository(spec)}@{digest}"
        elif not at and repository(known) and not _is_digest(known) and repository(known) not in own:
            changed["imageID"] = ""
    return changed


def _is_digest(text: str) -> bool:
    """Whether it is an image's ID as containerd and CRI-O write it, with or without the algorithm."""
    plain = text.rpartition("://")[2].removeprefix("sha256:")
    return len(plain) == 64 and all(each in "0123456789abcdef" for each in plain)
