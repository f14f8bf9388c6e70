# SPDX-License-Identifier: Apache-2.0
"""Jobs of several ranks: they start together or not at all, see each other, end together, and are one job to the user."""
import json
import pathlib
import re
import unittest

from cluster import EXAMPLES, ClusterTest, final_object
from ranks_by_hand import run_by_hand
from waiting import eventually

ROOT = pathlib.Path(__file__).resolve().parents[3]
PROGRAM = ROOT / "tests" / "integration" / "programs" / "rank.py"
PYTHON = "/usr/bin/python3"


@unittest.skipUnless((EXAMPLES / "charlm-dp").exists(), "there was no nccl.h")
class GangsOverNccl(ClusterTest):
    """A training whose ranks sum their gradients over NCCL ends as the one that was started by hand."""
    nodes, gpus = 2, 2
    training = ("--steps", "60", "--params", "20000", "--print-every", "1")

    def digests_of(self, ranks, *options, more=()):
        self.cluster.call("run", "--detach", "--name", "train", *options, "--", EXAMPLES / "charlm-dp", *self.training, *more,
                          *(() if "--cooperative" in options else ("--without-ckpt",)))
        self.cluster.call("wait", "train")
        logs = [self.cluster.call("logs", "train", "--rank", str(rank)).stdout for rank in range(ranks)]
        results = [final_object(log) for log in logs]
        self.assertEqual([(result["rank"], result["ranks"]) for result in results], [(rank, ranks) for rank in range(ranks)])
        return {result["digest"] for result in results}

    def expected(self, ranks, *more):
        return {result["digest"] for result in run_by_hand(ranks, *self.training, *more)}

    def test_two_ranks_of_a_node_compute_the_expected_result(self):
        self.assertEqual(self.digests_of(2, "--gpus", "2"), self.expected(2))

    def test_ranks_with_sharded_weights_compute_the_expected_result(self):
        expected = self.expected(4, "--shards")
        self.assertEqual(len(expected), 4, "each rank has moments of its own share")
        self.assertEqual(self.digests_of(4, "--ranks", "4", more=("--shards",)), expected)

    def test_four_cooperative_ranks_of_two_nodes_compute_the_expected_result(self):
        self.assertEqual(self.digests_of(4, "--ranks", "4", "--cooperative"), self.expected(4))


