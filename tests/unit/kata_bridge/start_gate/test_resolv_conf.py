# SPDX-License-Identifier: Apache-2.0
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from kata_bridge.start_gate import resolv_conf
from kata_bridge.start_gate.core.decision import SubmittedResolver
from kata_bridge.start_gate.resolv_conf import MAX_ALLOWED, ResolvConfs

SUBMITTED_KEY = "isSaid"  # saved as: a key of gate.json
BLUE, GREEN = ("blue",), ("green",)
TEXT, OTHER = "nameserver 10.1.0.10\n", "nameserver 10.1.0.11\nsearch a b\n"


def test_a_resolver_is_written_when_the_sandbox_starts(tmp_path: Path) -> None:
    confs = ResolvConfs(tmp_path)
    assert confs.latest("u") is None
    assert confs.set_resolver("u", SubmittedResolver(TEXT))
    assert not confs.set_resolver("u", SubmittedResolver(TEXT))
    assert list(tmp_path.iterdir()) == []
    confs.add_sandbox("s", "u", BLUE)
    assert confs.path("s") == tmp_path / "s" / "resolv.conf"
    assert confs.path("s").read_text() == TEXT
    assert confs.path("s").stat().st_mode & 0o777 == 0o644
    assert confs.set_resolver("u", SubmittedResolver(OTHER))
    assert confs.path("s").read_text() == OTHER


def test_resolv_conf_is_rewritten_in_place(tmp_path: Path) -> None:
    confs = ResolvConfs(tmp_path)
    confs.add_sandbox("s", "u", BLUE)
    confs.set_resolver("u", SubmittedResolver(OTHER))
    inode = confs.path("s").stat().st_ino
    for text in (TEXT, OTHER, TEXT * 50, TEXT):
        confs.set_resolver("u", SubmittedResolver(text))
        assert confs.path("s").read_text() == text
        assert confs.prepare("s", "u", BLUE) == confs.path("s")
    assert confs.path("s").stat().st_ino == inode


def test_a_directory_that_could_not_be_made_is_retried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    confs = ResolvConfs(tmp_path / "pods")
    confs.set_resolver("u", SubmittedResolver(TEXT))

    def is_full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(os, "mkdir", is_full)
        for attempt in (confs.add_sandbox, confs.prepare):
            with pytest.raises(OSError, match="No space"):
                attempt("s", "u", BLUE)
    assert confs.prepare("s", "u", BLUE).read_text() == TEXT
    # And a restart reads its record.
    assert ResolvConfs(tmp_path / "pods").latest("u") == SubmittedResolver(TEXT, networks=BLUE)


def test_running_containers_keep_their_resolv_conf(tmp_path: Path) -> None:
    confs = ResolvConfs(tmp_path)
    confs.add_sandbox("s", "u", BLUE)
    confs.set_resolver("u", SubmittedResolver(TEXT))
    confs.set_resolver("u", SubmittedResolver(wait_message="the network is gone"))
    assert confs.path("s").read_text() == TEXT
    confs.set_resolver("u", SubmittedResolver(OTHER, wait_message="the network is not ready"))
    assert confs.path("s").read_text() == OTHER
    confs.set_resolver("u", None)
    assert confs.latest("u") is None
    assert confs.path("s").read_text() == OTHER


def test_each_sandbox_of_a_pod_has_a_file(tmp_path: Path) -> None:
    confs = ResolvConfs(tmp_path)
    confs.add_sandbox("old", "u", BLUE)
    confs.add_sandbox("new", "u", BLUE)
    confs.add_sandbox("other", "v", BLUE)
    confs.set_resolver("u", SubmittedResolver(TEXT))
    assert [confs.path(name).exists() for name in ("old", "new", "other")] == [True, True, False]
    confs.remove_sandbox("old")
    assert not (tmp_path / "old").exists()
    confs.retain(["other"])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other"]


@pytest.mark.parametrize(
    "resolver",
    [
        None,
        SubmittedResolver(TEXT, networks=BLUE),
        SubmittedResolver(wait_message="w", networks=BLUE),
        SubmittedResolver(TEXT, "w", BLUE),
        SubmittedResolver("é\n", networks=BLUE),
    ],
)
def test_a_restart_restores_resolvers_and_allowed_containers(
    tmp_path: Path, resolver: SubmittedResolver | None
) -> None:
    before = ResolvConfs(tmp_path)
    before.add_sandbox("s", "u", BLUE)
    before.set_resolver("u", SubmittedResolver(OTHER))
    before.set_resolver("u", resolver)
    before.record_allowed("s", "c1")
    after = ResolvConfs(tmp_path)
    assert after.latest("u") == resolver
    assert after.sandboxes("u") == ("s",)
    assert after.was_allowed("s", "c1")
    assert not after.was_allowed("s", "c2")
    after.set_resolver("u", SubmittedResolver(TEXT))
    assert after.path("s").read_text() == TEXT


