# SPDX-License-Identifier: Apache-2.0
import json
import os
from pathlib import Path

import pytest

from kata_bridge.start_gate import resolv_conf
from kata_bridge.start_gate.core.decision import Resolver
from kata_bridge.start_gate.resolv_conf import MAX_ADMITTED, ResolvConfs

BLUE, GREEN = ("blue",), ("green",)
TEXT, OTHER = "nameserver 10.1.0.10\n", "nameserver 10.1.0.11\nsearch a b\n"


def test_what_is_said_before_and_after_the_sandbox(tmp_path: Path) -> None:
    confs = ResolvConfs(tmp_path)
    assert confs.said("u") is None
    assert confs.say("u", Resolver(TEXT))
    assert not confs.say("u", Resolver(TEXT))
    assert list(tmp_path.iterdir()) == []
    confs.begin("s", "u", BLUE)
    assert confs.path("s") == tmp_path / "s" / "resolv.conf"
    assert confs.path("s").read_text() == TEXT
    assert confs.path("s").stat().st_mode & 0o777 == 0o644
    assert confs.say("u", Resolver(OTHER))
    assert confs.path("s").read_text() == OTHER


def test_a_file_is_rewritten_in_place(tmp_path: Path) -> None:
    confs = ResolvConfs(tmp_path)
    confs.begin("s", "u", BLUE)
    confs.say("u", Resolver(OTHER))
    inode = confs.path("s").stat().st_ino
    for text in (TEXT, OTHER, TEXT * 50, TEXT):
        confs.say("u", Resolver(text))
        assert confs.path("s").read_text() == text
        assert confs.ready("s", "u", BLUE) == confs.path("s")
    assert confs.path("s").stat().st_ino == inode


def test_a_directory_that_could_not_be_made_is_made_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    confs = ResolvConfs(tmp_path / "pods")
    confs.say("u", Resolver(TEXT))

    def is_full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(os, "mkdir", is_full)
        for attempt in (confs.begin, confs.ready):
            with pytest.raises(OSError, match="No space"):
                attempt("s", "u", BLUE)
    assert confs.ready("s", "u", BLUE).read_text() == TEXT
    # And a restart knows whose it is.
    assert ResolvConfs(tmp_path / "pods").said("u") == Resolver(TEXT, networks=BLUE)


def test_those_that_run_keep_what_they_have(tmp_path: Path) -> None:
    confs = ResolvConfs(tmp_path)
    confs.begin("s", "u", BLUE)
    confs.say("u", Resolver(TEXT))
    confs.say("u", Resolver(waits="the network is gone"))
    assert confs.path("s").read_text() == TEXT
    confs.say("u", Resolver(OTHER, waits="the network is not ready"))
    assert confs.path("s").read_text() == OTHER
    confs.say("u", None)
    assert confs.said("u") is None
    assert confs.path("s").read_text() == OTHER


def test_all_sandboxes_of_a_pod_have_theirs(tmp_path: Path) -> None:
    confs = ResolvConfs(tmp_path)
    confs.begin("old", "u", BLUE)
    confs.begin("new", "u", BLUE)
    confs.begin("other", "v", BLUE)
    confs.say("u", Resolver(TEXT))
    assert [confs.path(name).exists() for name in ("old", "new", "other")] == [True, True, False]
    confs.end("old")
    assert not (tmp_path / "old").exists()
    confs.retain(["other"])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other"]


@pytest.mark.parametrize(
    "resolver",
    [
        None,
        Resolver(TEXT, networks=BLUE),
        Resolver(waits="w", networks=BLUE),
        Resolver(TEXT, "w", BLUE),
        Resolver("é\n", networks=BLUE),
    ],
)
def test_nothing_is_lost_by_a_restart(tmp_path: Path, resolver: Resolver | None) -> None:
    before = ResolvConfs(tmp_path)
    before.begin("s", "u", BLUE)
    before.say("u", Resolver(OTHER))
    before.say("u", resolver)
    before.admit("s", "c1")
    after = ResolvConfs(tmp_path)
    assert after.said("u") == resolver
    assert after.sandboxes("u") == ("s",)
    assert after.was_admitted("s", "c1")
    assert not after.was_admitted("s", "c2")
    after.say("u", Resolver(TEXT))
    assert after.path("s").read_text() == TEXT


@pytest.mark.parametrize("is_told", [True, False])
@pytest.mark.parametrize("is_restarted", [True, False])
def test_what_was_said_for_one_network_is_nothing_to_a_sandbox_of_another(
    tmp_path: Path, *, is_told: bool, is_restarted: bool
) -> None:
    """A pod's label was changed, and it was made another sandbox; an older client tells no networks."""
    confs = ResolvConfs(tmp_path)
    confs.begin("one", "u", BLUE)
    confs.say("u", Resolver(TEXT, networks=BLUE if is_told else ()))
    if is_restarted:
        confs = ResolvConfs(tmp_path)
    else:
        confs.end("one")
    confs.begin("two", "u", GREEN)
    assert confs.given("two") is None
    assert confs.said("u") == Resolver(TEXT, networks=BLUE)
    confs.ready("two", "u", GREEN)
    assert not confs.path("two").exists()
    confs.say("u", Resolver(OTHER, networks=GREEN if is_told else ()))
    assert confs.given("two") == Resolver(OTHER, networks=GREEN)
    assert confs.path("two").read_text() == OTHER


