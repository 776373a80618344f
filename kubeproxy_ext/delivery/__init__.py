# SPDX-License-Identifier: Apache-2.0
"""Pure: the ruleset of each guest, and when to push it."""
