# SPDX-License-Identifier: Apache-2.0
"""Which of several networks a move goes over, and what happens where there is none, or it is cut."""
import unittest

from host_cluster import HostsTest
from waiting import eventually

TRAINING = ["--params", "200000", "--seed", "3", "--print-every", "1"]


class Networks(HostsTest):
    transports = ("ucx-trusted", "tls", "tls")

    def start_job(self):
        self.cluster.start("job", "charlm", *TRAINING, "--steps", "100000")
        self.cluster.wait_for_line("job", r"^step \d+")

    def without_network(self, node, *networks):
        """The node's agent starts again without these, and with the others."""
        self.cluster.restart_agent(node, networks)
        left = [f"net{network}" for network in range(3) if network not in networks] or ["local"]
        eventually(lambda: self.networks_of(node) == left, f"{node} has connected with {left}")

    def networks_of(self, node):
        known = next(entry for entry in self.cluster.json("nodes") if entry["name"] == node)
        return [network["name"] for network in known["networks"]]

    def test_the_first_network_of_both_is_used(self):
        self.start_job()
        self.assertEqual(self.cluster.migrate("job", "node-b")["network"], "net0")
        self.without_network("node-b", 0)
        self.assertEqual(self.cluster.migrate("job", "node-a")["network"], "net1")
        self.assertEqual(self.cluster.migrate("job", "node-b")["network"], "net1")  # its source has net0
        asked = self.cluster.migrate("job", "node-a", "--network", "net2")
        self.assertEqual((asked["network"], asked["transport"]), ("net2", "tls"))

    def test_a_network_that_is_cut_is_refused_before_the_target_is_touched(self):
        self.start_job()
        self.cluster.hosts.cut("node-a", "node-b", 0)
        planned = self.cluster.call("migrate", "job", "--to", "node-b", "--dry-run", exits=(5,))
        refused = self.cluster.call("migrate", "job", "--to", "node-b", exits=(5,))
        for result in (planned, refused):
            self.assertIn("node-a does not reach node-b over network net0", result.stdout + result.stderr)
        self.assertEqual(list((self.cluster.home / "nodes/node-b/jobs").iterdir()), [])
        self.assertEqual(self.cluster.job("job")["state"], "running")
        self.assertEqual(self.cluster.migrate("job", "node-b", "--network", "net1")["network"], "net1")

    def test_an_abort_while_the_network_is_checked_ends_the_move(self):
        self.start_job()
        self.cluster.hosts.cut("node-a", "node-b", 0)
        with self.cluster.popen("migrate", "job", "--to", "node-b") as moving:
            eventually(lambda: self.cluster.json("migrations"), "the move is known")
            self.cluster.call("abort", "job")
            self.assertEqual(moving.wait(60), 2, moving.stderr.read())
        self.assertEqual(self.cluster.job("job")["state"], "running")

    def test_a_missing_network_is_refused_by_name(self):
        self.start_job()
        self.without_network("node-b", 0, 1, 2)
        before = self.cluster.log("job").count("step")
        refused = self.cluster.call("migrate", "job", "--to", "node-b", exits=(5,))
        self.assertIn("no network in common", refused.stderr)
        self.assertIn("net0 (ucx-trusted)", refused.stderr)
        self.without_network("node-b", 0)
        refused = self.cluster.call("migrate", "job", "--to", "node-b", "--network", "net0", exits=(5,))
        self.assertIn("network net0 is not on both", refused.stderr)
        self.assertEqual(list((self.cluster.home / "nodes/node-b/jobs").iterdir()), [])  # not touched
        self.assertGreaterEqual(self.cluster.log("job").count("step"), before)


if __name__ == "__main__":
    unittest.main()
