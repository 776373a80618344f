# SPDX-License-Identifier: Apache-2.0
"""`python -m tests.reference`: writes docs/reference, and definitions of others."""

from tests.reference import pages

if __name__ == "__main__":
    pages.write()
