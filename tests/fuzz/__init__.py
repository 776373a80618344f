# SPDX-License-Identifier: Apache-2.0
"""The ring `fuzz`: parsers of what others send, under a fuzzer that follows their coverage. See README.md."""
