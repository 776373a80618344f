# SPDX-License-Identifier: Apache-2.0
from pathlib import Path

import pytest

from kata_bridge.channels.stock.shim import ROOTS, SOCKET_NAME, shim_socket


def test_roots_of_both_shims_with_go_first() -> None:
    assert [str(root) for root in ROOTS] == ["/run/vc/sbs", "/run/kata"]


@pytest.mark.parametrize(
    "sandbox_id", ["", ".", "..", "../x", "a/b", "/etc", "-x", ".hidden", "a\n", "ü", "x" * 129]
)
def test_no_id_leads_out_of_the_roots(sandbox_id: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is not a sandbox id"):
        shim_socket(sandbox_id, [tmp_path])


def test_regular_file_is_not_the_shims_socket(tmp_path: Path) -> None:
    socket_path = tmp_path / "abc" / SOCKET_NAME
    socket_path.parent.mkdir()
    socket_path.write_text("")

    assert shim_socket("abc", [tmp_path]) is None
    assert shim_socket("def", [tmp_path]) is None
