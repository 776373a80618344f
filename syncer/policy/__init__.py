# SPDX-License-Identifier: Apache-2.0
"""What a tenant may send down: the admission of the super cluster. Pure."""
