# SPDX-License-Identifier: Apache-2.0
"""Bad input gets one clear line and exit 5 or 64, and nothing is touched."""
import unittest

from cluster import EXAMPLES, ClusterTest

ARGUMENTS = ["--bytes", "32MiB", "--hot", "4%", "--step-ms", "10", "--seed", "1", "--pattern", "stride",
             "--steps", "100000",
             "--print-every", "1"]


class Refusals(ClusterTest):
    memory = "1GiB"

    def refused(self, *arguments, exits=5, contains=""):
        result = self.cluster.call(*arguments, exits=(exits,))
        lines = [line for line in result.stderr.strip().split("\n") if line]
        self.assertEqual(len(lines), 1, result.stderr)
        self.assertIn(contains, lines[0])

    def test_invalid_requests_are_refused_without_an_effect(self):
        cluster = self.cluster
        self.refused("migrate", "nobody", "--to", "node-b", contains="nobody")
        self.refused("describe", "nobody", contains="nobody")
        self.refused("run", "--cooperative", "--gpus", "2", "--", "/bin/true", contains="No node has 2 GPUs")
        self.refused("run", "--cooperative", "--node", "nowhere", "--", "/bin/true", contains="nowhere")
        self.refused("migrate", exits=64)
        self.refused("migrate", "x", "--max-downtime", "soon", exits=64)
        self.refused("run", "--cooperative", "--frobnicate", "--", "/bin/true", exits=64)
        self.assertEqual(cluster.json("migrations"), [])

        cluster.start("job", "hotset", *ARGUMENTS)
        cluster.wait_for_line("job", r"^step 3\b")
        self.refused("migrate", "job", "--to", "nowhere", contains="nowhere")
        self.refused("migrate", "job", "--to", "node-a", contains="node-a")
        self.refused("run", "--cooperative", "--name", "job", "--", "/bin/true", contains="job")
        before = cluster.job("job")
        self.assertEqual((before["state"], before["incarnation"], before["node"]), ("running", 1, "node-a"))
        self.assertEqual(cluster.json("migrations"), [])
        cluster.call("stop", "job")
        cluster.call("wait", "job", exits=range(256))

    def test_target_without_enough_memory_is_refused(self):
        cluster = self.cluster
        big = ["--bytes", "700MiB", *ARGUMENTS[2:]]
        cluster.start("a", "hotset", *big, node="node-a")
        cluster.start("b", "hotset", *big, node="node-b")
        for name in "ab":
            cluster.wait_for_line(name, r"^step 1\b")
        self.refused("migrate", "a", "--to", "node-b", contains="MiB free, but the job needs")
        self.assertEqual(cluster.job("a")["incarnation"], 1)

    def test_standby_with_different_tensors_is_refused(self):
        """A program that names other tensors when it is a standby: refused naming the tensor, the job runs
        on."""
        cluster = self.cluster
        script = cluster.home / "changing"
        size = cluster.home / "size"
        size.write_text("32MiB")
        script.write_text(f"#!/bin/sh\nexec {EXAMPLES}/hotset --bytes $(cat {size}) "
                          + " ".join(ARGUMENTS[2:]) + "\n")
        script.chmod(0o755)
        cluster.call("run", "--cooperative", "--detach", "--name", "job", "--node", "node-a", "--", script)
        cluster.wait_for_line("job", r"^step 3\b")
        size.write_text("34MiB")
        result = cluster.call("migrate", "job", "--to", "node-b", exits=(5,))
        self.assertRegex(result.stdout,
                         r"refused: .*Tensor \"memory\" is u8\[33554432\] at the source but u8\[35651584\]")
        job = cluster.job("job")
        self.assertEqual((job["state"], job["node"], job["incarnation"]), ("running", "node-a", 1))
        cluster.call("stop", "job")

    def test_move_of_a_job_without_a_barrier_times_out(self):
        cluster = self.cluster
        slow = [*ARGUMENTS]
        slow[slow.index("--step-ms") + 1] = "600000"
        slow[slow.index("--steps") + 1] = "3"
        cluster.start("job", "hotset", *slow)
        cluster.wait_for_line("job", r"^ready\b")
        result = cluster.call("migrate", "job", "--to", "node-b", "--timeout", "5s", exits=(2,))
        self.assertRegex(result.stdout, r"timed-out: .*barrier")
        job = cluster.job("job")
        self.assertEqual((job["state"], job["node"], job["incarnation"]), ("running", "node-a", 1))
        cluster.call("stop", "job")
