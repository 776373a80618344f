# SPDX-License-Identifier: Apache-2.0
"""Stand-ins for what the daemons talk to: for tests, the demo and labs, never for a real node."""
