# SPDX-License-Identifier: Apache-2.0
"""Whether the product's regular expressions take time that grows no faster than their input.

`expressions` finds them all, `automaton` proves it of each or shows two ways through a text that multiply,
`steps` counts what a backtracking matcher does with texts that are pumped up. The unit ring runs both.

Own code, as regexploit 1.0.0 was tried first: of the two expressions by which a guest has stopped
kata-bridge it finds neither (it searches for repeats beside repeats, not for a restarted search),
and it cannot read possessive quantifiers, which are the cure.
"""
