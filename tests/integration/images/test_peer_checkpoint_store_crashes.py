# SPDX-License-Identifier: Apache-2.0
"""kill -9 of the sender (its mover, its agent) and of the coordinator at each step of a snapshot into another
node's checkpoint store."""
import unittest

from peer_crashing import PeerCrashingTest
from fault_points import Point

MOVER = [("mover.node-a.0", number) for number in (Point.SNAPSHOT_MOVER_READY, Point.SNAPSHOT_MOVER_STAGED,
                                                   Point.SNAPSHOT_MOVER_WRITTEN,
                                                   Point.SNAPSHOT_MOVER_COMMITTED)]
AGENT = [("agent.node-a", number) for number in (Point.SNAPSHOT_PAUSED, Point.SNAPSHOT_SAVED,
                                                 Point.SNAPSHOT_RESUMED, Point.SNAPSHOT_DURABLE)]
COORDINATOR = [("coordinator", number) for number in (Point.COORDINATOR_CHECKPOINT_STORE_GRANTED,
                                                      Point.COORDINATOR_SNAPSHOT_TAKEN)]


class SenderCrashes(PeerCrashingTest):
    def test_job_survives_a_crash_at_each_step(self):
        self.crash_at_each(MOVER + AGENT + COORDINATOR)
