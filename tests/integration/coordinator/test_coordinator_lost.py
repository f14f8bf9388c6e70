# SPDX-License-Identifier: Apache-2.0
"""A coordinator that lost its disk, or came up with an older copy of it: what runs goes on and is known
again, and nothing new is mixed up with it."""
import unittest

from cluster import run_unmoved
from losing_store import StoreLosingTest

TRAINING = ["--params", "20000", "--seed", "3", "--print-every", "1", "--steps", "1000", "--step-ms", "15"]


class CoordinatorLost(StoreLosingTest):
    @classmethod
    def setUpClass(cls):
        cls.expected = run_unmoved("charlm", *TRAINING)["digest"]

    def start_sleeper(self, name, node="node-a"):
        cluster = self.cluster
        cluster.call("run", "--cooperative", "--detach", "--name", name, "--node", node, "--", "/bin/sh",
                     "-c",
                     f"echo I am {name}; exec sleep 1000")
        cluster.wait_for_line(name, f"I am {name}")
        return cluster.job(name)["id"]

    def start_training(self, name, node="node-a"):
        self.cluster.start(name, "charlm", *TRAINING, node=node)
        self.cluster.wait_for_line(name, r"^step 3\b")
        return self.cluster.job(name)["id"]

    def check_end(self, name):
        self.assertEqual(self.cluster.finish(name)["digest"], self.expected)

    def test_new_jobs_are_distinguished_from_jobs_of_the_lost_store(self):
        cluster = self.cluster
        old = {name: self.start_sleeper(name) for name in ("old-1", "old-2")}
        before = sorted(cluster.pids("sleep 1000"))
        self.lose_store()
        self.wait_for_event("job-taken-in", 2)
        new = {name: self.start_sleeper(name) for name in ("new-1", "new-2")}
        self.assertEqual(len({*old.values(), *new.values()}), 4, (old, new))
        for name, job in {**old, **new}.items():
            self.assertEqual(cluster.log(name).strip(), f"I am {name}")
            self.assertEqual(cluster.json("describe", name)["id"], job)
        for name in new:
            cluster.call("stop", name)
            cluster.call("wait", name, exits=(143,))
        self.assertEqual(sorted(cluster.pids("sleep 1000")), before, "a stop ended another job")
        found = cluster.json("cluster", "recover")["found"]
        self.assertEqual({one["job"] for one in found if one["kind"] == "job"}, set(old.values()))
        for name in old:
            self.assertIn(name, cluster.call("cluster", "recover").stdout)

    def test_running_jobs_move_and_parked_jobs_resume_after_the_loss(self):
        cluster = self.cluster
        runs = self.start_training("runs")
        self.start_training("rests")
        moved = self.start_training("moved")
        cluster.migrate("moved", "node-b", "--live")
        cluster.call("suspend", "rests")
        self.lose_store()
        self.wait_for_event("job-taken-in", 2)
        jobs = {job["name"]: job for job in cluster.json("jobs")}
        self.assertEqual((jobs["runs"]["id"], jobs["runs"]["node"]), (runs, "node-a"))
        self.assertEqual((jobs["moved"]["id"], jobs["moved"]["node"]), (moved, "node-b"))
        self.wait_for_event("cluster-recognised")
        self.assertIn("rests", cluster.call("cluster", "recover").stdout)
        cluster.call("resume", "rests")
        self.assertEqual(cluster.migrate("runs", "node-b", "--live")["result"], "done")
        self.assertEqual(cluster.migrate("moved", "node-a", "--live")["result"], "done")
        for name in ("runs", "moved", "rests"):
            self.check_end(name)

    def test_a_coordinator_with_an_older_store_recovers_later_changes(self):
        cluster = self.cluster
        self.start_training("moves")
        self.start_training("rests")
        cluster.call("suspend", "rests")
        self.copy_store()
        cluster.migrate("moves", "node-b", "--live")
        young = self.start_training("young")
        self.stop_coordinator()
        self.bring_copy_back()
        self.up_again()
        self.wait_for_event("job-taken-in", 2)
        jobs = {job["name"]: job for job in cluster.json("jobs")}
        self.assertEqual((jobs["moves"]["state"], jobs["moves"]["node"]), ("running", "node-b"))
        self.assertEqual((jobs["young"]["id"], jobs["young"]["node"]), (young, "node-a"))
        cluster.call("resume", "rests")
        self.assertEqual(cluster.migrate("moves", "node-a", "--live")["result"], "done")
        self.assertEqual(cluster.migrate("young", "node-b", "--live")["result"], "done")
        for name in ("moves", "young", "rests"):
            self.check_end(name)
