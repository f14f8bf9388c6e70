# SPDX-License-Identifier: Apache-2.0
"""Options and verbs that operators and scripts use beside a plain move: limits, giving up, watching, dry runs,
exit codes, logs."""
import json
import unittest

from cluster import ClusterTest, run_unmoved

ARGUMENTS = ["--bytes", "64MiB", "--hot", "4%", "--step-ms", "5", "--seed", "9", "--pattern", "random",
             "--steps", "2000",
             "--print-every", "1"]


class Options(ClusterTest):
    def start_job(self):
        self.cluster.start("job", "hotset", *ARGUMENTS)
        self.cluster.wait_for_line("job", r"^step 5\b")

    def end_job(self):
        expected = run_unmoved("hotset", *ARGUMENTS)["digest"]
        self.assertEqual(self.cluster.finish("job")["digest"], expected)
        self.assert_steps_in_order(self.cluster.log("job"))

    def test_move_that_cannot_meet_its_limit_is_aborted(self):
        cluster = self.cluster
        self.start_job()
        plan = cluster.json("migrate", "job", "--dry-run")
        self.assertTrue(plan["possible"])
        self.assertTrue(all(candidate["reasons"] for candidate in plan["candidates"]), plan)
        self.assertEqual(cluster.json("migrations"), [])

        # No pause can be this short. The rounds cannot become smaller than the memory that is rewritten at
        # each step.
        gave_up = cluster.json("migrate", "job", "--to", "node-b", "--max-downtime", "1us",
                               exits=(5,))
        self.assertEqual(gave_up["result"], "refused")
        self.assertEqual(cluster.job("job")["node"], "node-a")

        rounds = cluster.json("migrate", "job", "--to", "node-b", "--max-downtime", "1us", "--max-rounds",
                              "2", "--if-not-converged", "switch")
        self.assertEqual(rounds["rounds"], 3, "two rounds and the final one")

        # The bandwidth is so low that the move does not end until the limit is lifted.
        begun = cluster.json("migrate", "job", "--to", "auto", "--bandwidth", "1MiB/s", "--detach")
        self.assertTrue(begun["open"])
        self.assertEqual(begun["to"], "node-a:0")
        with cluster.popen("watch", begun["id"]) as watching:
            for line in watching.stderr:
                if "round 1" in line:
                    break
            cluster.call("set", begun["id"], "bandwidth", "10GiB/s")
            watching.communicate(timeout=120)
            self.assertEqual(watching.returncode, 0)
        self.assertEqual(cluster.json("migrations")[0]["result"], "done")
        self.end_job()

    def test_job_moves_with_every_codec(self):
        """Each is carried to the source's mover, shown, and moves the job to the same end."""
        cluster = self.cluster
        self.start_job()
        usage = cluster.call("migrate", "job", "--codec", "difference", exits=(64,))
        self.assertIn("--shadow-memory", usage.stderr)
        cluster.call("migrate", "job", "--slowdown", "200%", exits=(64,))
        choices = (("raw", []), ("planes", ["--slowdown", "50%"]),
                   ("difference", ["--shadow-memory", "96MiB"]), ("auto", []))
        for turn, (codec, more) in enumerate(choices):
            with self.subTest(codec=codec):
                options = ["--codec", codec, *more, "--to", "node-b" if turn % 2 == 0 else "node-a"]
                plan = cluster.json("migrate", "job", *options, "--dry-run")
                self.assertEqual(plan["options"]["codec"], codec)
                report = cluster.json("migrate", "job", *options)
                self.assertEqual((report["result"], report["verified"], report["codec"]),
                                 ("done", True, codec))
                shown = cluster.json("migrations")[0]["options"]
                self.assertEqual(shown["codec"], codec)
                self.assertEqual(shown["shadow_memory_bytes"], 96 << 20 if codec == "difference" else 0)
                self.assertEqual(shown["slowdown_percent"], 50 if codec == "planes" else 0)
        self.end_job()

    def test_run_returns_the_exit_code_and_the_log_of_the_job(self):
        cluster = self.cluster
        run = cluster.call("run", "--cooperative", "--", "/bin/sh", "-c", "echo out; echo err >&2; exit 7",
                           exits=(7,))
        self.assertEqual(run.stdout.split(), ["out", "err"])
        self.assertEqual(cluster.call("wait", "j1", exits=(7,)).returncode, 7)
        self.assertEqual(cluster.json("jobs")[0]["exit_code"], 7)
        self.assertIn("out", cluster.log("j1"))
        self.assertNotEqual(cluster.run("run", "--cooperative", "--", "/no/such/program").returncode, 0)

        self.start_job()
        described = cluster.json("describe", "job")
        self.assertEqual(described["argv"][-len(ARGUMENTS):], ARGUMENTS)
        cluster.call("stop", "job")
        cluster.call("wait", "job", exits=(128 + 15,))
        kinds = [json.loads(line)["kind"] for line in cluster.call("events", "-o",
                                                                   "json").stdout.splitlines()]
        self.assertIn("job-started", kinds)
        self.assertIn("job-ended", kinds)

    def test_second_migration_is_refused_and_an_aborted_one_frees_its_memory(self):
        cluster = self.cluster
        self.start_job()
        free = {gpu["node"]: gpu["free_bytes"] for gpu in cluster.json("gpus")}
        begun = cluster.json("migrate", "job", "--to", "node-b", "--bandwidth", "1MiB/s", "--detach")
        refused = cluster.call("migrate", "job", "--to", "node-b", exits=(5,))
        self.assertIn(begun["id"], refused.stderr)
        cluster.call("abort", begun["id"])
        cluster.call("watch", begun["id"], exits=(2,))
        for turn in range(6):
            cluster.migrate("job", "node-b" if turn % 2 == 0 else "node-a")
        self.end_job()
        after = {gpu["node"]: gpu["free_bytes"] for gpu in cluster.json("gpus")}
        self.assertGreaterEqual(after["node-a"], free["node-a"], "six moves left memory behind")


class TwoGpusOfOneNode(ClusterTest):
    nodes, gpus = 1, 2

    def test_job_moves_there_and_back(self):
        cluster = self.cluster
        arguments = [*ARGUMENTS[:-4], "--steps", "1500", "--print-every", "1"]
        expected = run_unmoved("hotset", *arguments)["digest"]
        cluster.start("job", "hotset", *arguments, node="node-a:0")
        cluster.wait_for_line("job", r"^step 5\b")
        for target, mode in (("node-a:1", "--live"), ("node-a:0", "--stop-copy"), ("node-a:1", "--live")):
            self.assertEqual(cluster.migrate("job", target, mode)["to"], target)
        self.assertEqual(cluster.job("job")["gpu"], 1)
        self.assertEqual(cluster.finish("job")["digest"], expected)
        self.assert_steps_in_order(cluster.log("job"))
