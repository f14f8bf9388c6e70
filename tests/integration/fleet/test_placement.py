# SPDX-License-Identifier: Apache-2.0
"""Where jobs go: topology and memory of two nodes decide, dry runs show why for every GPU, rebalance makes
whole GPUs free."""
import json
import subprocess
import unittest

from cluster import BIN, COMMAND_LIMIT_S, ClusterTest, run_unmoved

HOTSET = ["--bytes", "64MiB", "--hot", "2%", "--seed", "7", "--print-every", "1", "--pattern", "stride"]


class PlacementTest(ClusterTest):
    memory = "1GiB"

    def describe_gpus(self, topologies, orders):
        """Agents that start find the GPUs so: {node: topology file}, and orders to cudasim-ctl as (node, GPU,
        words)."""
        self.cluster.kill("gpumigrate-agent")
        for node, text in topologies.items():
            (self.gpus_of(node) / "topology").write_text(text)
        for node, gpu, *words in orders:
            subprocess.run([BIN / "cudasim-ctl", "--dir", self.gpus_of(node), "--device", str(gpu), *words],
                           check=True,
                           timeout=COMMAND_LIMIT_S)
        self.cluster.up()

    def gpus_of(self, node):
        return self.cluster.home / "nodes" / node / "gpu"

    @staticmethod
    def reasons(plan):
        return {f"{c['node']}:{c['gpu']}": (c["suitable"], "; ".join(c["reasons"]))
                for c in plan["candidates"]}


class Choosing(PlacementTest):
    nodes, gpus = 2, 3

    def test_dry_run_explains_every_gpu_and_the_move_follows_it(self):
        cluster = self.cluster
        self.describe_gpus({"node-a": "nvlink 0 2 4\nancestor 0 2 10\nnuma 1 1\nmig 1\n"},
                           [("node-b", 0, "limit", "256MiB"), ("node-b", 1, "remap", "pending")])

        plan = json.loads(cluster.call("-o", "json", "run", "--dry-run", "--gpu-memory", "300MiB", "--",
                                       "/bin/true").stdout)
        why = self.reasons(plan)
        self.assertEqual(len(why), 6, plan)
        self.assertIn(plan["to"], [gpu for gpu, (suitable, _) in why.items() if suitable])
        for gpu, reason in (("node-a:1", "MIG"), ("node-b:0", "256.00 MiB free, but the job needs 300.00 MiB"),
                            ("node-b:1", "reset")):
            self.assertFalse(why[gpu][0], why)
            self.assertIn(reason, why[gpu][1])
        self.assertEqual(cluster.json("jobs"), [])
        self.assertEqual(cluster.run("run", "--dry-run", "--gpu-memory", "2GiB", "--",
                                     "/bin/true").returncode, 5)

        cluster.start("job", "hotset", *HOTSET, "--step-ms", "5", "--steps", "1000", node="node-a:0")
        cluster.wait_for_line("job", r"^step 1\b")
        plan = cluster.json("migrate", "job", "--dry-run")
        why = self.reasons(plan)
        self.assertEqual(len(why), 6, plan)
        self.assertEqual(plan["to"], "node-a:2", why)
        self.assertIn("4 NVLink(s) to node-a:0", why["node-a:2"][1])
        self.assertIn("there already", why["node-a:0"][1])
        self.assertTrue(why["node-b:0"][0], why)  # 64 MiB fit on node-b:0
        report = cluster.json("migrate", "job", "--to", "auto")
        self.assertEqual((report["result"], report["to"]), ("done", "node-a:2"), report)
        self.assertEqual(cluster.finish("job")["digest"],
                         run_unmoved("hotset", *HOTSET, "--steps", "1000")["digest"])

    def test_requested_memory_counts_more_than_held_memory(self):
        cluster = self.cluster
        self.describe_gpus({}, [("node-b", gpu, "limit", "512MiB") for gpu in range(3)])
        cluster.call("run", "--cooperative", "--detach", "--name", "job", "--node", "node-a:0",
                     "--gpu-memory", "700MiB",
                     "--priority", "3", "--", BIN / "examples" / "hotset", *HOTSET, "--step-ms", "5",
                     "--steps", "100000")
        cluster.wait_for_line("job", r"^step 1\b")
        job = cluster.job("job")
        self.assertEqual((job["priority"], job["expected_bytes"]), (3, 700 << 20), job)
        plan = cluster.json("migrate", "job", "--to", "node-b", "--dry-run", exits=(5,))
        self.assertIn("--gpu-memory", self.reasons(plan)["node-b:0"][1])
        self.assertEqual(cluster.run("migrate", "job", "--to", "node-b").returncode, 5)
        cluster.call("stop", "job")


class Packing(PlacementTest):
    nodes, gpus = 2, 2

    def test_rebalance_frees_gpus_and_harms_no_job(self):
        cluster = self.cluster
        arguments = [*HOTSET, "--steps", "2500"]
        expected = run_unmoved("hotset", *arguments)["digest"]
        places = {"one": "node-a:0", "two": "node-a:1", "three": "node-b:0"}
        for name, place in places.items():
            cluster.start(name, "hotset", *arguments, "--step-ms", "5", node=place)
        for name in places:
            cluster.wait_for_line(name, r"^step 1\b")

        plan = cluster.json("rebalance")
        self.assertTrue(plan["dry_run"], plan)
        self.assertEqual((len(plan["moves"]), plan["free_before"], plan["free_after"]), (2, 1, 3), plan)
        self.assertEqual(cluster.json("migrations"), [])

        run = cluster.json("rebalance", "--apply")
        self.assertEqual(run["state"], "done", run)
        self.assertEqual([move["state"] for move in run["moves"]], ["done", "done"], run)
        where = {(job["node"], job["gpu"]) for job in cluster.json("jobs")}
        self.assertEqual(len(where), 1, where)
        self.assertEqual(cluster.json("rebalance")["moves"], [])
        for migration in cluster.json("migrations"):
            self.assertTrue(migration["reason"].startswith("rebalance: frees node-"), migration)
        for name in places:
            self.assertEqual(cluster.finish(name)["digest"], expected)
