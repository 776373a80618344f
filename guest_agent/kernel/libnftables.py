# SPDX-License-Identifier: Apache-2.0
"""libnftables by ctypes: the language of `nft -f`, without a process.

A change of one Service takes 0.4 ms instead of 14. A process that ends closes its netlink socket, and
the kernel then waits until no packet can be reading the deleted rules. The context is kept for the
same reason; it checks its cache of the rules by their generation (libnftables-api(3)).
"""

import ctypes
import os
from collections.abc import Sequence

from guest_agent.kernel.programs import ProgramResult

# Every nft since 0.9 has the library. Another number would be another ABI.
_NAMES: Sequence[str] = ("libnftables.so.1",)
# No DNS look-ups of names in a script.
_INPUT_NO_DNS = 1
_MAX_ERROR_CHARACTERS = 4_000


class LibNftables:
    """One context. Not thread-safe."""

    def __init__(self) -> None:
        """Raises `OSError` if the library is missing or incompatible."""
        self._library = _library()
        context: int | None = self._library.nft_ctx_new(0)
        if context is None:
            raise OSError("libnftables cannot create a context")
        self._context = ctypes.c_void_p(context)
        self._library.nft_ctx_buffer_error(self._context)
        self._library.nft_ctx_buffer_output(self._context)
        if hasattr(self._library, "nft_ctx_input_set_flags"):
            self._library.nft_ctx_input_set_flags(self._context, _INPUT_NO_DNS)

    def close(self) -> None:
        """Free the context, and its socket in the network namespace."""
        self._library.nft_ctx_free(self._context)

    def run(self, text: str) -> ProgramResult:
        """Run commands as one transaction."""
        data = text.encode()
        result = self._result(self._library.nft_run_cmd_from_buffer(self._context, data))
        # For a buffer its errors name the first line (seen with 1.0.6), for a file the right one. So a
        # refused script is run again as a file. Should it succeed then, that is as good.
        return self._run_as_file(data) if result.status else result

    def _run_as_file(self, data: bytes) -> ProgramResult:
        descriptor = os.memfd_create("nft", os.MFD_CLOEXEC)
        try:
            view = memoryview(data)
            while view:
                view = view[os.write(descriptor, view) :]
            name = f"/proc/self/fd/{descriptor}".encode()
            return self._result(self._library.nft_run_cmd_from_filename(self._context, name))
        finally:
            os.close(descriptor)

    def _result(self, status: int) -> ProgramResult:
        errors = self._library.nft_ctx_get_error_buffer(self._context) or b""
        output = self._library.nft_ctx_get_output_buffer(self._context) or b""
        return ProgramResult(
            status,
            output.decode("utf-8", "replace"),
            errors.decode("utf-8", "replace")[:_MAX_ERROR_CHARACTERS],
        )


def _library() -> ctypes.CDLL:
    failure = OSError("no library name to try")
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
            failure = error
        except AttributeError as error:
            failure = OSError(str(error))
        else:
            return library
    raise failure
