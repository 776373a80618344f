# SPDX-License-Identifier: Apache-2.0
"""The demo's scenarios, in the order of the runner."""
