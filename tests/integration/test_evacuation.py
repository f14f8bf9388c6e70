# SPDX-License-Identifier: Apache-2.0
"""A GPU in trouble under a running job, from the software NVML to the digest: memory that is gone (the job goes on from its newest image),
memory that can be read (it moves live and loses nothing), for both ways of running."""
import subprocess
import threading
import unittest

import cluster

COOPERATIVE = ("charlm", ("--cooperative",))
TRANSPARENT = ("charlm-plain", ())
TRAINING = ["--params", "60000", "--seed", "5", "--print-every", "1", "--steps", "1500", "--step-ms", "8"]
INTERVAL_MS = 1000


class Evacuation(cluster.ClusterTest):
    agent_settings = "health_window_ms = 200\n"

    def begin(self, program, way):
        self.expected = cluster.run_unmoved(program, *TRAINING)["digest"]
        self.cluster.start("job", program, *TRAINING, way=way)
        self.cluster.wait_for_line("job", r"^step 5\b")

    def gpu(self, *order):
        subprocess.run([cluster.BIN / "cudasim-ctl", "--dir", self.cluster.home / "nodes/node-a/gpu", "--device", "0", *order], check=True,
                       capture_output=True)

    def wait_for_event(self, kind):
        with self.cluster.popen("events", "-f", "-o", "json") as follower:
            limit = threading.Timer(cluster.COMMAND_LIMIT_S, follower.kill)  # what never comes is a failure, not a hang
            limit.start()
            found = any(f'"kind":"{kind}"' in line for line in follower.stdout)
            limit.cancel()
            follower.kill()
        self.assertTrue(found, f"no {kind}")

    def images(self):
        return self.cluster.json("images")

    def lost_gpu(self, program, way):
        self.begin(program, way)
        self.cluster.call("protect", "job", "--every", f"{INTERVAL_MS}ms", "--force", "--to", str(self.cluster.home / "vault") + "/")
        while not any(image["version"] >= 2 for image in self.images()):
            pass  # each question is a command of its own
        self.gpu("lose-device")
        self.gpu("xid", "79")
        self.wait_for_event("job-restored")
        job = self.cluster.job("job")
        self.assertEqual((job["node"], job["incarnation"]), ("node-b", 2), job)
        done = self.cluster.json("health")["evacuations"][-1]
        self.assertEqual((done["job"], done["state"]), (job["id"], "restored"), done)
        self.assertGreaterEqual(done["lost_ms"], 0, done)  # at most the interval and a snapshot, which is the machine's to take
        self.assertEqual(self.cluster.finish("job")["digest"], self.expected)
        gpu = next(gpu for gpu in self.cluster.json("gpus") if gpu["node"] == "node-a")
        self.assertTrue(gpu["cordons"], gpu)

    def test_a_lost_gpu_under_a_cooperative_job(self):
        self.lost_gpu(*COOPERATIVE)

    def test_a_lost_gpu_under_a_transparent_job(self):
        self.lost_gpu(*TRANSPARENT)

    def failing_gpu(self, program, way):
        """Xid 64, a row remap that failed: memory can be read, the GPU must be reset."""
        self.begin(program, way)
        self.gpu("xid", "64")
        self.wait_for_event("migration-ended")
        job = self.cluster.job("job")
        self.assertEqual((job["node"], job["incarnation"]), ("node-b", 2), job)
        migration = self.cluster.json("migrations")[0]
        self.assertEqual((migration["result"], migration["mode"]), ("done", "live"), migration)
        self.assertEqual(self.cluster.finish("job")["digest"], self.expected)
        self.assert_steps_in_order(self.cluster.log("job"))

    def test_a_failing_gpu_under_a_cooperative_job(self):
        self.failing_gpu(*COOPERATIVE)

    def test_a_failing_gpu_under_a_transparent_job(self):
        self.failing_gpu(*TRANSPARENT)

    def test_nowhere_to_go(self):
        """The only other GPU is cordoned: the job is parked, and goes on by itself once there is room."""
        self.begin(*COOPERATIVE)
        self.cluster.call("cordon", "node-b")
        self.gpu("xid", "64")
        self.wait_for_event("job-parked")
        self.assertEqual(self.cluster.job("job")["state"], "parked")
        self.cluster.call("uncordon", "node-b")
        self.cluster.call("uncordon", "node-a:0")
        self.wait_for_event("job-resumed")
        self.assertEqual(self.cluster.finish("job")["digest"], self.expected)


if __name__ == "__main__":
    unittest.main(verbosity=2)
