# SPDX-License-Identifier: Apache-2.0
"""Cases of objects that the syncer makes of others, in both directions, against the plans of its kinds."""
