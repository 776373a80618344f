# SPDX-License-Identifier: Apache-2.0
"""libnftables in this process, by ctypes: the same language as `nft -f`, without the process.

A change of one Service takes 0.4 ms and not 14: a process that ends closes its netlink socket, and
the kernel then waits until nobody can be reading the rules that went. The context is kept for the
same reason; what it remembers of the rules it checks by their generation (libnftables-api(3)).
"""

import ctypes
import os
from collections.abc import Sequence

from guest_agent.kernel.programs import Ended

# The library is part of every nft since 0.9; another number would be another interface.
_NAMES: Sequence[str] = ("libnftables.so.1",)
# Names in a text are never looked up: a guest's resolver would be asked about each typing error.
_INPUT_NO_DNS = 1
_MAX_ERROR_CHARACTERS = 4_000


class LibNftables:
    """One context. Not for several threads."""

    def __init__(self) -> None:
        """Raises `OSError` where the library is not there, or is not what it should be."""
        self._library = _library()
        context: int | None = self._library.nft_ctx_new(0)
        if context is None:
            raise OSError("libnftables does not give a context")
        self._context = ctypes.c_void_p(context)
        self._library.nft_ctx_buffer_error(self._context)
        self._library.nft_ctx_buffer_output(self._context)
        if hasattr(self._library, "nft_ctx_input_set_flags"):
            self._library.nft_ctx_input_set_flags(self._context, _INPUT_NO_DNS)

    def close(self) -> None:
        """Free the context, and with it the socket that holds its network namespace."""
        self._library.nft_ctx_free(self._context)

    def run(self, text: str) -> Ended:
        """Run commands as one transaction."""
        data = text.encode()
        ended = self._ended(self._library.nft_run_cmd_from_buffer(self._context, data))
        # Of a buffer it always blames the first line (seen with 1.0.6), of a file the right one. So
        # what was refused is run once more; if it is not refused again, so much the better.
        return self._run_as_file(data) if ended.status else ended

    def _run_as_file(self, data: bytes) -> Ended:
        descriptor = os.memfd_create("nft", os.MFD_CLOEXEC)
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(descriptor, view) :]
            name = f"/proc/self/fd/{descriptor}".encode()
            return self._ended(self._library.nft_run_cmd_from_filename(self._context, name))
        finally:
            os.close(descriptor)

    def _ended(self, status: int) -> Ended:
        errors = self._library.nft_ctx_get_error_buffer(self._context) or b""
        output = self._library.nft_ctx_get_output_buffer(self._context) or b""
        return Ended(
            status,
            output.decode("utf-8", "replace"),
            errors.decode("utf-8", "replace")[:_MAX_ERROR_CHARACTERS],
        )


def _library() -> ctypes.CDLL:
    problem = OSError("no name to try")
    for name in _NAMES:
        try:
            library = ctypes.CDLL(name)
            library.nft_ctx_new.restype = ctypes.c_void_p
            library.nft_ctx_new.argtypes = [ctypes.c_uint32]
            library.nft_ctx_free.argtypes = [ctypes.c_void_p]
            library.nft_ctx_free.restype = None
            for function in (library.nft_ctx_buffer_error, library.nft_ctx_buffer_output):
                function.argtypes = [ctypes.c_void_p]
            for function in (library.nft_ctx_get_error_buffer, library.nft_ctx_get_output_buffer):
                function.argtypes = [ctypes.c_void_p]
                function.restype = ctypes.c_char_p
            for function in (library.nft_run_cmd_from_buffer, library.nft_run_cmd_from_filename):
                function.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
            if hasattr(library, "nft_ctx_input_set_flags"):
                library.nft_ctx_input_set_flags.argtypes = [ctypes.c_void_p, ctypes.c_uint]
        except OSError as error:
            problem = error
        except AttributeError as error:
            problem = OSError(str(error))
        else:
            return library
    raise problem
