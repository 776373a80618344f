# SPDX-License-Identifier: Apache-2.0
"""One request of a tenant in progress; `port` is what it uses of its client's connection."""
