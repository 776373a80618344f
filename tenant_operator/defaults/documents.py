# SPDX-License-Identifier: Apache-2.0
"""Reads lists of manifests: YAML documents, by the strict part of YAML 1.2 that our configurations have."""

import re
from collections.abc import Iterator

from daemonkit.config import yaml_values
from daemonkit.config.yaml_values import YamlError
from tenant_operator.model.objects import Object

# A ConfigMap has 1 MiB, and a list of manifests is read at each change of it.
MAX_BYTES = 1 << 20
MAX_OBJECTS = 500

# At the start of a line only, where no text of a document can have it (YAML 1.2, 9.1.2).
_DOCUMENT = re.compile(r"^(?=---(?:\s|$))", re.MULTILINE)


class ManifestError(ValueError):
    """A list of manifests cannot be used; the text has the place and the reason, and no value."""


def read_manifests(text: str, source: str) -> tuple[Object, ...]:
    """All objects of a text. `source` is named in errors. Raises ManifestError."""
    if len(text) > MAX_BYTES:
        raise ManifestError(f"{source}: more than {MAX_BYTES} bytes")
    found = tuple(_documents(text, source))
    if len(found) > MAX_OBJECTS:
        raise ManifestError(f"{source}: more than {MAX_OBJECTS} objects")
    return found


def _documents(text: str, source: str) -> Iterator[Object]:
    for number, part in enumerate(_DOCUMENT.split(text), 1):
        try:
            value = yaml_values.decode(part)
        except YamlError as error:
            raise ManifestError(f"{source}: document {number}: {error}") from None
        if value is None:
            continue  # comments alone
        if not isinstance(value, dict):
            raise ManifestError(f"{source}: document {number} is no object")
        yield value