@pytest.mark.parametrize("has_networks", [True, False])
@pytest.mark.parametrize("is_restarted", [True, False])
def test_a_resolver_does_not_apply_to_another_network(
    tmp_path: Path, *, has_networks: bool, is_restarted: bool
) -> None:
    """A pod's label changed, and the kubelet made another sandbox; an older client names no networks."""
    confs = ResolvConfs(tmp_path)
    confs.add_sandbox("one", "u", BLUE)
    confs.set_resolver("u", SubmittedResolver(TEXT, networks=BLUE if has_networks else ()))
    if is_restarted:
        confs = ResolvConfs(tmp_path)
    else:
        confs.remove_sandbox("one")
    confs.add_sandbox("two", "u", GREEN)
    assert confs.applied("two") is None
    assert confs.latest("u") == SubmittedResolver(TEXT, networks=BLUE)
    confs.prepare("two", "u", GREEN)
    assert not confs.path("two").exists()
    confs.set_resolver("u", SubmittedResolver(OTHER, networks=GREEN if has_networks else ()))
    assert confs.applied("two") == SubmittedResolver(OTHER, networks=GREEN)
    assert confs.path("two").read_text() == OTHER


def test_a_newer_resolver_for_another_network_withdraws(
    tmp_path: Path,
) -> None:
    confs = ResolvConfs(tmp_path)
    confs.add_sandbox("one", "u", BLUE)
    confs.set_resolver("u", SubmittedResolver(TEXT, networks=BLUE))
    confs.set_resolver("u", SubmittedResolver(OTHER, "w", GREEN))
    for each in (confs, ResolvConfs(tmp_path)):
        assert each.applied("one") is None
        assert each.prepare("one", "u", BLUE).read_text() == TEXT
    confs.set_resolver("u", SubmittedResolver(OTHER, networks=BLUE))
    assert confs.applied("one") == SubmittedResolver(OTHER, networks=BLUE)
    assert confs.path("one").read_text() == OTHER


def test_a_resolver_without_networks_is_for_the_first_sandbox(tmp_path: Path) -> None:
    confs = ResolvConfs(tmp_path)
    confs.set_resolver("u", SubmittedResolver(TEXT))
    for name, networks, applied in (
        ("one", BLUE, SubmittedResolver(TEXT, networks=BLUE)),
        ("two", GREEN, None),
    ):
        confs.add_sandbox(name, "u", networks)
        assert confs.applied(name) == applied


def test_an_older_record_applies_to_its_own_sandbox(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "resolv.conf").write_text(TEXT)
    record = {"uid": "u", SUBMITTED_KEY: True, "hasText": True, "waits": "", "admitted": []}
    (tmp_path / "one" / "gate.json").write_text(json.dumps(record))
    confs = ResolvConfs(tmp_path)
    confs.add_sandbox("two", "u", GREEN)
    confs.add_sandbox("one", "u", BLUE)
    assert (confs.applied("one"), confs.applied("two")) == (SubmittedResolver(TEXT, networks=BLUE), None)
    # A resolver that was set before the runtime reported the sandbox takes precedence.
    (tmp_path / "one" / "gate.json").write_text(json.dumps(record))
    confs = ResolvConfs(tmp_path)
    confs.set_resolver("u", SubmittedResolver(OTHER, networks=GREEN))
    confs.add_sandbox("one", "u", BLUE)
    assert confs.applied("one") is None


def test_a_reused_sandbox_id_gets_nothing_of_the_old_pod(tmp_path: Path) -> None:
    confs = ResolvConfs(tmp_path)
    confs.add_sandbox("s", "u", BLUE)
    confs.set_resolver("u", SubmittedResolver(TEXT, networks=BLUE))
    confs.add_sandbox("s", "v", BLUE)
    assert confs.applied("s") is None


def test_a_restart_restores_blocked_sandboxes(tmp_path: Path) -> None:
    confs = ResolvConfs(tmp_path)
    for name in ("s", "t"):
        confs.add_sandbox(name, "u", BLUE)
        confs.set_blocked(name, is_blocked=True)
    confs.set_blocked("t", is_blocked=False)
    confs.set_blocked("unknown", is_blocked=True)
    confs = ResolvConfs(tmp_path)
    assert [confs.was_blocked(name) for name in ("s", "t", "unknown")] == [True, False, False]
    confs.remove_sandbox("s")
    assert not confs.was_blocked("s")


