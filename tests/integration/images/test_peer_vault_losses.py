# SPDX-License-Identifier: Apache-2.0
"""kill -9 of the node that has the vault (its agent, its gpumigrate-vault) at each step of a snapshot of another node's job, and the link between them cut
while content is on its way."""
import unittest

from peer_crashing import PeerCrashingTest

AGENT = [("agent.node-b", number) for number in (231, 232)]
SERVER = [("vault.node-b", number) for number in (801, 802, 803, 804, 805)]
CUT = [("vault.node-b", number) for number in (802, 803, 805)]


class PeerLosses(PeerCrashingTest):
    def test_at_each_step(self):
        self.crash_at_each(AGENT + SERVER)

    def test_the_link_is_cut(self):
        self.crash_at_each(CUT, cut=True)
