# SPDX-License-Identifier: Apache-2.0
"""Stand-ins for kata-bridge, as its clients see it; no part of any daemon."""
