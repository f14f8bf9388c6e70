# SPDX-License-Identifier: Apache-2.0
"""Tests of the choice among several networks for a move, of a move without one or with a cut one, and of a
move over several addresses of one network."""
import unittest

from cluster import run_unmoved
from host_cluster import HostsTest, Ipv6Cluster, SpreadCluster
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

    def test_move_uses_the_first_network_that_both_nodes_have(self):
        self.start_job()
        self.assertEqual(self.cluster.migrate("job", "node-b")["network"], "net0")
        self.without_network("node-b", 0)
        self.assertEqual(self.cluster.migrate("job", "node-a")["network"], "net1")
        self.assertEqual(self.cluster.migrate("job", "node-b")["network"], "net1")  # only the source has net0
        asked = self.cluster.migrate("job", "node-a", "--network", "net2")
        self.assertEqual((asked["network"], asked["transport"]), ("net2", "tls"))

    def test_a_network_that_is_cut_is_refused_before_the_target_is_touched(self):
        self.start_job()
        self.cluster.hosts.cut("node-a", "node-b", 0)
        planned = self.cluster.call("migrate", "job", "--to", "node-b", "--dry-run", exits=(5,))
        refused = self.cluster.call("migrate", "job", "--to", "node-b", exits=(5,))
        for result in (planned, refused):
            self.assertIn("node-a cannot reach node-b over network net0", result.stdout + result.stderr)
        self.assertEqual(list((self.cluster.home / "nodes/node-b/jobs").iterdir()), [])
        self.assertEqual(self.cluster.job("job")["state"], "running")
        self.assertEqual(self.cluster.migrate("job", "node-b", "--network", "net1")["network"], "net1")

    def test_an_abort_during_the_network_check_ends_the_move(self):
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
        self.assertIn("the nodes have no common network", refused.stderr)
        self.assertIn("net0 (ucx-trusted)", refused.stderr)
        self.without_network("node-b", 0)
        refused = self.cluster.call("migrate", "job", "--to", "node-b", "--network", "net0", exits=(5,))
        self.assertIn("network net0 is not on both", refused.stderr)
        # The target must be unchanged.
        self.assertEqual(list((self.cluster.home / "nodes/node-b/jobs").iterdir()), [])
        self.assertGreaterEqual(self.cluster.log("job").count("step"), before)


class OverIpv6(HostsTest):
    kind = Ipv6Cluster
    transports = ("ucx-trusted", "tls")

    def test_jobs_move_with_each_transport(self):
        arguments = [*TRAINING, "--steps", "1500"]
        expected = run_unmoved("charlm", *arguments)
        self.cluster.start("job", "charlm", *arguments)
        self.cluster.wait_for_line("job", r"^step \d+")
        for network, transport in enumerate(self.transports):
            for node in ("node-b", "node-a"):
                report = self.cluster.migrate("job", node, "--network", f"net{network}")
                self.assertEqual((report["result"], report["transport"]), ("done", transport), report)
        self.assertEqual(self.cluster.finish("job")["digest"], expected["digest"])
        self.assert_steps_in_order(self.cluster.log("job"))


STATE = ["--bytes", "64MiB", "--hot", "2%", "--step-ms", "5", "--seed", "7", "--print-every", "1", "--pattern", "random"]


class SeveralAddresses(HostsTest):
    kind = SpreadCluster
    transports = ("tls", "tls")

    def sent(self):
        """Bytes that node-a has sent on each of its devices."""
        return [int(self.cluster.hosts.run("node-a", "cat", f"/sys/class/net/net{network}/statistics/tx_bytes",
                                           capture_output=True, text=True).stdout)
                for network in range(len(self.transports))]

    def move_and_count(self, *arguments):
        before = self.sent()
        report = self.cluster.migrate("job", "node-b", *arguments)
        self.assertEqual((report["result"], report["network"]), ("done", "data"), report)
        return [after - earlier for earlier, after in zip(before, self.sent())]

    def start_job(self, *steps):
        self.cluster.start("job", "hotset", *STATE, *steps)
        self.cluster.wait_for_line("job", r"^step \d+")

    def test_a_move_is_spread_over_the_addresses(self):
        steps = ("--steps", "1500")
        expected = run_unmoved("hotset", *STATE, *steps)
        for node in ("node-a", "node-b"):
            self.cluster.hosts.limit(node, "400mbit")
        self.start_job(*steps)
        sent = self.move_and_count("--live")
        self.assertGreater(sum(sent), 64 << 20)
        for share in sent:
            self.assertGreater(share, sum(sent) / 4, sent)
        self.assertEqual(self.cluster.finish("job")["digest"], expected["digest"])
        self.assert_steps_in_order(self.cluster.log("job"))

    def test_move_uses_the_addresses_that_both_nodes_have(self):
        self.cluster.restart_agent("node-b", (1,))
        eventually(lambda: [network["addresses"] for node in self.cluster.json("nodes") if node["name"] == "node-b"
                            for network in node["networks"]] == [[self.cluster.hosts.address("node-b")]],
                   "node-b has one address")
        self.start_job("--steps", "100000")
        sent = self.move_and_count()
        self.assertGreater(sent[0], 64 << 20)
        self.assertLess(sent[1], 1 << 20)

    def test_an_unreachable_address_is_refused_by_name(self):
        self.start_job("--steps", "100000")
        self.cluster.hosts.cut("node-a", "node-b", 1)
        refused = self.cluster.call("migrate", "job", "--to", "node-b", exits=(5,))
        ends = [self.cluster.hosts.address(node, 1) for node in ("node-a", "node-b")]
        self.assertIn("over network data, from {} to {}".format(*ends), refused.stderr)
        # The target must be unchanged.
        self.assertEqual(list((self.cluster.home / "nodes/node-b/jobs").iterdir()), [])
        self.assertEqual(self.cluster.job("job")["state"], "running")


if __name__ == "__main__":
    unittest.main()
