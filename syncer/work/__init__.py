# SPDX-License-Identifier: Apache-2.0
"""What is done for tenants: the queue, plans carried out, reports, patrols."""
