# SPDX-License-Identifier: Apache-2.0
from devkit.syncer.fake_view import TENANT, FakeView
from syncer.core.objects import Object
from syncer.core.pair import Pair
from syncer.core.plan import NOTHING, Conflict, Half, Plan
from syncer.kinds.secret import SYNC
from syncer.tokens.documents import IssuedToken, PodTokens, secret_of
from syncer.tokens.lifetime import TokenLifetime

KEY = ("default", "web-0-token")
ISSUED = IssuedToken(TokenLifetime("token-0", "", 3607, 3607, 0.0), "text")
POD = PodTokens(
    "default", "web-0", "uid-web-0", "sa", "vcs-7aad2b-tenant-00-default", KEY[1], (ISSUED.lifetime,)
)


def tokens_secret() -> Object:
    found = secret_of(POD, (ISSUED,), TENANT)
    found["metadata"]["uid"] = "uid-s"
    return found


def test_tokens_of_a_pod_are_not_removed_as_an_orphan() -> None:
    assert SYNC.plan(KEY, Pair(None, tokens_secret()), FakeView()) == NOTHING


def test_secret_of_the_same_name_is_a_conflict() -> None:
    own = {"metadata": {"name": KEY[1], "namespace": "default", "uid": "uid-own"}, "data": {"a": "Yg=="}}
    assert SYNC.plan(KEY, Pair(own, tokens_secret()), FakeView()) == Plan(
        Half(conflict=Conflict("Secret vcs-7aad2b-tenant-00-default/web-0-token has the tokens of a pod"))
    )
