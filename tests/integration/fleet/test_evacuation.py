# SPDX-License-Identifier: Apache-2.0
"""A GPU in trouble under a running job, from the software NVML to the digest: memory that is gone (the job
goes on from its newest image), memory that can be read (it moves live and loses nothing), an NVML that
does not answer (which is reported, and stops nothing), in both migration modes."""
import subprocess
import threading
import unittest

import cluster
from waiting import eventually

COOPERATIVE = ("charlm", ("--cooperative",))
TRANSPARENT = ("charlm-plain", ())
TRAINING = ["--params", "60000", "--seed", "5", "--print-every", "1", "--steps", "1500", "--step-ms", "8"]
INTERVAL_MS = 1000


class TroubledGpu(cluster.ClusterTest):
    agent_settings = "health_window_ms = 200\n"

    def begin(self, program, way):
        self.expected = cluster.run_unmoved(program, *TRAINING)["digest"]
        self.cluster.start("job", program, *TRAINING, way=way)
        self.cluster.wait_for_line("job", r"^step 5\b")

    def gpu(self, *order):
        subprocess.run([cluster.BIN / "cudasim-ctl", "--dir", self.cluster.home / "nodes/node-a/gpu",
                        "--device", "0", *order], check=True,
                       capture_output=True)

    def wait_for_event(self, kind):
        with self.cluster.popen("events", "-f", "-o", "json") as follower:
            # An event that never arrives fails the test instead of hanging it.
            limit = threading.Timer(cluster.COMMAND_LIMIT_S, follower.kill)
            limit.start()
            found = any(f'"kind":"{kind}"' in line for line in follower.stdout)
            limit.cancel()
            follower.kill()
        self.assertTrue(found, f"no {kind}")

    def protect(self):
        self.cluster.call("protect", "job", "--every", f"{INTERVAL_MS}ms", "--force", "--to", self.cluster.image_place)

    def newest_version(self):
        return max((image["version"] for image in self.cluster.json("images")), default=0)

    def wait_for_version(self, version):
        eventually(lambda: self.newest_version() >= version, f"there is version {version}")


class Evacuation(TroubledGpu):
    def lost_gpu(self, program, way):
        self.begin(program, way)
        self.protect()
        self.wait_for_version(2)
        self.gpu("lose-device")
        self.gpu("xid", "79")
        self.wait_for_event("job-restored")
        job = self.cluster.job("job")
        self.assertEqual((job["node"], job["incarnation"]), ("node-b", 2), job)
        done = self.cluster.json("health")["evacuations"][-1]
        self.assertEqual((done["job"], done["state"]), (job["id"], "restored"), done)
        # The loss is at most the interval and the duration of a snapshot, which depends on the machine.
        self.assertGreaterEqual(done["lost_ms"], 0, done)
        self.assertEqual(self.cluster.finish("job")["digest"], self.expected)
        gpu = next(gpu for gpu in self.cluster.json("gpus") if gpu["node"] == "node-a")
        self.assertTrue(gpu["cordons"], gpu)

    def test_a_cooperative_job_on_a_lost_gpu_is_restored(self):
        self.lost_gpu(*COOPERATIVE)

    def test_a_transparent_job_on_a_lost_gpu_is_restored(self):
        self.lost_gpu(*TRANSPARENT)

    def failing_gpu(self, program, way):
        """Xid 64, a row remap that failed: memory can be read, the GPU must be reset."""
        self.begin(program, way)
        self.gpu("xid", "64")
        self.wait_for_event("migration-ended")
        job = self.cluster.job("job")
        self.assertEqual((job["node"], job["incarnation"]), ("node-b", 2), job)
        migration = self.cluster.json("migrations")[0]
        self.assertEqual((migration["result"], migration["strategy"]), ("done", "live"), migration)
        self.assertEqual(self.cluster.finish("job")["digest"], self.expected)
        self.assert_steps_in_order(self.cluster.log("job"))

    def test_a_cooperative_job_leaves_a_failing_gpu(self):
        self.failing_gpu(*COOPERATIVE)

    def test_a_transparent_job_leaves_a_failing_gpu(self):
        self.failing_gpu(*TRANSPARENT)

    def test_job_without_a_target_is_parked_until_memory_is_free(self):
        """The only other GPU is cordoned: the job is parked, and goes on by itself once memory is free."""
        self.begin(*COOPERATIVE)
        self.cluster.call("cordon", "node-b")
        self.gpu("xid", "64")
        self.wait_for_event("job-parked")
        self.assertEqual(self.cluster.job("job")["state"], "parked")
        self.cluster.call("uncordon", "node-b")
        self.cluster.call("uncordon", "node-a:0")
        self.wait_for_event("job-resumed")
        self.assertEqual(self.cluster.finish("job")["digest"], self.expected)


class HangingNvml(TroubledGpu):
    """The driver's management library hangs under a protected job."""

    agent_settings = TroubledGpu.agent_settings + "health_silence_ms = 1500\n"

    def hanging_nvml(self, program, way):
        self.begin(program, way)
        self.protect()
        self.wait_for_version(1)
        self.gpu("hang-nvml")
        self.wait_for_event("gpu-health")
        finding = self.cluster.json("health")["findings"][0]  # the newest finding
        self.assertEqual((finding["node"], finding["gpu"]), ("node-a", 0), finding)
        self.assertIn("does not answer", finding["reason"])
        gpu = next(gpu for gpu in self.cluster.json("gpus") if gpu["node"] == "node-a")
        self.assertIn("health", [cordon["owner"] for cordon in gpu["cordons"]], gpu)

        # The hang delays nothing: further images are taken, and the job can be moved and continues.
        self.wait_for_version(self.newest_version() + 1)
        report = self.cluster.migrate("job", "node-b", "--live")
        self.assertEqual((report["result"], report["verified"]), ("done", True), report)
        self.assertEqual(self.cluster.finish("job")["digest"], self.expected)
        self.assert_steps_in_order(self.cluster.log("job"))

    def test_a_hang_under_a_cooperative_job_is_handled(self):
        self.hanging_nvml(*COOPERATIVE)

    def test_a_hang_under_a_transparent_job_is_handled(self):
        self.hanging_nvml(*TRANSPARENT)
