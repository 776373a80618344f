# SPDX-License-Identifier: Apache-2.0
"""Lists of manifests: what is read, and which text is refused with its place."""

import pytest

from tenant_operator.defaults import documents
from tenant_operator.defaults.documents import ManifestError, read_manifests


def test_documents_are_read_in_their_order() -> None:
    text = "# only a comment\n---\na: 1\n--- # the second\nb: |\n  text\n  ---\n---\n--- {c: yes}\n"
    assert read_manifests(text, "x") == ({"a": 1}, {"b": "text\n---\n"}, {"c": "yes"})


@pytest.mark.parametrize("text", ["", "---\n---\n", "# nothing\n"])
def test_a_list_may_be_empty(text: str) -> None:
    assert read_manifests(text, "x") == ()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\n---\n- 1\n", "list x: document 2 is no object"),
        ("a: &a 1\nb: *a\n", "list x: document 1: "),
        ("a: 1\na: 2\n", "list x: document 1: "),
        ("a: !!python/object:os.system x\n", "list x: document 1: "),
        ("a: [\n", "list x: document 1: "),
    ],
)
def test_what_is_no_manifest_is_refused(text: str, message: str) -> None:
    with pytest.raises(ManifestError) as refused:
        read_manifests(text, "list x")
    assert str(refused.value).startswith(message)


def test_lists_are_bounded() -> None:
    with pytest.raises(ManifestError, match="more than 1048576 bytes"):
        read_manifests("#" * (documents.MAX_BYTES + 1), "x")
    with pytest.raises(ManifestError, match="more than 500 objects"):
        read_manifests("---\na: 1\n" * 501, "x")
