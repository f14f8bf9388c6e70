# SPDX-License-Identifier: Apache-2.0
"""An unmodified Python program with gigabytes of host memory moves between two nodes, or is refused before
its pause: no limit of its own for work that grows with the bytes. Prints the pauses with its memory copied ahead and
without. Long: test_process_memory.py is the short edition. Needs root, a CRIU that works and four times the memory on this machine."""
import json
import os
import pathlib
import re
import sys
import unittest

from cluster import ClusterTest

GIB = float(os.environ.get("GPUMIGRATE_LARGE_PROCESS_GIB", "3"))
LIMIT_S = 900
PROGRAM = pathlib.Path(__file__).resolve().parents[1] / "programs" / "memory_job.py"


class LargeProcess(ClusterTest):
    def move(self, node, how):
        """Its report; none if it was refused."""
        result = self.cluster.run("migrate", "job", "--to", node, how, "-o", "json", limit=LIMIT_S)
        output = result.stdout + result.stderr
        if result.returncode != 0:
            self.assertRegex(output, r"memory", result)
            self.assertNotIn("barrier", json.dumps(self.cluster.json("describe", "job")), output)
            return None
        return json.loads(result.stdout)

    def test_python_program_of_gigabytes_moves_there_and_back_or_is_refused_before_its_pause(self):
        self.cluster.call("run", "--detach", "--name", "job", "--node", "node-a", "--", sys.executable,
                          PROGRAM, str(int(GIB * 1024)))
        self.cluster.wait_for_line("job", r"^step 5\b")
        plan = self.cluster.run("migrate", "job", "--to", "node-b", "--dry-run")
        if plan.returncode != 0 and "host processes" in plan.stdout + plan.stderr:
            self.skipTest((plan.stdout + plan.stderr).strip())
        for how in ("--live", "--stop-copy", "--live", "--live"):
            node = "node-a" if self.cluster.job("job")["node"] == "node-b" else "node-b"
            report = self.move(node, how)
            if report is None:
                continue
            self.assertEqual(report["result"], "done", report)
            self.assertTrue(report["verified"], report)
            self.assertGreater(report["wire_bytes"], GIB * 2**30, report)
            print(f"{GIB:g} GiB to {node}, {how[2:]}: estimate {report['estimate_ms']:.0f} ms, downtime {report['downtime_ms']:.0f} ms", flush=True)
            self.assertEqual(self.cluster.job("job")["node"], node)
            steps = len(re.findall(r"^step", self.cluster.log("job"), re.M))
            self.cluster.wait_for_line("job", rf"^step {steps + 100}\b")
        self.assert_steps_in_order(self.cluster.log("job"))
        self.cluster.call("stop", "job", "--grace", "0s")
