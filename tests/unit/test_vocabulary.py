# SPDX-License-Identifier: Apache-2.0
"""Names: one for one thing, in the field's words; predicates change nothing; metrics name their daemon."""

from collections.abc import Mapping
from pathlib import Path

import pytest

from tests import vocabulary
from tests.reference import metrics


def parsed(**texts: str) -> Mapping[Path, vocabulary.ModuleNames]:
    return {Path(f"{name}.py"): vocabulary.parse(text) for name, text in texts.items()}


def metric(name: str, package: str = "vnagent", type_: str = "gauge") -> metrics.Metric:
    return metrics.Metric(name, type_, (), "", f"{package}/metrics.py")


def metric_names() -> list[str]:
    return [each.name for each in metrics.registered()]


def test_no_name_has_a_third_meaning() -> None:
    assert vocabulary.overused_names(vocabulary.sources()) == []


def test_words_of_our_own_are_in_the_glossary() -> None:
    """A word of the field is added to tests/standard_words.txt, a word of our own to docs/glossary.md."""
    assert vocabulary.coined_words(vocabulary.product(), metric_names()) == []


def test_standard_words_are_used() -> None:
    assert vocabulary.unused_standard_words(vocabulary.product(), metric_names()) == []


def test_words_of_the_old_dialect_are_gone() -> None:
    """A literal that other versions or programs rely on keeps its word: `# saved as: REASON` in its line."""
    assert vocabulary.left_words(vocabulary.texts()) == []


def test_predicates_change_nothing() -> None:
    """What takes, spends, evicts or counts is a verb: `try_acquire`, `make_room`, `evict_oldest`."""
    assert vocabulary.changing_predicates(vocabulary.sources()) == []


def test_names_of_tests_are_short() -> None:
    """The name says the rule, the docstring has the story."""
    assert vocabulary.long_test_names(vocabulary.sources()) == []


def test_metrics_are_named_for_daemon_and_unit() -> None:
    assert vocabulary.metric_faults(metrics.registered()) == []


@pytest.mark.parametrize(
    "good",
    [
        metric("vcnode_vnagent_requests_total", type_="counter"),
        metric("vcnode_katabridge_apply_seconds", "kata_bridge", "histogram"),
        metric("vcnode_katabridge_guests", "kata_bridge"),
        metric("vcnode_process_objects", "daemonkit"),
        metric("vcnode_vnagent_handshake_cpu_seconds_total", type_="counter"),
        metric("vcnode_vnagent_http2_streams"),
        metric("vcnode_vnagent_pushes_failed_total", type_="counter"),
        metric("vcnode_reloads_total", type_="counter"),
        metric("vcnode_tasks"),
    ],
)
def test_good_metric_names(good: metrics.Metric) -> None:
    assert vocabulary.metric_faults([good]) == []


@pytest.mark.parametrize(
    "bad",
    [
        metric("vcnode_guests"),
        metric("vcnode_vnagent_held"),
        metric("kubeproxy_sync_seconds", "kubeproxy_ext"),
        metric("vcnode_vnagent_requests_ms"),
        metric("vcnode_dnsconfig_requests_ms_total", "dnsconfig", "counter"),
        metric("vcnode_vnagent_requests_percent_total", type_="counter"),
        metric("vcnode_vnagent_ms_seconds"),
        metric("vcnode_vnagent_read_kb"),
        metric("vcnode_vnagent_apply_us"),
        metric("vcnode_vnagent_seconds"),
        metric("vcnode_vnagent_total", type_="counter"),
        metric("vcnode_vnagent_seconds_total", type_="counter"),
        metric("vcnode_vnagent__pods"),
        metric("vcnode_vnagent_pods_"),
        metric("vcnode_vnagent_pods__total", type_="counter"),
        metric("vcnode_vnagent_Apply_seconds"),
        metric("vcnode_vnagent_pods_total_seconds"),
        metric("vcnode_vnagent_read_bytes_seconds"),
        metric("vcnode_vnagent_seconds_behind_pods"),
        metric("vcnode_vnagent_total_pods_total", type_="counter"),
        metric("vcnode_vnagent_apply_milliseconds"),
        metric("vcnode_vnagent_read_kibibytes"),
        metric("vcnode_vnagent_age_days"),
        metric("vcnode_vnagent_age_weeks"),
        metric("vcnode_vnagent_full_percents"),
        metric("vcnode_vnagent_progress"),
        metric("vcnode_vnagent_status"),
        metric("vcnode_vnagent_sync_basis"),
        metric("vcnode_vnagent_requests", type_="counter"),
        metric("vcnode_vnagent_requests_total", type_="gauge"),
        metric("vcnode_katabridge_guests", "kubeproxy_ext"),
        metric("vcnode_process_guests", "kubeproxy_ext"),
    ],
)
def test_bad_metric_names(bad: metrics.Metric) -> None:
    assert len(vocabulary.metric_faults([bad])) == 1


