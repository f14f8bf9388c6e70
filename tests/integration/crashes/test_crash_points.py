# SPDX-License-Identifier: Apache-2.0
"""kill -9 at every numbered crash point (libckpt/base/fault_points.def), one per test.

Before COMMITTED the job goes on at the source from the very step it stopped at; from COMMITTED on exactly the
target's instance runs; a killed coordinator takes up where it was. The killed daemon is started again, as a
service manager does."""
import unittest

from cluster import run_unmoved
import test_gang_losses
import test_image_crashes
import test_peer_checkpoint_store_crashes
import test_peer_checkpoint_store_losses
import test_process_crashes
import test_process_losses
import test_remap
import test_swap_crashes
from crash_points import ARGUMENTS, EITHER, POINTS
from crashing import CrashingTest
from fault_points import Point

class CrashPoints(CrashingTest):
    expected = None

    @classmethod
    def setUpClass(cls):
        cls.expected = run_unmoved("hotset", *ARGUMENTS)["digest"]

    def crash(self, role, number, ends_on):
        cluster = self.cluster
        cluster.start("job", "hotset", *ARGUMENTS)
        cluster.wait_for_line("job", r"^step 5\b")
        victims = self.daemons_of(role)
        cluster.arm(role, number)
        # The command must end with one of these exit codes. 0 means a move; 1, 2 and 5 (refused) mean that
        # the job is at the source; 6 means lost contact.
        moved = self.move_until_fired(role, number)
        self.wait_until_dead(victims)
        cluster.up()
        output, errors = moved.communicate(timeout=120)
        self.assertIn(moved.returncode, (0, 1, 2, 5, 6), output + errors)
        ended = cluster.finish("job")
        self.assertEqual(ended["digest"], self.expected)
        self.assert_steps_in_order(cluster.log("job"))
        self.assertEqual(len([p for p in cluster.pids("examples/hotset")]), 0, "an instance is left over")
        node = cluster.job("job")["node"]
        if ends_on is not EITHER:
            self.assertEqual(node, ends_on)
        migration = cluster.json("migrations")[0]
        self.assertFalse(migration["open"], migration)


def make_test(role, number, ends_on):
    return lambda self: self.crash(role, number, ends_on)


for name, role, number, ends_on in POINTS:
    setattr(CrashPoints, f"test_{number}_{name}", make_test(role, number, ends_on))


class EveryPointIsTested(unittest.TestCase):
    def test_every_crash_point_is_in_a_table_of_a_test(self):
        # An abort reaches the first point (test_abort.py). The other points end the running keeper or rank:
        # they end the job, not a switch.
        never = {Point.COORDINATOR_ABORTED_DURABLE, Point.RANK_RESUMED, Point.KEEPER_DUMPED,
                 Point.RANK_RELEASED, Point.RANK_MAPPED}
        tested = {number for _, _, number, _ in POINTS}
        for table in (test_swap_crashes.POINTS, test_process_crashes.POINTS, test_process_losses.POINTS):
            tested |= {number for _, number, _ in table}
        tested |= {number for _, number, _ in test_remap.WHILE_FILLING}
        tested |= {number for _, number in [*test_image_crashes.POINTS, test_image_crashes.PARKED]}
        for table in (test_peer_checkpoint_store_crashes.COORDINATOR, test_peer_checkpoint_store_losses.AGENT,
                      test_peer_checkpoint_store_losses.SERVER):
            tested |= {number for _, number in table}
        # Crash points of images are tested in tests/fault/protect_test.cc and checkpoint_mover_test.cc.
        tested |= {Point.SNAPSHOT_PAUSED, Point.SNAPSHOT_SAVED, Point.SNAPSHOT_RESUMED,
                   Point.SNAPSHOT_DURABLE, Point.RESTORE_STARTED,
                   Point.RESTORE_FILLED, Point.SNAPSHOT_MOVER_READY, Point.SNAPSHOT_MOVER_STAGED,
                   Point.SNAPSHOT_MOVER_WRITTEN,
                   Point.SNAPSHOT_MOVER_COMMITTED, Point.RESTORE_MOVER_FILLED}
        tested.add(Point.MEMORY_FOLLOWS)  # tested in test_process_memory.py
        tested |= {number for _, _, number in test_gang_losses.POINTS}
        tested.add(Point.COORDINATOR_GANG_STORED)  # tested in test_gang_images.py
        self.assertEqual(set(Point) - never, tested)
