#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The target has committed, its lease is over before the job runs there, and the coordinator does not answer:
the source lends (SW-10)."""
import os
import select
import signal
import time
import unittest

from cluster import run_unmoved
from crashing import CrashingTest
from fault_points import Point

STEPS = ("--params", "20000", "--steps", "1500", "--step-ms", "4", "--print-every", "1")
TERM_MS = 2000


class Lending(CrashingTest):
    nodes = 2
    coordinator_settings = f"lease_term_ms = {TERM_MS}\n"

    def test_job_continues_at_the_target_while_the_coordinator_does_not_answer(self):
        cluster = self.cluster
        cluster.start("job", "charlm", *STEPS, node="node-a")
        cluster.wait_for_line("job", r"^step 20\b")
        source, = (os.pidfd_open(pid) for pid in cluster.pids("examples/charlm"))
        cluster.arm("agent.node-b", Point.TARGET_COMMITTED_DURABLE, "stop")
        with cluster.popen("migrate", "job", "--to", "node-b", "-o", "json") as command:
            self.wait_until_fired("agent.node-b", Point.TARGET_COMMITTED_DURABLE, command)
            cluster.kill("gpumigrate-coordinator", signal.SIGSTOP)
            time.sleep(TERM_MS / 1000 + 0.5)  # the lease expires by the clock
            cluster.kill("nodes/node-b/agent.toml", signal.SIGCONT)
            released, _, _ = select.select([source], [], [], 60)
            self.assertTrue(released, "the source did not release within a minute")
            cluster.kill("gpumigrate-coordinator", signal.SIGCONT)
            output, errors = command.communicate(timeout=120)
        os.close(source)
        self.assertEqual(command.returncode, 0, output[-500:] + errors[-500:])
        self.assertEqual(cluster.job("job")["node"], "node-b")
        self.assertEqual(cluster.finish("job")["digest"], run_unmoved("charlm", *STEPS)["digest"])
