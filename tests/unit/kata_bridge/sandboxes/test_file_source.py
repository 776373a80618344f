# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest

from daemonkit.config.binding import ConfigError
from daemonkit.files.watched import FilesError
from kata_bridge.sandboxes.core.sandbox import Sandbox
from kata_bridge.sandboxes.file_source import GuestDirectory, parse

HEAD = "apiVersion: vcnode.io/v1alpha1\nkind: Guest\n"
SMALL = f"{HEAD}namespace: n\nname: p\n"


def test_all_keys_of_a_guest_file_are_read() -> None:
    text = f"""{HEAD}
id: sandbox-1
namespace: vc-a-shop
name: web-0
uid: u
tenant: vc-a
tenantNamespace: shop
tenantName: web-0
networks: [blue, red]
ips: [10.1.0.5]
runtimeHandler: kata
netns: /run/netns/x
channels: [agent, netns]
"""
    assert parse(text.encode(), Path("/guests/x.yaml")) == Sandbox(
        id="sandbox-1",
        namespace="vc-a-shop",
        name="web-0",
        uid="u",
        tenant="vc-a",
        tenant_namespace="shop",
        tenant_name="web-0",
        networks=("blue", "red"),
        ips=("10.1.0.5",),
        runtime_handler="kata",
        netns="/run/netns/x",
        channels=("agent", "netns"),
    )


@pytest.mark.parametrize(
    ("more", "channels", "netns"),
    [("", ("agent",), ""), ("netns: x\n", ("netns",), "/guests/x"), ("channels: [stock]\n", ("stock",), "")],
)
def test_defaults_of_a_guest_file(more: str, channels: tuple[str, ...], netns: str) -> None:
    sandbox = parse(f"{SMALL}{more}".encode(), Path("/guests/web.yaml"))
    assert (sandbox.id, sandbox.uid, sandbox.networks) == ("web", "web", ("default",))
    assert (sandbox.channels, sandbox.netns) == (channels, netns)


def test_a_guest_file_may_be_json() -> None:
    text = '{"apiVersion": "vcnode.io/v1alpha1", "kind": "Guest", "namespace": "n", "name": "p"}'
    assert parse(text.encode(), Path("/guests/j.json")).id == "j"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (f"{SMALL}netz: x\n", "netz: unknown key"),
        (f"{SMALL}id: a/b\n", "id: letters"),
        (f"{SMALL}tenant: A_B\n", "tenant: cluster key"),
        (f"{SMALL}channels: [netns]\n", "netns: needed for the channel netns"),
        (f"{SMALL}channels: [telepathy]\n", r"channels\[0\]: expected one of agent, stock, netns"),
        (f"{SMALL}networks: []\n", "networks: at least one"),
        (f"{HEAD}namespace: N\nname: '-'\n", "(?s)namespace: .*name: "),
        ("kind: Pod\napiVersion: v1\n", "kind: expected 'Guest', got 'Pod'"),
    ],
)
def test_an_invalid_guest_file_is_refused_with_the_reason(text: str, why: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse(text.encode(), Path("/guests/x.yaml"))
    assert caught.match(why)


def test_a_file_that_becomes_invalid_keeps_its_guest(tmp_path: Path) -> None:
    directory = GuestDirectory(tmp_path)
    (tmp_path / "a.yaml").write_text(SMALL)
    (tmp_path / "b.yaml").write_text("kind: Guest\n")
    (tmp_path / ".hidden.yaml").write_text("x")
    (tmp_path / "notes.txt").write_text("x")
    assert set(directory.read()) == {"a"}
    assert set(directory.problems) == {"b.yaml"}
    (tmp_path / "a.yaml").write_text("{")
    assert set(directory.read()) == {"a"}
    assert set(directory.problems) == {"a.yaml", "b.yaml"}
    (tmp_path / "a.yaml").unlink()
    assert directory.read() == {}


def test_of_two_files_with_one_id_the_first_counts(tmp_path: Path) -> None:
    directory = GuestDirectory(tmp_path)
    for name in ("a", "b"):
        (tmp_path / f"{name}.yaml").write_text(f"{HEAD}id: same\nnamespace: n\nname: {name}\n")
    assert directory.read()["same"].name == "a"
    assert directory.problems == {"b.yaml": "another file has the id same"}


def test_a_missing_directory_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(FilesError):
        GuestDirectory(tmp_path / "no").read()
