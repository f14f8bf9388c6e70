# SPDX-License-Identifier: Apache-2.0
"""The estimate of a pause has all its terms, and --max-downtime with --if-not-converged abort keeps its promise: a job whose pause would be too
long stays, and the operator is told why. Transparent jobs; between nodes it needs root and a CRIU that works, else that case is skipped."""
import unittest

from cluster import ClusterTest, run_unmoved

TRAINING = ["--params", "200000", "--seed", "3", "--print-every", "1", "--step-ms", "15"]
TERMS = {"quiesce", "final", "verify", "commit", "context", "host", "fill", "restore", "resume"}


class Estimates(ClusterTest):
    def start_training(self, steps, node):
        arguments = [*TRAINING, "--steps", str(steps)]
        expected = run_unmoved("charlm-plain", *arguments[:-4], *arguments[-2:])
        self.cluster.start("job", "charlm-plain", *arguments, node=node, way=())
        self.cluster.wait_for_line("job", r"^step \d+")
        return expected

    def check_stays(self, to, limit, term, place):
        for mode in ("--live", "--stop-copy"):
            stayed = self.cluster.run("migrate", "job", "--to", to, mode, "--max-downtime", limit, "--if-not-converged", "abort")
            self.assertEqual(stayed.returncode, 1, stayed)
            self.assertRegex(stayed.stdout + stayed.stderr, rf"longest term is {term}.*What would help: ", stayed)
            job = self.cluster.job("job")
            self.assertEqual((job["state"], f"{job['node']}:{job['gpu']}"), ("running", place), job)

    def check_moves(self, to, terms):
        report = self.cluster.migrate("job", to, "--max-downtime", "60s", "--if-not-converged", "abort")
        self.assertEqual(report["result"], "done", report)
        expected = report["estimate_breakdown_ms"]
        self.assertEqual(set(expected), TERMS, report)
        self.assertAlmostEqual(sum(expected.values()), report["estimate_ms"], delta=0.1, msg=report)
        for term in terms:
            self.assertGreater(expected[term], 0, report)
        self.assertAlmostEqual(report["driver_ms"], report["downtime_breakdown_ms"]["context"], msg=report)
        return report


class BetweenNodes(Estimates):
    def test_job_whose_pause_would_pass_the_limit_stays_and_is_told_the_term(self):
        expected = self.start_training(3000, "node-a")
        plan = self.cluster.run("migrate", "job", "--to", "node-b", "--dry-run")
        if plan.returncode != 0 and "host processes" in plan.stdout + plan.stderr:
            self.skipTest((plan.stdout + plan.stderr).strip())
        self.check_stays("node-b", "30ms", "host", "node-a:0")
        self.check_moves("node-b", ("context", "host", "commit", "resume"))
        self.check_stays("node-a", "30ms", "host", "node-b:0")
        self.assertEqual(self.cluster.finish("job")["digest"], expected["digest"])


class OnANode(Estimates):
    nodes, gpus = 1, 2

    def test_swap_that_would_pass_the_limit_is_not_begun(self):
        expected = self.start_training(2000, "node-a:0")
        self.check_stays("node-a:1", "1ms", r"\w+", "node-a:0")
        self.check_moves("node-a:1", ("context", "commit", "resume"))
        self.assertEqual(self.cluster.finish("job")["digest"], expected["digest"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
