# SPDX-License-Identifier: Apache-2.0
"""Command lines as people write them."""

import argparse

import pytest

from kubectl_vc.arguments import VERBS, parse, parser, seconds
from kubectl_vc.core.command import Command, Scope

ACME = Scope(namespace="tenants")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("create acme", Command("create", name="acme", waits=True, timeout_s=300)),
        ("create -n tenants acme --no-wait", Command("create", ACME, "acme", timeout_s=300)),
        ("-n tenants create acme --wait=false", Command("create", ACME, "acme", timeout_s=300)),
        (
            "--namespace=tenants create --wait=true acme",
            Command("create", ACME, "acme", waits=True, timeout_s=300),
        ),
        (
            "--timeout 1h30m create acme -ntenants",
            Command("create", ACME, "acme", waits=True, timeout_s=5400),
        ),
        (
            "create --class small --cluster-version v1.34 acme --service-cidr 10.3.0.0/16 --cluster-domain"
            " a.b",
            Command(
                "create",
                name="acme",
                cluster_version="v1.34",
                size_class="small",
                service_cidr="10.3.0.0/16",
                cluster_domain="a.b",
                waits=True,
                timeout_s=300,
            ),
        ),
        (
            "--context super --as ada --as-group=a get --as-group b -A --kubeconfig k.yaml -o=wide",
            Command(
                "get",
                Scope(kubeconfig="k.yaml", context="super", as_user="ada", as_groups=("a", "b")),
                output="wide",
                is_all_namespaces=True,
            ),
        ),
        ("get a -ojson b", Command("get", names=("a", "b"), output="json")),
        ("kubeconfig acme -o -", Command("kubeconfig", name="acme", output="-")),
        ("kubeconfig --merge acme", Command("kubeconfig", name="acme", output="-", can_merge=True)),
        # A name may be a verb's.
        ("-n get get get", Command("get", Scope(namespace="get"), names=("get",))),
        ("upgrade acme --no-wait v1.35", Command("upgrade", name="acme", cluster_version="v1.35")),
        ("upgrade --confirm acme", Command("upgrade", name="acme", can_confirm=True, waits=True)),
        ("rollback acme", Command("rollback", name="acme", waits=True)),
        ("sleep acme", Command("sleep", name="acme", waits=True)),
        ("wake acme --timeout=30", Command("wake", name="acme", waits=True, timeout_s=30)),
        ("backup acme b1", Command("backup", name="acme", backup="b1", waits=True)),
        (
            "restore --from b1 acme --to new --yes --as ada",
            Command(
                "restore",
                Scope(as_user="ada"),
                "acme",
                backup="b1",
                new_name="new",
                is_confirmed=True,
                waits=True,
            ),
        ),
        (
            "rotate acme cluster-ca --wait etcd-ca",
            Command("rotate", name="acme", names=("cluster-ca", "etcd-ca"), waits=True),
        ),
        (
            "rotate --revoke acme cluster-ca --yes",
            Command("rotate", name="acme", names=("cluster-ca",), can_revoke=True, is_confirmed=True),
        ),
        ("rotate acme all", Command("rotate", name="acme", names=("all",))),
        (
            "delete acme --keep-volumes --yes",
            Command("delete", name="acme", keeps_volumes=True, is_confirmed=True, waits=True),
        ),
        ("doctor acme", Command("doctor", name="acme")),
        ("unblock acme --webhook w", Command("unblock", name="acme", webhook="w")),
        (
            "credential --context=super --namespace=tenants acme",
            Command("credential", Scope("tenants", context="super"), "acme"),
        ),
    ],
)
def test_flags_stand_anywhere(words: str, expected: Command) -> None:
    assert parse(words.split()) == expected


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("", ""),
        ("creat acme", "invalid choice: 'creat'"),
        ("create", "the following arguments are required: NAME"),
        ("create a b", "unrecognized arguments: b"),
        ("create a --clas small", "unrecognized arguments: --clas"),
        ("create a --timeout 0", "'0' is no duration such as 90s or 5m"),
        ("create a --timeout 5x", "'5x' is no duration such as 90s or 5m"),
        ("create a --insecure-skip-tls-verify", "unrecognized arguments: --insecure-skip-tls-verify"),
        ("get -o table", "invalid choice: 'table'"),
        ("upgrade a", "name a ClusterVersion to upgrade to, or --confirm the upgrade before"),
        ("upgrade a v1.35 --confirm", "name a ClusterVersion to upgrade to, or --confirm the upgrade before"),
        ("restore a", "the following arguments are required: --from"),
        ("rotate a", "the following arguments are required: WHAT"),
        ("rotate a everything", "invalid choice: 'everything'"),
        ("rotate a all --revoke", "--revoke is for cluster-ca or service-account-keys"),
        ("-n", "the following arguments are required: VERB"),
    ],
)
def test_wrong_usage_is_2(words: str, message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        parse(words.split())
    assert raised.value.code == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    "words", ["--help", "create --help", "create acme -h", "-n x get --help", "--version"]
)
def test_help_and_version_are_0(words: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as raised:
        parse(words.split())
    assert raised.value.code == 0
    assert "kubectl" in capsys.readouterr().out


def test_help_has_each_verb_but_the_hidden_one() -> None:
    printed = parser().format_help()
    assert [verb for verb in VERBS if f"    {verb} " not in printed and f"    {verb}\n" not in printed] == []
    assert "credential" not in printed


@pytest.mark.parametrize(
    ("text", "expected"), [("90s", 90), ("5m", 300), ("1h", 3600), ("1h1m1s", 3661), ("7", 7)]
)
def test_durations(text: str, expected: float) -> None:
    assert seconds(text) == expected


@pytest.mark.parametrize("text", ["", "s", "1d", "-1s", "1.5m", "5m1h"])
def test_bad_durations(text: str) -> None:
    with pytest.raises(argparse.ArgumentTypeError):
        seconds(text)
