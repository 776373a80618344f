# SPDX-License-Identifier: Apache-2.0
"""TLS contexts, and the calls of libssl that Python's ssl lacks."""
