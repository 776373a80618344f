# SPDX-License-Identifier: Apache-2.0
"""What promtool is given for the alerts."""
