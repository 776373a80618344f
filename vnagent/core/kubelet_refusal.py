# SPDX-License-Identifier: Apache-2.0
"""The body of a kubelet's refusal: collected up to a bound, and read without its framing."""

from vnagent.core.head import ResponseHead

# A kubelet's refusal is a sentence.
MAX_REFUSAL_BYTES = 4096


class KubeletRefusal:
    """Collects the body, so that vn-agent can answer in its own words."""

    __slots__ = ("body", "head")

    def __init__(self, head: ResponseHead) -> None:
        self.head = head
        self.body = b""

    def feed(self, data: memoryview) -> bool:
        """Add `data` up to the bound; return whether it is reached."""
        self.body += bytes(data[: MAX_REFUSAL_BYTES - len(self.body)])
        return len(self.body) >= MAX_REFUSAL_BYTES

    def text(self) -> bytes:
        """The kubelet's sentence. A kubelet sends the 400 of a log in chunks."""
        if not self.head.is_chunked:
            return self.body
        parts: list[bytes] = []
        line, _, rest = self.body.partition(b"\r\n")
        # A chunk whose end is beyond the bound ends there.
        while rest and (size := int(line.partition(b";")[0], 16)):
            parts.append(rest[:size])
            line, _, rest = rest[size + 2 :].partition(b"\r\n")
        return b"".join(parts)
