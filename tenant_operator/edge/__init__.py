# SPDX-License-Identifier: Apache-2.0
"""Where steps become requests, and the super cluster's objects become what plans are made from."""
