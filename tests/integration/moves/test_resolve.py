# SPDX-License-Identifier: Apache-2.0
"""`gpumigrate resolve`: the operator's word where no message can decide. The target's node is lost for good
with COMMITTED on its disk: the job goes on at the source under the coordinator's leases, the migration stays
open, and `resolve --at source` closes it. While both sides answer, or nothing is open, it is refused."""
import os
import signal
import unittest

from cluster import run_unmoved
from crash_points import ARGUMENTS
from crashing import CrashingTest
from fault_points import Point


class Resolve(CrashingTest):

    def test_resolve_decides_a_move_whose_target_node_was_lost(self):
        cluster = self.cluster
        cluster.start("job", "hotset", *ARGUMENTS)
        cluster.wait_for_line("job", r"^step 5\b")
        agent = [os.pidfd_open(pid) for pid in cluster.pids("nodes/node-b/agent.toml")]
        cluster.arm("agent.node-b", Point.TARGET_COMMITTED_DURABLE)
        moving = cluster.popen("migrate", "job", "--to", "node-b", "--live", "--timeout", "60s")
        self.wait_until_fired("agent.node-b", Point.TARGET_COMMITTED_DURABLE, moving)
        self.wait_until_dead(agent)
        # The keeper of the standby is killed, and with it the standby: the whole node has failed.
        cluster.kill(f"jobs/{cluster.job('job')['id']}.2")
        self.assertTrue(cluster.json("migrations")[0]["open"])
        # The migration's result is "failed, at the source".
        resolved = cluster.call("resolve", "m1", "--at", "source", exits=(1,))
        self.assertIn("by an operator", resolved.stdout)
        output, errors = moving.communicate(timeout=120)
        self.assertIn(moving.returncode, (1, 3), output + errors)
        self.assertEqual(cluster.finish("job")["digest"], run_unmoved("hotset", *ARGUMENTS)["digest"])
        self.assert_steps_in_order(cluster.log("job"))
        self.assertEqual(cluster.job("job")["node"], "node-a")
        migration = cluster.json("migrations")[0]
        self.assertFalse(migration["open"], migration)
        # The node returns. Its commit is void, and no part of the job starts there.
        cluster.up()
        self.assertEqual(cluster.pids("examples/hotset"), [])

    def test_resolve_is_refused_without_an_undecided_move(self):
        cluster = self.cluster
        cluster.start("job", "hotset", *ARGUMENTS)
        cluster.wait_for_line("job", r"^step 5\b")
        self.assertRegex(cluster.call("resolve", "m7", "--at", "source", exits=(5,)).stderr, "m7")
        cluster.migrate("job", "node-b")
        cluster.call("resolve", "m1", "--at", "source", exits=(5,))
        self.assertEqual(cluster.finish("job")["digest"], run_unmoved("hotset", *ARGUMENTS)["digest"])
        self.assertEqual(cluster.job("job")["node"], "node-b")
