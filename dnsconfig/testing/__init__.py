# SPDX-License-Identifier: Apache-2.0
"""Stand-ins for what dnsconfig speaks to; no part of the daemon."""
