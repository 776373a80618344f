# SPDX-License-Identifier: Apache-2.0
"""Heads written line by line."""

LINE = b"GET /pods HTTP/1.1"
HOST = b"Host: node-1:10550"


def head(*lines: bytes) -> bytes:
    return b"\r\n".join(lines)
