# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest

from daemonkit.run.memory_limit import MemoryLimit
from syncer.__main__ import main
from syncer.config import SyncerConfiguration, load
from syncer.core.memory import room
from syncer.run.start_check import start_problems

KUBECONFIG = """\
apiVersion: v1
kind: Config
clusters: [{name: super, cluster: {server: "https://10.0.0.1:6443"}}]
users: [{name: syncer, user: {token: abc}}]
contexts: [{name: super, context: {cluster: super, user: syncer}}]
current-context: super
"""
CREATE = "create it, or correct the path in the configuration"
MISSING = f"No such file or directory; {CREATE}"
HEAD = "apiVersion: vcnode.io/v1alpha1\nkind: SyncerConfiguration\n"


def configured(directory: Path, text: str) -> SyncerConfiguration:
    file = directory / "vc-syncer.yaml"
    file.write_text(HEAD + text)
    return load(file)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("tenants: {virtualClusters: {}}\n", []),
        ("tenants: {virtualClusters: {kubeconfigFile: good}}\nsuperCluster: {kubeconfigFile: good}\n", []),
        ("tenants: {directory: tenants}\nsuperCluster: {kubeconfigFile: good}\n", []),
        (
            "tenants: {directory: none}\nsuperCluster: {kubeconfigFile: missing}\n",
            [
                f"superCluster.kubeconfigFile: DIR/missing: {MISSING}",
                f"tenants.directory: DIR/none: {MISSING}",
            ],
        ),
        (
            "tenants: {virtualClusters: {kubeconfigFile: empty}}\nsuperCluster: {kubeconfigFile: good}\n",
            ["tenants.virtualClusters.kubeconfigFile: DIR/empty: EMPTY"],
        ),
        (
            "tenants: {directory: good}\nsuperCluster: {kubeconfigFile: good}\n",
            [f"tenants.directory: DIR/good: Not a directory; {CREATE}"],
        ),
    ],
)
def test_files_that_a_start_needs_are_examined(tmp_path: Path, text: str, expected: list[str]) -> None:
    (tmp_path / "good").write_text(KUBECONFIG)
    (tmp_path / "empty").write_text("")
    (tmp_path / "tenants").mkdir()
    found = [
        str(each).replace(str(tmp_path), "DIR") for each in start_problems(configured(tmp_path, text), 0.0)
    ]
    assert [each.partition("EMPTY")[0] for each in expected] == [
        each[: len(wanted.partition("EMPTY")[0])] for each, wanted in zip(found, expected, strict=True)
    ]


def test_keys_that_continue_others_are_named(tmp_path: Path) -> None:
    (tmp_path / "good").write_text(KUBECONFIG)
    (tmp_path / "tenants").mkdir()
    for key in ("acme", "acme-blue", "rival"):
        (tmp_path / "tenants" / f"{key}.kubeconfig").write_text(KUBECONFIG)
    config = configured(tmp_path, "tenants: {directory: tenants}\nsuperCluster: {kubeconfigFile: good}\n")
    found = list(start_problems(config, 0.0))
    assert [(each.path and each.path.name, "begin alike" in each.message) for each in found] == [
        ("acme-blue.kubeconfig", True)
    ]


_KEY = "warning: maxMemoryBytes: /sys/fs/cgroup/a/memory.max: "


def _limit(mebibytes: int) -> MemoryLimit:
    return MemoryLimit(mebibytes << 20, Path("/sys/fs/cgroup/a/memory.max"))


@pytest.mark.parametrize(
    ("text", "limit", "expected"),
    [
        ("", None, []),
        ("", _limit(1024), []),
        ("maxMemoryBytes: 1073741824\n", _limit(1024), []),
        (
            "maxMemoryBytes: 1073741824\n",
            _limit(512),
            [
                f"{_KEY}1024 MiB are more than the 512 MiB of the process' cgroup: the kernel ends it before "
                "a tenant has to wait; leave the key out, or lower it"
            ],
        ),
        (
            "",
            _limit(200),
            [
                f"{_KEY}200 MiB are too little: the process takes 256 MiB before a tenant has to "
                "wait; raise the limit of the cgroup"
            ],
        ),
    ],
)
def test_a_limit_of_memory_that_cannot_hold_is_named(
    tmp_path: Path, text: str, limit: MemoryLimit | None, expected: list[str]
) -> None:
    (tmp_path / "good").write_text(KUBECONFIG)
    config = configured(tmp_path, text + "tenants: {virtualClusters: {kubeconfigFile: good}}\n")
    assert [str(each) for each in start_problems(config, 0.0, lambda: limit)] == expected


def test_more_tenants_than_there_is_memory_for_are_named(tmp_path: Path) -> None:
    (tmp_path / "good").write_text(KUBECONFIG)
    (tmp_path / "tenants").mkdir()
    most = room(256 << 20)
    for number in range(most + 1):
        (tmp_path / "tenants" / f"tenant-{number:03}.kubeconfig").write_text(KUBECONFIG)
    config = configured(tmp_path, "tenants: {directory: tenants}\nsuperCluster: {kubeconfigFile: good}\n")
    assert [str(each) for each in start_problems(config, 0.0, lambda: _limit(256))] == [
        f"{_KEY}256 MiB have room for 32 tenants, and there are 33; "
        "raise the limit to 258 MiB, or divide the tenants among replicas"
    ]
    (tmp_path / "tenants" / "tenant-000.kubeconfig").unlink()
    assert list(start_problems(config, 0.0, lambda: _limit(256))) == []


def test_check_prints_all_errors_and_exits_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    configured(tmp_path, "tenants: {directory: none}\nsuperCluster: {kubeconfigFile: missing}\n")
    file = tmp_path / "vc-syncer.yaml"
    with pytest.raises(SystemExit) as caught:
        main(["--config", str(file), "--check-config"])
    assert caught.value.code == 2
    assert capsys.readouterr().err.splitlines() == [
        f"{file}: superCluster.kubeconfigFile: {tmp_path}/missing: {MISSING}",
        f"{file}: tenants.directory: {tmp_path}/none: {MISSING}",
    ]


def test_check_of_a_broken_file_has_the_paths(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "vc-syncer.yaml"
    file.write_text(
        HEAD
        + "tenants: {}\nvnAgent: {port: 0}\nresources: [podz]\npatrol: {intervalSeconds: x}\nnonsense: 1\n"
    )
    with pytest.raises(SystemExit) as caught:
        main(["--config", str(file), "--check-config"])
    assert caught.value.code == 2
    text = capsys.readouterr().err
    for path in ("nonsense", "vnAgent.port", "patrol.intervalSeconds"):
        assert path in text, text
