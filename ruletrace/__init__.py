# SPDX-License-Identifier: Apache-2.0
"""Where a packet of a guest goes: by the model of its rules, and by the text of a packet filter."""
