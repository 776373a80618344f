# SPDX-License-Identifier: Apache-2.0
"""Takes cures out of the code, one at a time, and sees whether their tests fail."""
