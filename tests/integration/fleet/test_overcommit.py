# SPDX-License-Identifier: Apache-2.0
"""More work than a GPU has memory for: jobs of higher priority park lower ones, which come back by
themselves, oldest first, and all end with the digest of an undisturbed run."""
import json
import unittest

import cluster
from waiting import eventually

BYTES = "307MiB"
NEEDED = "310MiB"  # the memory that a job promises; the quota of a transparent job
COOPERATIVE, TRANSPARENT = (("--cooperative",), ()), ((), ("--without-ckpt",))
# Each job parks the previous job; the last job waits for no other job.
JOBS = [("coop-a", 150, COOPERATIVE), ("plain-b", 150, TRANSPARENT), ("plain-c", 150, TRANSPARENT),
        ("coop-d", 150, COOPERATIVE)]
NAMES = [name for name, _, _ in JOBS]


def hotset(priority, step_ms=800):
    """Writes every page at the start and checks every page at the end; the pace leaves time to be parked
    in."""
    return ["--bytes", BYTES, "--hot", "1%", "--steps", str(JOBS[priority][1]), "--step-ms", str(step_ms),
            "--seed", str(priority),
            "--print-every", "1"]


class Overcommit(cluster.ClusterTest):
    nodes, gpus, memory = 1, 1, "614MiB"

    def run_job(self, priority):
        name, _, (way, options) = JOBS[priority]
        self.cluster.call("run", *way, "--detach", "--preempt", "--priority", priority, "--gpu-memory",
                          NEEDED, "--name", name, "--env", f"GPUMIGRATE_TEST_HURRY={self.cluster.hurry(name)}", "--",
                          cluster.EXAMPLES / "hotset", *hotset(priority), *options)

    def jobs_of_events(self, kind):
        lines = self.cluster.call("events", "-o", "json").stdout.splitlines()
        return [event["job"] for event in map(json.loads, lines) if event["kind"] == kind]

    def test_four_jobs_share_a_gpu_with_memory_for_one(self):
        expected = [cluster.run_unmoved("hotset", *hotset(priority, step_ms=0))["digest"]
                    for priority in range(len(JOBS))]
        for priority, name in enumerate(NAMES):
            self.run_job(priority)
            self.cluster.wait_for_line(name, r"^step 3\b")
            eventually(lambda name=name: self.cluster.job(name)["movable"], f"{name} can be moved")
            states = {job["name"]: job["state"] for job in self.cluster.json("jobs")}
            self.assertEqual(states, {before: "parked" for before in NAMES[:priority]} | {name: "running"})
        ids = [self.cluster.job(name)["id"] for name in NAMES]

        for name in NAMES:
            self.cluster.hurry(name).touch()
        ended = [self.cluster.finish(name) for name in NAMES]
        self.assertEqual([end["digest"] for end in ended], expected)
        for name in NAMES:
            self.assert_steps_in_order(self.cluster.log(name))
        self.assertEqual(self.jobs_of_events("job-parked"), ids[:3])
        # Parked jobs resume automatically, oldest first, at the first attempt.
        self.assertEqual(self.jobs_of_events("job-resumed"), ids[:3])
        self.assertEqual(self.jobs_of_events("restore-failed"), [])
        self.assertEqual([job["incarnation"] > 1 for job in self.cluster.json("jobs")],
                         [True, True, True, False])

    def test_no_job_is_parked_for_equal_priority(self):
        self.run_job(0)
        self.cluster.wait_for_line(JOBS[0][0], r"^step 3\b")
        refused = self.cluster.call("run", "--cooperative", "--detach", "--preempt", "--gpu-memory", NEEDED,
                                    "--", "/bin/true", exits=(5,))
        self.assertIn("parking jobs of a priority below 0 would not help", refused.stderr)
        self.assertEqual(self.cluster.job(JOBS[0][0])["state"], "running")
        self.cluster.call("stop", JOBS[0][0])
