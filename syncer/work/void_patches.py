# SPDX-License-Identifier: Apache-2.0
"""Patches that changed nothing: an API server put its default in the place of what they take away.

A plan cannot know the defaults of an API server and of its CustomResourceDefinitions, so it would send the
same patch each time, for ever. What is remembered holds for the object as it was then.
"""

import hashlib

from syncer.core.objects import Object
from syncer.core.plan import Patch
from syncer.tenant.deletions import SyncKey

# Of all tenants; the oldest is forgotten first. A patch of a forgotten one is sent once more.
MAX_PATCHES = 10_000


def state_of(value: Object | None) -> tuple[str, str]:
    """The generation and the version of an object; empty where it has none."""
    meta = (value or {}).get("metadata") or {}
    return str(meta.get("generation") or ""), str(meta.get("resourceVersion") or "")


class VoidPatches:
    """`note` one whose answer had the version of the object before it."""

    def __init__(self, max_patches: int = MAX_PATCHES) -> None:
        self._max_patches = max_patches
        self._known: dict[bytes, None] = {}

    def __bool__(self) -> bool:
        """Whether any is known: else no patch needs its digest before it is sent."""
        return bool(self._known)

    def is_known(self, digest: bytes) -> bool:
        return digest in self._known

    def note(self, digest: bytes) -> None:
        if len(self._known) >= self._max_patches:
            del self._known[next(iter(self._known))]
        self._known[digest] = None


def digest_of(tenant_key: str, item: SyncKey, patch: Patch, body: bytes, state: tuple[str, str]) -> bytes:
    """What identifies a patch of an object in this state.

    A generation counts changes of the specification alone: for all else the object's version stands.
    """
    generation, version = state
    is_of_spec = not patch.subresource and "metadata" not in patch.body
    basis = generation if is_of_spec and generation else f"v{version}"
    found = hashlib.blake2b(digest_size=16)
    for text in (tenant_key, *item, patch.side, patch.uid, patch.subresource, basis):
        found.update(text.encode(errors="surrogatepass") + b"\0")
    found.update(body)
    return found.digest()
