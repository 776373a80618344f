# SPDX-License-Identifier: Apache-2.0
"""The ring `site`: the documentation as a site, its links, and its pages in a browser."""
