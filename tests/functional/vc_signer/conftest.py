# SPDX-License-Identifier: Apache-2.0
"""A signer with one key, and a client of gRPC and protobuf's own."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.functional.vc_signer.signer_process import SignerProcess
from tests.signing_keys import AccountKey, files


@pytest.fixture
def key() -> AccountKey:
    return AccountKey.create()


@pytest.fixture
def signer(tmp_path: Path, key: AccountKey) -> Iterator[SignerProcess]:
    made = SignerProcess(tmp_path, files(key))
    try:
        made.wait_started()
        yield made
    finally:
        made.process.kill()
        made.process.wait()


@pytest.fixture(scope="session")
def api() -> Any:
    """The modules of messages and of stubs, generated from the .proto beside this file."""
    return grpc.protos_and_services("tests/functional/vc_signer/external_jwt_signer.proto")


@pytest.fixture
def channel(signer: SignerProcess) -> Iterator[grpc.Channel]:
    with grpc.insecure_channel(f"unix:{signer.socket}") as made:
        yield made
