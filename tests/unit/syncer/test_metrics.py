# SPDX-License-Identifier: Apache-2.0
import pytest

from daemonkit.kube.client import ApiError, UnreachableError
from daemonkit.kube.resources import Status
from syncer.metrics import TENANT_CLASSES, failure_cause, tenant_class


@pytest.mark.parametrize(
    ("weight", "expected"),
    [(1, "default"), (2, "raised"), (9, "raised"), (10, "high"), (100, "high")],
)
def test_weights_have_three_classes(weight: int, expected: str) -> None:
    assert tenant_class(weight) == expected
    assert expected in TENANT_CLASSES


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (UnreachableError("refused"), "unreachable"),
        (ApiError(Status(code=401)), "unauthorized"),
        (ApiError(Status(code=403)), "forbidden"),
        (ApiError(Status(code=404)), "notFound"),
        (ApiError(Status(code=409)), "conflict"),
        (ApiError(Status(code=422)), "refused"),
        (ApiError(Status(code=429)), "throttled"),
        (ApiError(Status(code=503)), "server"),
        (KeyError("spec"), "unexpected"),
    ],
)
def test_failures_have_a_few_causes(error: Exception, expected: str) -> None:
    assert failure_cause(error) == expected
