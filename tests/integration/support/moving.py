# SPDX-License-Identifier: Apache-2.0
"""Moving a job there and back and comparing it with an unmoved run: what test_moves_*.py share."""
from cluster import ClusterTest, run_unmoved

HOTSET = ["--bytes", "64MiB", "--hot", "2%", "--step-ms", "5", "--seed", "7", "--print-every", "1"]


class MovingTest(ClusterTest):
    targets = ("node-b", "node-a")  # the targets in turn; jobs start on node-a's first GPU

    def move_and_compare(self, program, arguments, moves, mode, first_line=r"^(step|request) \d+"):
        expected = run_unmoved(program, *arguments)
        self.cluster.start("job", program, *arguments)
        self.cluster.wait_for_line("job", first_line)
        reports = []
        for turn in range(moves):
            target = self.targets[turn % 2]
            report = self.cluster.migrate("job", target, mode, "--reason", f"move {turn + 1}")
            self.assertEqual(report["result"], "done", report)
            self.assertTrue(report["verified"], report)
            self.assertEqual(report["incarnation"], turn + 2)
            reports.append(report)
        self.assertEqual(self.cluster.job("job")["incarnation"], moves + 1)
        ended = self.cluster.finish("job")
        self.assertEqual(ended["digest"], expected["digest"])
        self.check_reports(reports, mode)
        return reports

    def check_reports(self, reports, mode):
        for report in reports:
            pieces = sum(report["downtime_breakdown_ms"].values())
            self.assertAlmostEqual(pieces, report["downtime_ms"], delta=0.02 * report["downtime_ms"],
                                   msg=report)
            self.assertGreaterEqual(report["sent_bytes"], report["dirty_bytes"])
            for name in ("bound_ms", "bound_by", "scan_ms", "link_bytes_per_second", "scan_bytes_per_second"):
                self.assertIsNotNone(report[name], report)
            if mode == "--stop-copy":
                self.assertEqual(report["rounds"], 1, report)
                self.assertEqual(report["dirty_bytes"], 0, report)
            else:
                self.assertGreaterEqual(report["rounds"], 2, report)

    def hotset(self, pattern, moves, mode, steps=1500, extra=()):
        arguments = [*HOTSET, "--pattern", pattern, "--steps", str(steps), *extra]
        reports = self.move_and_compare("hotset", arguments, moves, mode)
        for migration in self.cluster.json("migrations"):
            if mode == "--live":  # the progress is the last report before the pause
                self.assertGreaterEqual(migration["progress"]["round"], 2, migration)
                self.assertIsNotNone(migration["progress"]["estimate_ms"], migration)
                self.assertIsNotNone(migration["progress"]["dirty_bytes_per_second"], migration)
        if mode == "--live":  # the job writes at each step, and a first round lasts for several steps
            self.assertGreater(sum(report["dirty_bytes"] for report in reports), 0)
        self.assert_steps_in_order(self.cluster.log("job"))
