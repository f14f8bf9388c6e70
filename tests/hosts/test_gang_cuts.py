# SPDX-License-Identifier: Apache-2.0
"""A host is cut off from all others while ranks of a job move, until the coordinator has given it up. The ranks run on as
a whole, moved or not, and no step is computed twice."""
import os
import signal
import unittest

from cluster import EXAMPLES
from crashing import CrashingTest
from fault_points import Point
from host_cluster import HostsTest
from test_gang_moves import GangMovesTest
from waiting import eventually

# Ranks 0 and 1 stay on node-a, rank 2 on node-b; rank 3 moves from node-b to node-c. The process waits at its
# point while the host is disconnected.
CUTS = (
    ("agent.node-b", Point.SOURCE_PREPARING, "node-b"),
    ("agent.node-b", Point.SOURCE_BARRIER_DURABLE, "node-b"),
    ("agent.node-b", Point.SOURCE_BARRIER_DURABLE, "node-c"),
    ("agent.node-c", Point.TARGET_COMMITTED_DURABLE, "node-c"),
    ("agent.node-c", Point.TARGET_COMMITTED_DURABLE, "node-a"),
    ("agent.node-c", Point.TARGET_IN_GATE, "node-c"),
    ("agent.node-a", Point.BYSTANDER_HELD, "node-a"),
    ("agent.node-a", Point.BYSTANDER_GONE, "node-a"),
    ("coordinator", Point.COORDINATOR_RANKS_GATHERED, "node-b"),
    ("agent.node-b", Point.SOURCE_RELEASED_DURABLE, "node-b"),
)


@unittest.skipUnless((EXAMPLES / "charlm-dp").exists(), "there was no nccl.h")
class GangCuts(HostsTest, GangMovesTest, CrashingTest):
    nodes = 3

    def states_of_nodes(self):
        return {node["name"]: node["state"] for node in self.cluster.json("nodes")}

    def cut_while(self, role, point, host):
        self.start(options=("--ranks", "4", "--nodes", "node-a,node-b"))
        held = self.daemons_of(role)
        self.cluster.arm(role, point, "stop")
        with self.cluster.popen("migrate", "train", "--rank", "3", "--to", "node-c", "--timeout", "120s") as moving:
            self.wait_until_fired(role, point, moving)
            self.cluster.hosts.cut(host)
            for process in held:
                signal.pidfd_send_signal(process, signal.SIGCONT)
                os.close(process)
            eventually(lambda: self.states_of_nodes()[host] == "unreachable", f"{host} is given up")
            self.cluster.hosts.restore(host)
            eventually(self.cluster.all_ready, "all nodes are back")
            output, errors = moving.communicate(timeout=180)
        self.assertIn(moving.returncode, (0, 1, 2, 3, 6), output + errors)
        self.settled()
        self.check_end()


def add_case(role, point, host):
    def test(self):
        self.cut_while(role, point, host)

    setattr(GangCuts, f"test_{point.name.lower()}_{host.replace('-', '_')}_is_cut_off", test)


for role, point, host in CUTS:
    add_case(role, point, host)


if __name__ == "__main__":
    unittest.main()