def test_a_third_meaning_is_found() -> None:
    sources = parsed(a="class State: ...\n", b="class _State: ...\n", c="State = int | str\n")
    assert vocabulary.overused_names(sources) == ["State: a.py, b.py, c.py"]


def test_one_alias_of_many_modules_is_one_thing() -> None:
    alias = "State = int | str\n"
    sources = parsed(a=alias, b=alias, c=f"_{alias}", d="class State: ...\n", e="STATE = 1\n")
    assert vocabulary.overused_names(sources) == []


@pytest.mark.parametrize(
    "text",
    [
        "def frobnicate(): ...\n",
        "class Pods:\n    def frobnicate(self): ...\n",
        "class Pods:\n    frobnicate: float\n",
        "class FrobnicateError(Exception): ...\n",
        "_MAX_FROBNICATE = 1\n",
        "A, FROBNICATE = 1, 2\n",
        "FROBNICATE_S: Final = 1\n",
        "class Pods:\n    def __init__(self):\n        self.frobnicate = 1\n",
        "class Pods:\n    def add(self):\n        self.a, self._frobnicate_s = 1, 2\n",
        "class Reason(Enum):\n    FROBNICATE = 1\n",
        "class Reason(enum.StrEnum):\n    POD = 'PodFrobnicate'\n",
        "class Reason(str, Enum):\n    POD = ('Pod', 'frobnicate_pod')\n",
    ],
)
def test_a_coined_word_is_found_in_each_kind_of_name(text: str) -> None:
    (found,) = vocabulary.coined_words(parsed(pods=text))
    assert found.split(":")[0] == "frobnicate"


@pytest.mark.parametrize(
    "text",
    [
        "T = TypeVar('T')\nIPV4 = X509 = 1\n",
        "class Reason(Enum):\n    POD = 'No pod frobnicates.'\n",
        "class Pods:\n    POD = 'frobnicate'\n",
        "def add(frobnicate): frobnicate.frob = other.frob = 1\n",
    ],
)
def test_other_names_and_sentences_may_have_any_word(text: str) -> None:
    assert vocabulary.coined_words(parsed(pods=text)) == []


def test_a_coined_word_is_found_in_metrics() -> None:
    assert vocabulary.coined_words({}, ["vcnode_vnagent_frobs"]) == ["frobs: vcnode_vnagent_frobs"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("def heard_strangers_turn() -> None: ...\n", ["heard", "strangers"]),
        ("def f(convoy): ...\n", ["convoy"]),
        ("class Poster: ...\n", ["poster"]),
        ("self.is_shaken = unseal(x)\n", ["shaken", "unseal"]),
        ("HEARD = 1\n", ["heard"]),
        ("pod.is_heard()\n", ["heard"]),
        ("log.info('heard, told to strangers in the convoy')\n", ["heard", "told", "strangers", "convoy"]),
        ("log.info(f'told {pod}')\n", ["told"]),
        ("def f(): 'Told of pods.'\n", ["told"]),
        ("name('unheard-of')\n", ["unheard"]),
        ("import x as heard", ["heard"]),
        ("from x import heard", ["heard"]),
        ("f(heard=1)", ["heard"]),
        ("try: ...\nexcept E as told: ...", ["told"]),
        ("global convoy", ["convoy"]),
        ("match x:\n    case heard: ...", ["heard"]),
        ("x = 1  # as it heard", ["heard"]),
        ("class HeardOf: ...", ["heard"]),
        ("The pods that it heard of:\n\n- `a`, told", ["heard", "told"]),
        ("field('heard')  # saved as: a file of the version before\n", []),
        ("name('threshold, indoors')\n", []),
    ],
)
def test_words_of_the_old_dialect_are_found(text: str, words: list[str]) -> None:
    found = [each.split()[1] for each in vocabulary.left_words([(Path("a"), text)])]
    assert found == words


def test_a_long_test_name_is_found() -> None:
    sources = parsed(a=f"def test_{'a' * 55}(): ...\n", b=f"class T:\n    async def test_{'b' * 56}(): ...\n")
    assert vocabulary.long_test_names(sources) == [f"b.py:2: test_{'b' * 56}"]
