# SPDX-License-Identifier: Apache-2.0
"""Drains and cordons as an operator uses them: a node of eight jobs is emptied within the limit, what cannot
move is reported with its reason, and a drain goes on by itself after its coordinator was killed."""
import json
import sqlite3
import unittest

from crashing import CrashingTest
from fault_points import Point

HOTSET = ["--bytes", "16MiB", "--hot", "4%", "--step-ms", "20", "--pattern", "stride", "--steps", "100000",
          "--print-every", "1"]
PLAIN = ["--params", "20000", "--step-ms", "20", "--steps", "100000", "--print-every", "1"]


class DrainTest(CrashingTest):
    def start_jobs(self, cooperative, transparent=0, node="node-a"):
        names = []
        for number in range(cooperative):
            names.append(f"coop-{number}")
            self.cluster.start(names[-1], "hotset", *HOTSET, "--seed", str(number), node=node)
        for number in range(transparent):
            names.append(f"plain-{number}")
            self.cluster.start(names[-1], "charlm-plain", *PLAIN, "--seed", str(number), node=node, way=())
        for name in names:
            self.cluster.wait_for_line(name, r"^step 3\b")
        return names

    def stop_jobs(self, names):
        """Their logs are continuous: nothing was lost, nothing ran twice."""
        for name in names:
            self.cluster.call("stop", name)
            self.assert_steps_in_order(self.cluster.log(name))

    def migrations(self):
        """(started, ended) of each migration in milliseconds, read from the store itself."""
        store = sqlite3.connect(f"file:{self.cluster.home}/coordinator/state.db?mode=ro", uri=True)
        try:
            documents = [json.loads(row[0])
                         for row in store.execute("SELECT document FROM migrations ORDER BY id")]
        finally:
            store.close()
        return [(m["started_ms"], m["ended_ms"]) for m in documents]

    def max_at_a_time(self):
        """An end and a beginning in the same millisecond: the end came first."""
        changes = sorted([(start, 1) for start, _ in self.migrations()]
                         + [(end, -1) for _, end in self.migrations()],
                         key=lambda change: (change[0], change[1]))
        most = now = 0
        for _, change in changes:
            now += change
            most = max(most, now)
        return most


