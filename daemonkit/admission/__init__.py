# SPDX-License-Identifier: Apache-2.0
"""Which unauthenticated connections a server takes, and in which order it serves them. Pure."""
