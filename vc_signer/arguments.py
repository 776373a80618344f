# SPDX-License-Identifier: Apache-2.0
"""The signer's command line. It has no configuration file: the operator writes its container's arguments."""

from __future__ import annotations

from collections.abc import Sequence

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse

DEFAULT_REFRESH_S = 5
# A day: pods' tokens last an hour and are renewed, and a key that signed must be served for this long.
DEFAULT_MAX_TOKEN_S = 86_400
DEFAULT_PROBE_PORT = 6444
OWN_UID = -1

_NUMBERS = {
    "--refresh-seconds": (1, 3_600),
    # The API server refuses less (docs/spec/external-jwt-signer.md#metadata).
    "--max-token-seconds": (600, (1 << 32) - 1),
    "--probe-port": (0, 65_535),
    "--peer-uid": (0, (1 << 32) - 2),
}


class SignerArguments:
    """What the signer is started with."""

    __slots__ = ("keys", "max_token_seconds", "peer_uid", "probe_port", "refresh_seconds", "socket")

    def __init__(
        self,
        keys: str,
        socket: str,
        refresh_seconds: int = DEFAULT_REFRESH_S,
        max_token_seconds: int = DEFAULT_MAX_TOKEN_S,
        probe_port: int = DEFAULT_PROBE_PORT,
        peer_uid: int = OWN_UID,
    ) -> None:
        self.keys = keys
        self.socket = socket
        self.refresh_seconds = refresh_seconds
        self.max_token_seconds = max_token_seconds
        self.probe_port = probe_port
        self.peer_uid = peer_uid


def parse(argv: Sequence[str]) -> SignerArguments:
    """Parse the command line. Raises `SystemExit`: 2 for an invalid one, 0 after the version or the help."""
    return _parse_plain(argv) or _parse_all(argv)


def _parse_plain(argv: Sequence[str]) -> SignerArguments | None:
    """`--option value` pairs, each once and valid; anything else is left to argparse, which takes 1.5 MB."""
    given = dict(zip(argv[::2], argv[1::2], strict=False))
    if len(given) * 2 != len(argv) or not {"--keys", "--socket"} <= given.keys():
        return None
    if not given.keys() <= {"--keys", "--socket", *_NUMBERS}:
        return None
    numbers = {}
    for name in given.keys() & _NUMBERS.keys():
        number = _number(name, given[name])
        if number is None:
            return None
        numbers[name[2:].replace("-", "_")] = number
    keys, socket = given["--keys"], given["--socket"]
    return None if _is_option(keys) or _is_option(socket) else SignerArguments(keys, socket, **numbers)


def _is_option(text: str) -> bool:
    return not text or text.startswith("-")


def _number(name: str, text: str) -> int | None:
    low, high = _NUMBERS[name]
    if not (text.isascii() and text.isdigit() and len(text) <= 10):
        return None
    return int(text) if low <= int(text) <= high else None


def _parse_all(argv: Sequence[str]) -> SignerArguments:
    parser = command_parser()
    parsed = parser.parse_args(argv)
    for name in _NUMBERS:
        text = getattr(parsed, name[2:].replace("-", "_"))
        number = _number(name, text) if isinstance(text, str) else text
        if number is None:
            low, high = _NUMBERS[name]
            parser.error(f"argument {name}: {text!r} is not a number from {low} to {high}")
        setattr(parsed, name[2:].replace("-", "_"), number)
    return SignerArguments(**vars(parsed))


def command_parser() -> argparse.ArgumentParser:
    """The options; the man page is made from them."""
    import argparse

    from daemonkit.version import VERSION

    parser = argparse.ArgumentParser(
        prog="vc-signer",
        description="Signs the service account tokens of one tenant's API server, which reaches it by"
        " --service-account-signing-endpoint.",
        allow_abbrev=False,
    )
    parser.add_argument(
        "--keys",
        required=True,
        metavar="DIRECTORY",
        help="signing.pem (EC P-256) signs, and KID.pub verify; read each second",
    )
    parser.add_argument("--socket", required=True, metavar="PATH", help="the API server's endpoint")
    for name, default, text in (
        ("--refresh-seconds", DEFAULT_REFRESH_S, "how often the API server asks for keys"),
        ("--max-token-seconds", DEFAULT_MAX_TOKEN_S, "the longest life of a token"),
        ("--probe-port", DEFAULT_PROBE_PORT, "TCP port of /livez and /readyz; 0 for none"),
    ):
        parser.add_argument(name, default=default, metavar="NUMBER", help=f"{text} (default: %(default)s)")
    parser.add_argument(
        "--peer-uid", default=OWN_UID, metavar="UID", help="the API server's user (default: the signer's own)"
    )
    parser.add_argument("--version", action="version", version=f"%(prog)s {VERSION}")
    return parser
