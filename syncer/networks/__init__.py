# SPDX-License-Identifier: Apache-2.0
"""Each tenant's Networks: a DNS server for each flat one, as Arktos' network controller made it."""
