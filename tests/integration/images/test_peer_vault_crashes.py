# SPDX-License-Identifier: Apache-2.0
"""kill -9 of the sender (its mover, its agent) and of the coordinator at each step of a snapshot into another node's vault."""
import unittest

from peer_crashing import PeerCrashingTest

MOVER = [("mover.node-a.0", number) for number in (305, 306, 307, 308)]
AGENT = [("agent.node-a", number) for number in (111, 112, 113, 114)]
COORDINATOR = [("coordinator", number) for number in (630, 631)]


class SenderCrashes(PeerCrashingTest):
    def test_at_each_step(self):
        self.crash_at_each(MOVER + AGENT + COORDINATOR)