def test_while_the_latest_is_for_others_a_sandbox_is_given_nothing_and_what_runs_keeps_its_file(
    tmp_path: Path,
) -> None:
    confs = ResolvConfs(tmp_path)
    confs.begin("one", "u", BLUE)
    confs.say("u", Resolver(TEXT, networks=BLUE))
    confs.say("u", Resolver(OTHER, "w", GREEN))
    for each in (confs, ResolvConfs(tmp_path)):
        assert each.given("one") is None
        assert each.ready("one", "u", BLUE).read_text() == TEXT
    confs.say("u", Resolver(OTHER, networks=BLUE))
    assert confs.given("one") == Resolver(OTHER, networks=BLUE)
    assert confs.path("one").read_text() == OTHER


def test_what_an_older_client_says_before_any_sandbox_is_for_the_first(tmp_path: Path) -> None:
    confs = ResolvConfs(tmp_path)
    confs.say("u", Resolver(TEXT))
    for name, networks, given in (("one", BLUE, Resolver(TEXT, networks=BLUE)), ("two", GREEN, None)):
        confs.begin(name, "u", networks)
        assert confs.given(name) == given


def test_the_note_of_an_older_bridge_is_good_for_its_own_sandbox(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "resolv.conf").write_text(TEXT)
    note = {"uid": "u", "isSaid": True, "hasText": True, "waits": "", "admitted": []}
    (tmp_path / "one" / "gate.json").write_text(json.dumps(note))
    confs = ResolvConfs(tmp_path)
    confs.begin("two", "u", GREEN)
    confs.begin("one", "u", BLUE)
    assert (confs.given("one"), confs.given("two")) == (Resolver(TEXT, networks=BLUE), None)
    # What is said before the runtime has told of it counts more.
    (tmp_path / "one" / "gate.json").write_text(json.dumps(note))
    confs = ResolvConfs(tmp_path)
    confs.say("u", Resolver(OTHER, networks=GREEN))
    confs.begin("one", "u", BLUE)
    assert confs.given("one") is None


def test_a_sandbox_that_is_another_pods_now_has_nothing_of_the_first(tmp_path: Path) -> None:
    confs = ResolvConfs(tmp_path)
    confs.begin("s", "u", BLUE)
    confs.say("u", Resolver(TEXT, networks=BLUE))
    confs.begin("s", "v", BLUE)
    assert confs.given("s") is None


def test_who_waits_is_known_after_a_restart(tmp_path: Path) -> None:
    confs = ResolvConfs(tmp_path)
    for name in ("s", "t"):
        confs.begin(name, "u", BLUE)
        confs.hold(name, is_held=True)
    confs.hold("t", is_held=False)
    confs.hold("stranger", is_held=True)
    confs = ResolvConfs(tmp_path)
    assert [confs.was_held(name) for name in ("s", "t", "stranger")] == [True, False, False]
    confs.end("s")
    assert not confs.was_held("s")


def test_what_cannot_be_read_again_is_nobodys(tmp_path: Path) -> None:
    notes = {
        "s1": "{",
        "s2": "[]",
        "s3": json.dumps({"uid": 1}),
        "s4": json.dumps({"uid": "u4", "isSaid": True, "waits": 1}),
        "s5": json.dumps({"uid": "u5", "isSaid": True, "hasText": True, "waits": "", "networks": [1]}),
        "..s6": json.dumps({"uid": "u6"}),
    }
    for name, text in notes.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "gate.json").write_text(text)
    confs = ResolvConfs(tmp_path)
    assert [confs.said(f"u{number}") for number in range(1, 7)] == [None] * 6
    assert confs.sandboxes("u4") == ("s4",)
    assert confs.sandboxes("u5") == ("s5",)


def test_containers_that_passed_are_few(tmp_path: Path) -> None:
    confs = ResolvConfs(tmp_path)
    confs.begin("s", "u", BLUE)
    for number in range(MAX_ADMITTED + 5):
        confs.admit("s", f"c{number}")
    assert not confs.was_admitted("s", "c4")
    assert confs.was_admitted("s", "c5")


def test_pods_without_a_sandbox_are_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resolv_conf, "MAX_SAID", 3)
    confs = ResolvConfs(tmp_path)
    confs.begin("s", "used", BLUE)
    confs.say("used", Resolver(TEXT))
    for number in range(5):
        confs.say(f"u{number}", Resolver(TEXT))
    assert confs.said("used") is not None
    assert [confs.said(f"u{number}") is None for number in range(5)] == [True, True, True, False, False]


def test_no_path_is_made_of_what_is_no_id(tmp_path: Path) -> None:
    confs = ResolvConfs(tmp_path / "in")
    with pytest.raises(OSError, match="no id"):
        confs.begin("../out", "u", BLUE)
    confs.begin("s", "u", BLUE)
    with pytest.raises(ValueError, match="is text of"):
        confs.say("u", Resolver("\0"))
