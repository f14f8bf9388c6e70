# SPDX-License-Identifier: Apache-2.0
"""A GPU that computes nothing any more under a protected job, without an Xid and with an NVML that answers: a
probe finds it, the GPU is cordoned, and the job goes on elsewhere from its newest image."""
import unittest

import test_evacuation


class HangingGpu(test_evacuation.TroubledGpu):
    agent_settings = test_evacuation.TroubledGpu.agent_settings + "health_probe_interval_ms = 500\nhealth_probe_deadline_ms = 10000\n"

    def hanging_gpu(self, program, way):
        self.begin(program, way)
        self.protect()
        self.wait_for_version(2)
        self.gpu("hang")
        self.wait_for_event("job-restored")
        job = self.cluster.job("job")
        self.assertEqual((job["node"], job["incarnation"]), ("node-b", 2), job)
        finding = self.cluster.json("health")["findings"][0]  # the newest finding
        self.assertEqual((finding["node"], finding["gpu"], finding["source"], finding["xid"]),
                         ("node-a", 0, "probe", None), finding)
        self.assertIn("a probe of the GPU hangs", finding["reason"])
        self.assertEqual(self.cluster.finish("job")["digest"], self.expected)
        self.assertFalse(self.cluster.pids("examples/" + program))  # the hanging process has also ended
        gpu = next(gpu for gpu in self.cluster.json("gpus") if gpu["node"] == "node-a")
        self.assertIn("health", [cordon["owner"] for cordon in gpu["cordons"]], gpu)

    def test_a_hang_under_a_cooperative_job_is_handled(self):
        self.hanging_gpu(*test_evacuation.COOPERATIVE)

    def test_a_hang_under_a_transparent_job_is_handled(self):
        self.hanging_gpu(*test_evacuation.TRANSPARENT)
