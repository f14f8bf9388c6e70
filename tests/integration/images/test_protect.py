# SPDX-License-Identifier: Apache-2.0
"""Images of jobs: a job that was killed goes on from its image on the other node and ends with the digest of
one that never was, in both migration modes; a snapshot costs what changed; a damaged newest image falls back;
suspend and resume; a migration is not held up by a snapshot."""
import datetime
import json
import re
import unittest

from cluster import ClusterTest, run_unmoved
from waiting import eventually

COOPERATIVE = ["--steps", "1500", "--seed", "7", "--step-ms", "5", "--print-every", "1"]
HOTSET = ["--bytes", "64MiB", "--hot", "2%", "--step-ms", "5", "--seed", "4", "--pattern", "random",
          "--steps", "1500",
          "--print-every", "1"]


class Protect(ClusterTest):
    def setUp(self):
        super().setUp()
        self.vault = self.cluster.home / "vault"

    def snapshot(self, name):
        return self.cluster.json("snapshot", name, "--to", self.vault)["report"]

    def kill_rank(self, name, program):
        self.cluster.kill(f"examples/{program}")
        self.cluster.run("wait", name)

    def killed_and_restored(self, program, arguments, way):
        cluster = self.cluster
        expected = run_unmoved(program, *arguments)["digest"]
        cluster.start("job", program, *arguments, way=way)
        cluster.wait_for_line("job", r"^step 20\b")
        report = self.snapshot("job")
        self.assertGreater(report["pause_ms"], 0)
        cluster.wait_for_line("job", r"^step 60\b")
        self.kill_rank("job", program)
        done = cluster.json("restore", "job", "--accept-loss", "--to", "node-b", exits=(0, 3))
        self.assertEqual(done["restored"]["at"].split(":")[0], "node-b")
        self.assertEqual(cluster.finish("job")["digest"], expected)

    def test_a_cooperative_job_is_restored_from_its_image(self):
        self.killed_and_restored("charlm", COOPERATIVE, ("--cooperative",))

    def test_a_transparent_job_is_restored_from_its_image(self):
        self.killed_and_restored("charlm-plain", COOPERATIVE, ())

    def test_second_image_stores_changes_and_damaged_image_falls_back(self):
        cluster = self.cluster
        expected = run_unmoved("hotset", *HOTSET)["digest"]
        cluster.start("job", "hotset", *HOTSET)
        cluster.wait_for_line("job", r"^step 5\b")
        first = self.snapshot("job")
        second = self.snapshot("job")
        self.assertEqual((second["version"], second["parent"]), (2, 1))
        self.assertGreaterEqual(first["written_bytes"], 60 << 20)
        self.assertLess(second["written_bytes"], 1.1 * second["dirty_bytes"] + (1 << 20))
        self.assertLess(second["dirty_bytes"], 64 << 20)
        self.kill_rank("job", "hotset")
        newest = max((self.vault / "jobs").glob("*/packs/*.pack"))
        newest.write_bytes(newest.read_bytes()[:100])
        restored = cluster.json("restore", "job", "--accept-loss", "--to", "node-b", exits=(3,))["restored"]
        older = next(image for image in cluster.json("images") if image["version"] == 1)
        self.assertEqual(restored["image"], older["id"])
        self.assertRegex(restored["note"], r"\.v2@\S+ is damaged, an older image was used: version 2: ")
        # The work between the two images is lost as well.
        self.assertGreaterEqual(restored["lost_ms"], second["barrier_ms"] - first["barrier_ms"], restored)
        events = [json.loads(line) for line in cluster.call("events", "-o", "json").stdout.splitlines()]
        event = next(e for e in events if e["kind"] == "job-restored")
        self.assertIn(f"from {older['id']} ", event["text"])
        self.assertIn(f"{restored['lost_ms']} ms of work are lost", event["text"])
        self.assertEqual(cluster.finish("job")["digest"], expected)

    def test_restore_loses_the_work_since_the_newest_image(self):
        """By the job's own lines: how long it may be is the schedule's affair
        (unit_coordinator_image_rules)."""
        cluster = self.cluster
        expected = run_unmoved("hotset", *HOTSET)["digest"]
        cluster.start("job", "hotset", *HOTSET, "--print-times")
        cluster.call("protect", "job", "--every", "1s", "--to", self.vault)
        eventually(lambda: max((image["version"] for image in cluster.json("images")), default=0) >= 3,
                   "there are three versions")
        self.kill_rank("job", "hotset")
        newest = max(cluster.json("images"), key=lambda image: image["version"])
        restored = cluster.json("restore", "job", "--accept-loss", "--to", "node-b", exits=(0, 3))["restored"]
        self.assertEqual((restored["image"], restored["note"]), (newest["id"], None))
        self.assertEqual(cluster.finish("job")["digest"], expected)
        lines = [(int(step), float(time))
                 for step, time in re.findall(r"^step (\d+)\b.* at ([\d.]+)$", cluster.log("job"), re.M)]
        # From here on the output is the restored job's.
        turn = next(i for i in range(1, len(lines)) if lines[i][0] <= lines[i - 1][0])
        first_life, again = lines[:turn], lines[turn - 1][0] - lines[turn][0] + 1
        barrier = datetime.datetime.fromisoformat(newest["created"].replace("Z", "+00:00")).timestamp()
        since = sum(time > barrier for _, time in first_life)
        print(f"lost: {restored['lost_ms']} ms, {since} steps of the {len(first_life)}; the interval is 1000 ms", flush=True)
        self.assertLessEqual(abs(since - again), 1, "steps that were lost, and steps that were done again")
        self.assertGreaterEqual(restored["lost_ms"] + 1, (first_life[-1][1] - barrier) * 1000,
                                "more is lost than is reported")

    def test_suspend_frees_the_gpu_and_resume_continues_the_job(self):
        cluster = self.cluster
        expected = run_unmoved("hotset", *HOTSET)["digest"]
        cluster.start("job", "hotset", *HOTSET)
        cluster.wait_for_line("job", r"^step 5\b")
        cluster.json("suspend", "job", "--to", self.vault)
        self.assertEqual(cluster.job("job")["state"], "parked")
        self.assertEqual(cluster.pids("examples/hotset"), [])
        cluster.json("resume", "job", "--to", "node-b")
        self.assertEqual(cluster.finish("job")["digest"], expected)
        self.assert_steps_in_order(cluster.log("job"))

    def test_a_protected_job_can_be_moved(self):
        cluster = self.cluster
        expected = run_unmoved("hotset", *HOTSET)["digest"]
        cluster.start("job", "hotset", *HOTSET)
        cluster.wait_for_line("job", r"^step 5\b")
        cluster.call("protect", "job", "--every", "1s", "--to", self.vault)
        self.snapshot("job")
        cluster.migrate("job", "node-b")
        self.snapshot("job")
        cluster.migrate("job", "node-a")
        self.assertEqual(cluster.finish("job")["digest"], expected)
        self.assert_steps_in_order(cluster.log("job"))
