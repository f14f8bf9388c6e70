# SPDX-License-Identifier: Apache-2.0
"""kill -9 of the node that has the checkpoint store (its agent, its gpumigrate-checkpoint-store) at each step of a snapshot of
another node's job, and the link between them cut while content is on its way."""
import unittest

from peer_crashing import PeerCrashingTest
from fault_points import Point

AGENT = [("agent.node-b", number) for number in (Point.CHECKPOINT_STORE_ASKED, Point.CHECKPOINT_STORE_GRANTED)]
SERVER = [("vault.node-b", number) for number in (Point.CHECKPOINT_STORE_SERVER_GRANTED, Point.CHECKPOINT_STORE_SERVER_WRITTEN,
                                                  Point.CHECKPOINT_STORE_SERVER_SYNCED, Point.CHECKPOINT_STORE_SERVER_RENAMED,
                                                  Point.CHECKPOINT_STORE_SERVER_SETTLED)]
CUT = [("vault.node-b", number) for number in (Point.CHECKPOINT_STORE_SERVER_WRITTEN, Point.CHECKPOINT_STORE_SERVER_SYNCED,
                                               Point.CHECKPOINT_STORE_SERVER_SETTLED)]


class PeerLosses(PeerCrashingTest):
    def test_job_survives_a_crash_at_each_step(self):
        self.crash_at_each(AGENT + SERVER)

    def test_job_survives_an_interrupted_link(self):
        self.crash_at_each(CUT, cut=True)
