# SPDX-License-Identifier: Apache-2.0
"""Names: one meaning a class name, predicates that change nothing, metrics with their daemon's prefix."""

from pathlib import Path

import pytest

from tests import vocabulary
from tests.packages import PACKAGES, ROOT
from tests.reference import metrics

SOURCES = {path: (ROOT / path).read_text() for path in vocabulary.python_files()}


def test_no_class_name_has_a_third_meaning() -> None:
    assert vocabulary.overused_class_names(SOURCES) == []


def test_words_of_our_own_are_in_the_glossary() -> None:
    """A word of the field is added to tests/standard_words.txt, a word of our own to docs/glossary.md."""
    product = {path: text for path, text in SOURCES.items() if path.parts[0] in PACKAGES}
    assert vocabulary.coined_words(product) == []


def test_standard_words_are_used() -> None:
    product = {path: text for path, text in SOURCES.items() if path.parts[0] in PACKAGES}
    assert vocabulary.unused_standard_words(product) == []


def test_predicates_change_nothing() -> None:
    """What takes, spends, evicts or counts is a verb: `try_acquire`, `make_room`, `evict_oldest`."""
    found = [each for path, text in SOURCES.items() for each in vocabulary.changing_predicates(path, text)]
    assert found == []


def test_metrics_are_named_for_daemon_and_unit() -> None:
    assert [each.name for each in metrics.registered() if not vocabulary.is_metric_name(each.name)] == []


@pytest.mark.parametrize(
    ("name", "is_good"),
    [
        ("vcnode_vnagent_requests_total", True),
        ("vcnode_katabridge_apply_seconds", True),
        ("vcnode_katabridge_guests", True),
        ("vcnode_reloads_total", True),
        ("vcnode_tasks", True),
        ("vcnode_guests", False),
        ("vcnode_katabridge_held", False),
        ("vcnode_proxy_requests_total", False),
        ("kubeproxy_sync_seconds", False),
    ],
)
def test_which_metric_names_are_good(name: str, is_good: bool) -> None:
    assert vocabulary.is_metric_name(name) == is_good


def test_a_third_meaning_is_found() -> None:
    sources = {Path(name): "class State: ...\n" for name in ("a.py", "b.py", "c.py")}
    assert vocabulary.overused_class_names(sources) == ["State: a.py, b.py, c.py"]


@pytest.mark.parametrize(
    ("body", "is_changing"),
    [
        ("return self.count > 1", False),
        ("self.count += 1", True),
        ("self.a.b = 1", True),
        ("self.cells[key] = 1", True),
        ("del self.cells[key]", True),
        ("self.times.append(key)", True),
        ("key.pop()", True),
        ("found = []; found.append(key); return bool(found)", False),
        ("return key.index(1)", False),
    ],
)
def test_predicates_that_change_something_are_found(body: str, is_changing: bool) -> None:
    text = f"def is_full(self, key): {body}\n"
    assert bool(list(vocabulary.changing_predicates(Path("a.py"), text))) == is_changing