class Drains(DrainTest):
    def test_drain_moves_eight_jobs_off_a_node(self):
        cluster = self.cluster
        names = self.start_jobs(5, 3)
        plan = cluster.json("drain", "node-a", "--dry-run")
        self.assertTrue(plan["possible"], plan)
        self.assertEqual({job["name"] for job in plan["jobs"]}, set(names))
        self.assertEqual(cluster.json("drains"), [])
        self.assertEqual(cluster.json("migrations"), [])
        self.assertIsNone(cluster.json("nodes")[0]["cordons"])

        done = cluster.json("drain", "node-a", "--reason", "maintenance")
        self.assertEqual(done["result"], "empty", done)
        self.assertEqual({job["name"]: job["state"] for job in done["jobs"]},
                         {name: "moved" for name in names})
        self.assertEqual({job["node"] for job in cluster.json("jobs")}, {"node-b"})
        # There is one move for each job. Two concurrent moves between the same two movers do not disturb each
        # other.
        moves = cluster.json("migrations")
        self.assertEqual([m["result"] for m in moves], ["done"] * 8, [m["error"] for m in moves])
        self.assertEqual(self.max_at_a_time(), 2)

        again = cluster.call("drain", "node-a")
        self.assertIn("it had no jobs", again.stdout)
        self.assertEqual(len(self.migrations()), 8)
        refused = cluster.call("run", "--cooperative", "--detach", "--node", "node-a", "--", "/bin/true",
                               exits=(5,))
        self.assertIn("cordoned by operator: maintenance", refused.stderr)
        self.assertIn("cordoned", cluster.call("nodes").stdout)
        self.assertIn("cordoned", cluster.call("migrate", names[0], "--to", "node-a", exits=(5,)).stderr)
        self.assertIn("removed", cluster.call("uncordon", "node-a").stdout)
        self.assertIn("was not cordoned", cluster.call("uncordon", "node-a").stdout)
        self.stop_jobs(names)

    def test_unmovable_jobs_are_reported(self):
        cluster = self.cluster
        names = self.start_jobs(1)
        self.assertIn("cordoned", cluster.call("cordon", "node-b", "--reason", "fan").stdout)
        planned = cluster.call("drain", "node-a", "--dry-run", exits=(1,))
        self.assertIn("no GPU: 1 being drained, 1 cordoned", planned.stdout)
        stuck = cluster.call("drain", "node-a", exits=(1,))
        self.assertRegex(stuck.stdout, r"coop-0 +blocked .*no GPU: 1 being drained, 1 cordoned")
        each = cluster.call("drains", cluster.json("drains")[0]["id"], "-v")
        self.assertIn("coop-0: node-b:0: cordoned by operator: fan", each.stdout)
        self.assertIn("node-a is not empty: 1 blocked", stuck.stdout)
        self.assertEqual(cluster.json("migrations"), [])
        self.assertEqual(cluster.job("coop-0")["node"], "node-a")
        cluster.call("uncordon", "node-b")
        self.assertEqual(cluster.json("drain", "node-a")["result"], "empty")
        self.stop_jobs(names)

    def test_drain_ends_at_its_deadline_despite_a_job_without_a_barrier(self):
        """A job that reaches no barrier keeps no drain open for ever, and the others go."""
        cluster = self.cluster
        names = self.start_jobs(1)
        slow = [*HOTSET]
        slow[slow.index("--step-ms") + 1] = "600000"
        cluster.start("slow", "hotset", *slow)
        cluster.wait_for_line("slow", r"^ready\b")
        late = cluster.json("drain", "node-a", "--deadline", "6s", exits=(2,))
        self.assertEqual(late["result"], "deadline")
        states = {job["name"]: job for job in late["jobs"]}
        self.assertEqual(states["coop-0"]["state"], "moved", late)
        self.assertEqual(states["slow"]["state"], "waiting", late)
        self.assertIn("barrier", states["slow"]["reason"])
        self.assertEqual((cluster.job("slow")["state"], cluster.job("slow")["node"]), ("running", "node-a"))
        cluster.call("stop", "slow")
        self.stop_jobs(names)

    def test_drain_continues_after_its_coordinator_is_killed(self):
        cluster = self.cluster
        names = self.start_jobs(3, 1)
        coordinator = self.daemons_of("coordinator")
        # The coordinator reaches this point when GRANTED of the first move is durable.
        cluster.arm("coordinator", Point.COORDINATOR_GRANTED_DURABLE)
        draining = cluster.popen("drain", "node-a", "--parallel", "1", "-o", "json")
        self.wait_until_fired("coordinator", Point.COORDINATOR_GRANTED_DURABLE, draining)
        self.wait_until_dead(coordinator)
        self.assertTrue(self.cluster_left_behind())
        cluster.up()
        output, errors = draining.communicate(timeout=120)
        self.assertEqual(draining.returncode, 0, output + errors)
        done = json.loads(output)
        self.assertEqual({job["name"]: job["state"] for job in done["jobs"]},
                         {name: "moved" for name in names}, done)
        self.assertEqual({job["node"] for job in cluster.json("jobs")}, {"node-b"})
        self.assertEqual(self.max_at_a_time(), 1)
        self.assertEqual(len(cluster.json("drains")), 1)
        self.stop_jobs(names)

    def cluster_left_behind(self):
        """Jobs are still at the source: the drain was cut, not done."""
        store = sqlite3.connect(f"file:{self.cluster.home}/coordinator/state.db?mode=ro", uri=True)
        try:
            document = json.loads(store.execute("SELECT document FROM drains").fetchone()[0])
        finally:
            store.close()
        here = {"waiting", "moving"}
        return document["result"] == "none" and any(job["state"] in here for job in document["jobs"])


class DrainsOfGpus(DrainTest):
    nodes, gpus = 1, 2

    def test_drain_of_one_gpu_moves_only_its_jobs(self):
        cluster = self.cluster
        here = self.start_jobs(0, 1, node="node-a:0")
        cluster.start("there", "hotset", *HOTSET, node="node-a:1")
        cluster.wait_for_line("there", r"^step 3\b")
        done = cluster.json("drain", "node-a:0")
        self.assertEqual([job["name"] for job in done["jobs"]], here)
        self.assertEqual(cluster.job(here[0])["gpu"], 1)
        self.assertEqual(len(self.migrations()), 1)
        self.assertIn("node-a:0 by operator", cluster.call("gpus").stdout)
        self.assertNotIn("ready,cordoned", cluster.call("nodes").stdout)
        self.stop_jobs([*here, "there"])
