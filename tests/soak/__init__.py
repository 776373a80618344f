# SPDX-License-Identifier: Apache-2.0
"""All daemons under mixed load and faults, for minutes or hours. README.md says what is checked."""