def test_unreadable_records_give_no_resolver(tmp_path: Path) -> None:
    records = {
        "s1": "{",
        "s2": "[]",
        "s3": json.dumps({"uid": 1}),
        "s4": json.dumps({"uid": "u4", SUBMITTED_KEY: True, "waits": 1}),
        "s5": json.dumps({"uid": "u5", SUBMITTED_KEY: True, "hasText": True, "waits": "", "networks": [1]}),
        "..s6": json.dumps({"uid": "u6"}),
    }
    for name, text in records.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "gate.json").write_text(text)
    confs = ResolvConfs(tmp_path)
    assert [confs.latest(f"u{number}") for number in range(1, 7)] == [None] * 6
    assert confs.sandboxes("u4") == ("s4",)
    assert confs.sandboxes("u5") == ("s5",)


def test_the_oldest_allowed_containers_are_evicted(tmp_path: Path) -> None:
    confs = ResolvConfs(tmp_path)
    confs.add_sandbox("s", "u", BLUE)
    for number in range(MAX_ALLOWED + 5):
        confs.record_allowed("s", f"c{number}")
    assert not confs.was_allowed("s", "c4")
    assert confs.was_allowed("s", "c5")


def test_the_oldest_resolvers_without_sandbox_are_evicted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resolv_conf, "MAX_RESOLVERS", 3)
    confs = ResolvConfs(tmp_path)
    confs.add_sandbox("s", "used", BLUE)
    confs.set_resolver("used", SubmittedResolver(TEXT))
    for number in range(5):
        confs.set_resolver(f"u{number}", SubmittedResolver(TEXT))
    assert confs.latest("used") is not None
    assert [confs.latest(f"u{number}") is None for number in range(5)] == [True, True, True, False, False]


def test_an_invalid_sandbox_id_makes_no_path(tmp_path: Path) -> None:
    confs = ResolvConfs(tmp_path / "in")
    with pytest.raises(OSError, match="no id"):
        confs.add_sandbox("../out", "u", BLUE)
    confs.add_sandbox("s", "u", BLUE)
    with pytest.raises(ValueError, match="is text of"):
        confs.set_resolver("u", SubmittedResolver("\0"))


class KilledError(BaseException):
    """SIGKILL: nothing of the process runs after it."""


# What changes files, in the order of any of them.
CHANGING = ("mkdir", "open", "rename", "unlink", "rmdir", "remove")


def killed_at(
    step: int, monkeypatch: pytest.MonkeyPatch, act: Callable[[], object], *, is_after: bool
) -> bool:
    """Whether it was killed before it ended: at the given change of files, just before or after that."""
    left = [step]

    def counted(change: Callable[..., object]) -> Callable[..., object]:
        def changed(*args: object, **kwargs: object) -> object:
            left[0] -= 1
            if left[0] < 0 and not is_after:
                raise KilledError
            result = change(*args, **kwargs)
            if left[0] < 0:
                raise KilledError
            return result

        return changed

    with monkeypatch.context() as patched:
        for name in CHANGING:
            patched.setattr(os, name, counted(getattr(os, name)))
        try:
            act()
        except KilledError:
            return True
    return False


ACTS: dict[str, Callable[[ResolvConfs], object]] = {
    "add": lambda confs: confs.add_sandbox("s", "u", BLUE),
    "set": lambda confs: confs.set_resolver("u", SubmittedResolver(OTHER)),
    "allow": lambda confs: confs.record_allowed("s", "c"),
    "remove": lambda confs: confs.remove_sandbox("s"),
}


@pytest.mark.parametrize("is_after", [False, True])
@pytest.mark.parametrize("act", ACTS)
def test_a_kill_at_any_change_leaves_no_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, act: str, *, is_after: bool
) -> None:
    def killed(directory: Path, step: int) -> bool:
        confs = ResolvConfs(directory)
        confs.set_resolver("u", SubmittedResolver(TEXT))
        if act != "add":
            confs.add_sandbox("s", "u", BLUE)
        return killed_at(step, monkeypatch, lambda: ACTS[act](confs), is_after=is_after)

    was_killed, step = True, 0
    while was_killed:
        # One that lives goes on.
        directory = tmp_path / f"lives-{step}"
        was_killed = killed(directory, step)
        confs = ResolvConfs(directory)
        confs.retain({"s"})
        confs.set_resolver("u", SubmittedResolver(OTHER))
        confs.add_sandbox("s", "u", BLUE)
        assert confs.prepare("s", "u", BLUE).read_text() == OTHER
        # And one that is gone when kata-bridge starts again.
        directory = tmp_path / f"gone-{step}"
        killed(directory, step)
        ResolvConfs(directory).retain(())
        assert list(directory.iterdir()) == []
        step += 1
    assert step > 1
