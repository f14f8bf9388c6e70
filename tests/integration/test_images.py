# SPDX-License-Identifier: Apache-2.0
"""Jobs in images: snapshot, protect, suspend, resume, restore; the coordinator killed at each record of a restore."""
import os
import signal
import unittest

from cluster import ClusterTest, run_unmoved
from crashing import CrashingTest

TRAINING = ["--params", "60000", "--seed", "5", "--print-every", "1"]
STEP_MS = ["--step-ms", "8"]  # changes no digest
COOPERATIVE, TRANSPARENT = ("charlm", ("--cooperative",)), ("charlm-plain", ())


class Resting(ClusterTest):
    gpus = 2

    def begin(self, way, steps=800):
        program, options = way
        arguments = [*TRAINING, "--steps", str(steps)]
        self.expected = run_unmoved(program, *arguments)["digest"]
        self.cluster.start("job", program, *arguments, *STEP_MS, node="node-a:0", way=options)
        self.cluster.wait_for_line("job", r"^step 20\b")

    def end(self):
        self.assertEqual(self.cluster.finish("job")["digest"], self.expected)

    def free(self, gpu):
        node, index = gpu.split(":")
        return next(g for g in self.cluster.json("gpus") if g["node"] == node and str(g["index"]) == index)["free_bytes"]

    def instances(self):
        return [i for i in self.cluster.json("describe", "job")["instances"] if i["phase"] not in ("exited", "moved")]

    def snapshots_and_a_way_back(self, way):
        self.begin(way)
        first = self.cluster.json("snapshot", "job")
        second = self.cluster.json("snapshot", "job")
        self.assertEqual([i["id"] for i in self.cluster.json("images")], [first["image"], second["image"]])
        self.assertGreater(first["report"]["pause_ms"], 0)
        self.assertEqual(self.cluster.job("job")["state"], "running")
        back = self.cluster.json("restore", first["image"], "--to", "node-a:1", exits=(3,))
        self.assertEqual(back["restored"]["image"], first["image"])
        self.assertGreater(back["restored"]["lost_ms"], 0)
        job = self.cluster.job("job")
        self.assertEqual((job["node"], job["gpu"], job["incarnation"]), ("node-a", 1, 2), job)
        self.assertEqual(len(self.instances()), 1)
        self.end()

    def test_cooperative_snapshot_and_restore(self):
        self.snapshots_and_a_way_back(COOPERATIVE)

    def test_transparent_snapshot_and_restore(self):
        self.snapshots_and_a_way_back(TRANSPARENT)

    def rest(self, way):
        before = self.free("node-a:0")
        self.begin(way)
        self.assertLess(self.free("node-a:0"), before)
        parked = self.cluster.json("suspend", "job", "--to", str(self.cluster.home / "vault") + "/")
        self.assertIsNotNone(parked["image"])
        job = self.cluster.job("job")
        self.assertEqual((job["state"], job["gpu"], job["exit_code"]), ("parked", None, None), job)
        self.assertEqual(self.instances(), [])
        self.assertEqual(self.cluster.run("wait", "job", "--timeout", "10ms").returncode, 2)
        resumed = self.cluster.json("resume", "job", "--to", "node-b")
        self.assertEqual(resumed["restored"]["lost_ms"], 0)
        self.assertEqual(self.cluster.job("job")["node"], "node-b")
        self.end()

    def test_cooperative_rests_and_goes_on_elsewhere(self):
        self.rest(COOPERATIVE)

    @unittest.skipUnless(os.geteuid() == 0, "a process moves as root only")
    def test_transparent_rests_and_goes_on_elsewhere(self):
        self.rest(TRANSPARENT)

    def test_a_protected_job_survives_its_node(self):
        self.begin(COOPERATIVE, steps=1500)
        self.cluster.call("protect", "job", "--every", "1s", "--to", str(self.cluster.home / "vault") + "/", "--keep", "3")
        self.wait_for_images(2)
        self.cluster.kill("nodes/node-a/")  # agent, mover, keeper; the ranks go with their keeper
        self.wait_for_event("node-lost")
        self.assertEqual(self.cluster.run("restore", "job").returncode, 5)  # it may live
        back = self.cluster.json("restore", "job", "--force", exits=(3,))
        self.assertEqual(back["restored"]["at"].split(":")[0], "node-b")
        self.assertEqual(self.cluster.finish("job")["digest"], self.expected)

    def wait_for_images(self, count):
        """Follows events; every image that protection takes is shown by `jobs`."""
        seen = set()
        while len(seen) < count:
            job = self.cluster.job("job")
            self.assertIsNone(job["protection"]["last_error"], job)
            if job["protection"]["last_image"]:
                seen.add(job["protection"]["last_image"])

    def wait_for_event(self, kind):
        with self.cluster.popen("events", "-f", "-o", "json") as follower:
            for line in follower.stdout:
                if f'"kind":"{kind}"' in line:
                    break
            follower.kill()


# The coordinator dies at each record of a restore, and of a suspend.
POINTS = [("operation_durable", 620), ("instance_ended", 621), ("start_durable", 622), ("started", 623)]
PARKED = ("parked_durable", 624)


class CoordinatorDies(CrashingTest):
    gpus = 2

    def crash(self, number, *command):
        victims = self.daemons_of("coordinator")
        self.cluster.arm("coordinator", number)
        with self.cluster.popen(*command) as ordering:
            self.wait_until_fired("coordinator", number, ordering)
            self.wait_until_dead(victims)
            ordering.send_signal(signal.SIGTERM)
        self.cluster.up()

    def start_training(self):
        arguments = [*TRAINING, "--steps", "800"]
        self.expected = run_unmoved("charlm", *arguments)["digest"]
        self.cluster.start("job", "charlm", *arguments, *STEP_MS, node="node-a:0")
        self.cluster.wait_for_line("job", r"^step 20\b")

    def restore_through(self, number):
        self.start_training()
        self.cluster.call("snapshot", "job")
        self.crash(number, "restore", "job", "--to", "node-a:1")
        self.assertEqual(self.cluster.finish("job")["digest"], self.expected)
        self.assertEqual(self.cluster.job("job")["incarnation"], 2)
        ran = self.cluster.json("describe", "job")["instances"]
        self.assertEqual([i["incarnation"] for i in ran], [1, 2], ran)

    def test_624_parked_durable(self):
        self.start_training()
        self.crash(624, "suspend", "job")
        self.assertEqual(self.cluster.job("job")["state"], "parked")
        self.cluster.call("resume", "job")
        self.assertEqual(self.cluster.finish("job")["digest"], self.expected)


def make_test(number):
    return lambda self: self.restore_through(number)


for name, number in POINTS:
    setattr(CoordinatorDies, f"test_{number}_{name}", make_test(number))


if __name__ == "__main__":
    unittest.main(verbosity=2)