class Gangs(ClusterTest):
    nodes, gpus = 2, 2

    def start_gang(self, *arguments, ranks=2, name="train"):
        return json.loads(self.cluster.call("-o", "json", "run", "--detach", "--name", name, "--gpus", str(ranks), "--",
                                            PYTHON, PROGRAM, *arguments).stdout)

    def start_spread(self, *arguments, options=("--ranks", "4")):
        return json.loads(self.cluster.call("-o", "json", "run", "--detach", "--name", "train", *options, "--", PYTHON,
                                            PROGRAM, *arguments).stdout)

    def wait_for_end(self, name="train"):
        return self.cluster.run("wait", name, "-o", "json")

    def test_ranks_meet_run_on_one_node_and_end_as_one_job(self):
        job = self.start_gang("40")
        self.assertEqual((job["name"], job["size"]), ("train", 2), job)
        nodes = {rank["node"] for rank in job["ranks"]}
        self.assertEqual((len(nodes), sorted(rank["gpu"] for rank in job["ranks"])), (1, [0, 1]), job)
        listed = self.cluster.json("jobs")
        self.assertEqual([entry["name"] for entry in listed], ["train"], listed)
        self.assertRegex(self.cluster.call("jobs").stdout, r"train .* node-\w:0,1")
        ended = self.wait_for_end()
        self.assertEqual(ended.returncode, 0, ended)
        logs = [self.cluster.call("logs", "train", "--rank", str(rank)).stdout for rank in (0, 1)]
        for rank, log in enumerate(logs):
            self.assertIn(f"rank {rank} of 2 local 0", log)
        totals = [re.findall(r"^step .*$", log, re.M) for log in logs]
        self.assertEqual(len(totals[0]), 40)
        self.assertEqual(*totals)
        self.assertEqual(self.cluster.call("logs", "train").stdout, logs[0])
        described = self.cluster.call("describe", "train").stdout
        self.assertRegex(described, r"rank 1\s+node-\w:1, exited 0, train\.1 \(j")
        self.cluster.call("rm", "train")
        self.assertEqual(self.cluster.json("jobs"), [])

    def test_ranks_of_two_nodes_meet_and_end_as_one_job(self):
        job = self.start_spread("40")
        self.assertEqual(job["gpus"], ["node-a:0", "node-a:1", "node-b:0", "node-b:1"], job)
        self.assertIn("next to the ranks on node-a:1", self.cluster.json("describe", "train")["placed"])
        self.assertRegex(self.cluster.call("jobs").stdout, r"train .* node-a:0,1,node-b:0,1")
        ended = self.wait_for_end()
        self.assertEqual(ended.returncode, 0, ended)
        logs = [self.cluster.call("logs", "train", "--rank", str(rank)).stdout for rank in range(4)]
        totals = {tuple(re.findall(r"^step .*$", log, re.M)) for log in logs}
        self.assertEqual([len(steps) for steps in totals], [40], totals)

    def test_ranks_are_spread_over_the_named_nodes(self):
        job = self.start_spread("5", options=("--ranks", "3", "--nodes", "node-b,node-a"))
        self.assertEqual(job["gpus"], ["node-b:0", "node-b:1", "node-a:0"], job)
        self.assertEqual(self.wait_for_end().returncode, 0)
        self.assertIn("step 4", self.cluster.call("logs", "train", "--rank", "2").stdout)
        self.cluster.call("rm", "train")
        for options, why in ((("--ranks", "5"), "Fewer than 5 GPUs can each hold a rank"),
                             (("--ranks", "3", "--nodes", "node-a"), "node-a must hold 3 ranks, but only 2 of its GPUs can"),
                             (("--ranks", "2", "--nodes", "node-a,node-x"), "node-x"),
                             (("--ranks", "2", "--nodes", "node-a,node-a"), "twice"),
                             (("--ranks", "2", "--gpus", "2"), "cannot be combined"), (("--nodes", "node-a"), "requires --ranks")):
            refused = self.cluster.run("run", "--detach", *options, "--", PYTHON, PROGRAM, "5")
            self.assertIn(refused.returncode, (5, 64), refused)
            self.assertIn(why, refused.stderr, options)
        self.assertEqual(self.cluster.json("jobs"), [])

    def test_failed_rank_on_another_node_ends_the_other_ranks(self):
        self.start_spread("1000", "fail", "3", "7")
        ended = self.wait_for_end()
        self.assertEqual(ended.returncode, 7, ended)
        self.assertIn("rank 3 ended with exit code 7", json.loads(ended.stdout)["reason"])
        eventually(lambda: self.cluster.pids("rank.py") == [], "no rank is left")

    def test_failed_rank_ends_the_other_ranks_and_sets_the_exit_code_of_the_job(self):
        self.start_gang("1000", "fail", "1", "7")
        ended = self.wait_for_end()
        self.assertEqual(ended.returncode, 7, ended)
        job = json.loads(ended.stdout)
        self.assertEqual(job["state"], "exited", job)
        self.assertIn("rank 1 ended with exit code 7", job["reason"])
        self.assertEqual({rank["state"] for rank in job["ranks"]}, {"exited"}, job)

    def test_job_that_fits_nowhere_starts_no_rank(self):
        refused = self.cluster.run("run", "--detach", "--gpus", "3", "--", PYTHON, PROGRAM, "5")
        self.assertEqual(refused.returncode, 5, refused)
        self.assertIn("No node has 3 GPUs that can each hold a rank: node-a has 2, node-b has 2", refused.stderr)
        self.assertEqual(self.cluster.json("jobs"), [])
        plan = json.loads(self.cluster.run("-o", "json", "run", "--dry-run", "--gpus", "2", "--", PYTHON, PROGRAM, "5").stdout)
        self.assertEqual((len(plan["places"]), plan["to"]), (2, ", ".join(plan["places"])), plan)

    def test_stop_ends_all_ranks(self):
        self.start_gang("100000")
        self.cluster.wait_for_line("train", r"^step 1\b")
        self.cluster.call("stop", "train")
        ended = self.wait_for_end()
        self.assertNotEqual(ended.returncode, 0, ended)
        eventually(lambda: self.cluster.pids("rank.py") == [], "no rank is left")

    def test_restarted_coordinator_and_agents_keep_the_job(self):
        self.start_spread("600")
        self.cluster.wait_for_line("train", r"^step 1\b")
        self.cluster.kill("gpumigrate-coordinator")
        self.cluster.kill("gpumigrate-agent")
        self.cluster.up()
        ended = self.wait_for_end()
        self.assertEqual(ended.returncode, 0, ended)
        self.assertIn("step 599", self.cluster.call("logs", "train", "--rank", "1").stdout)

    def test_orders_that_are_not_possible_yet_are_refused_by_name(self):
        self.start_gang("100000")
        self.cluster.wait_for_line("train", r"^step 1\b")
        for words in (("migrate", "train", "--to", "node-b"), ("snapshot", "train"), ("suspend", "train"),
                      ("migrate", "train.1", "--to", "node-b:0"), ("snapshot", "train.1"), ("suspend", "train.1")):
            refused = self.cluster.run(*words)
            self.assertEqual(refused.returncode, 5, (words, refused))
            self.assertRegex(refused.stderr + refused.stdout, r"rank", words)
        drained = self.cluster.run("drain", self.cluster.json("describe", "train")["node"], "--timeout", "20s")
        self.assertNotEqual(drained.returncode, 0, drained)
        # The program never calls the driver, so it counts as starting.
        self.assertIn(self.cluster.json("describe", "train")["state"], ("starting", "running"))
        self.cluster.call("stop", "train", "--grace", "0s")
