# SPDX-License-Identifier: Apache-2.0
"""Jobs in images: snapshot, protect, suspend, resume, restore. Whatever happens to a job, it ends with the
unmoved digest."""
import os
import unittest

from cluster import COMMAND_LIMIT_S, ClusterTest, run_unmoved
from waiting import eventually

TRAINING = ["--seed", "5", "--print-every", "1"]
STEP_MS = ["--step-ms", "8"]  # the pace changes no digest
COOPERATIVE, TRANSPARENT = ("charlm", ("--cooperative",)), ("charlm-plain", ())


class Resting(ClusterTest):
    gpus = 2

    def begin(self, way, steps=800, params=60000):
        program, options = way
        arguments = [*TRAINING, "--params", str(params), "--steps", str(steps)]
        self.expected = run_unmoved(program, *arguments)["digest"]
        self.cluster.start("job", program, *arguments, *STEP_MS, node="node-a:0", way=options)
        self.cluster.wait_for_line("job", r"^step 20\b")

    def end(self):
        self.assertEqual(self.cluster.finish("job")["digest"], self.expected)

    def free(self):
        """The free bytes of the GPU where the job begins."""
        return next(g["free_bytes"] for g in self.cluster.json("gpus")
                    if (g["node"], g["index"]) == ("node-a", 0))

    def wait_until_free(self, fits):
        """Nodes report free memory every few seconds, and at changes."""
        return eventually(lambda: fits(free := self.free()) and free, "the GPU's free bytes fit",
                          COMMAND_LIMIT_S)

    def instances(self):
        return [i for i in self.cluster.json("describe", "job")["instances"]
                if i["phase"] not in ("exited", "moved")]

    def check_snapshots_and_restore(self, way):
        self.begin(way)
        first = self.cluster.json("snapshot", "job")
        second = self.cluster.json("snapshot", "job")
        self.assertEqual([i["id"] for i in self.cluster.json("images")], [first["image"], second["image"]])
        self.assertGreater(first["report"]["pause_ms"], 0)
        self.assertEqual(self.cluster.job("job")["state"], "running")
        back = self.cluster.json("restore", first["image"], "--accept-loss", "--to", "node-a:1", exits=(3,))
        self.assertEqual(back["restored"]["image"], first["image"])
        self.assertGreater(back["restored"]["lost_ms"], 0)
        job = self.cluster.job("job")
        self.assertEqual((job["node"], job["gpu"], job["incarnation"]), ("node-a", 1, 2), job)
        self.assertEqual(len(self.instances()), 1)
        self.end()

    def test_cooperative_job_is_restored_from_its_snapshots(self):
        self.check_snapshots_and_restore(COOPERATIVE)

    def test_transparent_job_is_restored_from_its_snapshots(self):
        self.check_snapshots_and_restore(TRANSPARENT)

    def rest(self, way):
        before = self.free()
        self.begin(way, steps=400, params=600000)
        size = self.cluster.job("job")["state_bytes"]
        # The mover uses 2 MiB itself, as much as the transparent job uses.
        more_than_the_movers_own = way is COOPERATIVE
        if more_than_the_movers_own:
            self.wait_until_free(lambda free: free <= before - size)
        parked = self.cluster.json("suspend", "job", "--to", str(self.cluster.home / "vault") + "/")
        self.assertIsNotNone(parked["image"])
        job = self.cluster.job("job")
        self.assertEqual((job["state"], job["gpu"], job["exit_code"]), ("parked", None, None), job)
        self.assertEqual(self.instances(), [])
        self.assertEqual(self.cluster.run("wait", "job", "--timeout", "10ms").returncode, 124)
        if more_than_the_movers_own:
            self.wait_until_free(lambda free: free > before - size)
        resumed = self.cluster.json("resume", "job", "--to", "node-b")
        self.assertEqual(resumed["restored"]["lost_ms"], 0)
        self.assertEqual(self.cluster.job("job")["node"], "node-b")
        self.end()

    def test_cooperative_job_is_parked_and_resumed_elsewhere(self):
        self.rest(COOPERATIVE)

    @unittest.skipUnless(os.geteuid() == 0, "a process moves as root only")
    def test_transparent_job_is_parked_and_resumed_elsewhere(self):
        self.rest(TRANSPARENT)

    def test_a_protected_job_survives_its_node(self):
        self.begin(COOPERATIVE, steps=1500)
        self.cluster.call("protect", "job", "--every", "1s", "--to", str(self.cluster.home / "vault") + "/",
                          "--keep", "3")
        self.wait_for_images(2)
        self.cluster.kill("nodes/node-a/")  # kills agent, mover and keeper; the ranks exit with their keeper
        self.wait_for_event("node-lost")
        self.assertEqual(self.cluster.run("restore", "job").returncode, 5)  # the job may be alive on node-a
        back = self.cluster.json("restore", "job", "--force", "--accept-loss", exits=(3,))
        self.assertEqual(back["restored"]["at"].split(":")[0], "node-b")
        self.assertEqual(self.cluster.finish("job")["digest"], self.expected)

    def wait_for_images(self, count):
        """Follows events; every image that protection takes is shown by `jobs`."""
        seen = set()

        def has_enough():
            job = self.cluster.job("job")
            self.assertIsNone(job["protection"]["last_error"], job)
            if job["protection"]["last_image"]:
                seen.add(job["protection"]["last_image"])
            return len(seen) >= count
        eventually(has_enough, f"protection takes {count} images")

    def wait_for_event(self, kind):
        with self.cluster.popen("events", "-f", "-o", "json") as follower:
            for line in follower.stdout:
                if f'"kind":"{kind}"' in line:
                    break
            follower.kill()
