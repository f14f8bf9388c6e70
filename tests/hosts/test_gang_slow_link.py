# SPDX-License-Identifier: Apache-2.0
"""Ranks of a job move to hosts of which one has a slow link: its rank's last copy takes far longer than the others'."""
import unittest

from cluster import EXAMPLES
from host_cluster import HostsTest
from test_gang_moves import GangMovesTest

HANDOVER_MS = 1000  # how long sources wait for a switch, in milliseconds


@unittest.skipUnless((EXAMPLES / "charlm-dp").exists(), "there was no nccl.h")
class GangMovesOverASlowLink(HostsTest, GangMovesTest):
    nodes = 4
    agent_settings = f"timeouts = {{ handover_ms = {HANDOVER_MS} }}\n"

    def test_ranks_wait_for_the_last_copy_of_each_other(self):
        self.start(2, options=("--ranks", "2", "--nodes", "node-a,node-b"), steps=("--params", "400000", "--print-every", "1"))
        self.cluster.hosts.limit("node-d", "10mbit")
        self.migrate("--to", "node-c,node-d", "--stop-copy", "--codec", "raw", "--timeout", "120s")
        self.settled()
        self.assertEqual([gpu.split(":")[0] for gpu in self.gpus_of_job()], ["node-c", "node-d"])
        fast, slow = sorted(m["report"]["downtime_breakdown_ms"]["final"] for m in self.cluster.json("migrations"))
        self.assertGreater(slow - fast, 2 * HANDOVER_MS, "the last copies were too alike for this test")
        self.cluster.hosts.limit("node-d", "none")
        self.check_end()


if __name__ == "__main__":
    unittest.main()
