# SPDX-License-Identifier: Apache-2.0
"""The estimate of a pause has all its terms, and --max-downtime with --if-not-converged abort keeps its
promise: a job whose pause would be too long stays, and the operator sees why. Transparent jobs; between
nodes it needs root and a CRIU that works, else that case is skipped."""
import pathlib
import signal
import subprocess
import time
import unittest

from cluster import BIN, COMMAND_LIMIT_S, ClusterTest, run_unmoved
from fault_points import Point

TRAINING = ["--params", "200000", "--seed", "3", "--print-every", "1", "--step-ms", "15"]
TERMS = {"quiesce", "final", "verify", "commit", "context", "host", "fill", "restore", "resume",
         "communicators"}


class Estimates(ClusterTest):
    def start_training(self, steps, node):
        arguments = [*TRAINING, "--steps", str(steps)]
        expected = run_unmoved("charlm-plain", *arguments[:-4], *arguments[-2:])
        self.cluster.start("job", "charlm-plain", *arguments, node=node, way=())
        self.cluster.wait_for_line("job", r"^step \d+")
        return expected

    def check_stays(self, to, limit, term, place):
        for mode in ("--live", "--stop-copy"):
            stayed = self.cluster.run("migrate", "job", "--to", to, mode, "--max-downtime", limit)
            self.assertEqual(stayed.returncode, 5, stayed)
            self.assertRegex(stayed.stdout + stayed.stderr, rf"longest term is {term}.*Possible remedies: ",
                             stayed)
            job = self.cluster.job("job")
            self.assertEqual((job["state"], f"{job['node']}:{job['gpu']}"), ("running", place), job)

    def check_goes_back(self, to, mover, place):
        """A target's mover that stands still once the job has paused: the pause cannot come to an end within
        its limit."""
        self.cluster.arm(mover, Point.TARGET_MOVER_FINAL, "stop")
        moving = self.cluster.popen("migrate", "job", "--to", to, "--max-downtime", "4s",
                                    "--if-not-converged", "abort", "--timeout", "60s")
        try:
            output, errors = moving.communicate(timeout=COMMAND_LIMIT_S)
        finally:
            self.cluster.kill("gpumigrate-mover", signal.SIGCONT)
        self.assertTrue(self.cluster.fired(mover, Point.TARGET_MOVER_FINAL), output + errors)
        self.assertEqual(moving.returncode, 1, output + errors)
        self.assertRegex(output + errors, r"pause exceeded its limit of 4000 ms before the target had all")
        job = self.cluster.job("job")
        self.assertEqual((job["state"], f"{job['node']}:{job['gpu']}"), ("running", place), job)

    def wait_for_estimate(self, scope):
        """The node samples its jobs in the background; the job runs on."""
        while True:
            job = self.cluster.json("describe", "job")
            self.assertEqual(job["state"], "running", job)
            if job["expected_pause_ms"][scope] is not None:
                return job

    def check_forecast(self, scope, to):
        job = self.wait_for_estimate(scope)
        self.assertEqual(job["expected_pause_from"][scope], "estimate", job)
        self.assertGreater(job["expected_pause_ms"][scope], 0, job)
        where = {"within_node": "within its node", "between_nodes": "to another node"}[scope]
        self.assertRegex(self.cluster.call("describe", "job").stdout, rf"pause .*~\S+ \S+ {where}")
        plan = self.cluster.json("migrate", "job", "--to", to, "--dry-run")
        self.assertEqual(plan["expected_pause_from"], "estimate", plan)
        self.assertGreater(plan["expected_pause_ms"], 0, plan)
        self.assertIn("an estimate: the job has not moved in this way yet",
                      self.cluster.call("migrate", "job", "--to", to, "--dry-run").stdout)

    def check_forecast_of_last_move(self, scope):
        job = self.cluster.json("describe", "job")
        self.assertEqual(job["expected_pause_from"][scope], "last_move", job)

    def check_moves(self, to, terms):
        report = self.cluster.migrate("job", to, "--max-downtime", "60s", "--if-not-converged", "abort")
        self.assertEqual(report["result"], "done", report)
        expected = report["estimate_breakdown_ms"]
        self.assertEqual(set(expected), TERMS, report)
        self.assertAlmostEqual(sum(expected.values()), report["estimate_ms"], delta=0.1, msg=report)
        for term in terms:
            self.assertGreater(expected[term], 0, report)
        self.assertAlmostEqual(report["driver_ms"], report["downtime_breakdown_ms"]["context"], msg=report)
        return report


class BetweenNodes(Estimates):
    def test_job_with_a_forecast_pause_over_the_limit_stays_with_a_reason(self):
        expected = self.start_training(1500, "node-a")
        plan = self.cluster.run("migrate", "job", "--to", "node-b", "--dry-run")
        if plan.returncode != 0 and "host processes" in plan.stdout + plan.stderr:
            self.skipTest((plan.stdout + plan.stderr).strip())
        self.check_forecast("between_nodes", "node-b")
        self.check_stays("node-b", "30ms", "host", "node-a:0")
        self.check_moves("node-b", ("context", "host", "commit", "resume"))
        self.check_forecast_of_last_move("between_nodes")
        self.check_stays("node-a", "30ms", "host", "node-b:0")
        self.assertEqual(self.cluster.finish("job")["digest"], expected["digest"])


    def test_dumped_process_continues_if_the_pause_exceeds_its_limit_under_abort(self):
        expected = self.start_training(1500, "node-a")
        plan = self.cluster.run("migrate", "job", "--to", "node-b", "--dry-run")
        if plan.returncode != 0 and "host processes" in plan.stdout + plan.stderr:
            self.skipTest((plan.stdout + plan.stderr).strip())
        self.check_goes_back("node-b", "mover.node-b.0", "node-a:0")
        self.check_moves("node-b", ("context", "host", "commit", "resume"))
        self.assertEqual(self.cluster.finish("job")["digest"], expected["digest"])
        self.assert_steps_in_order(self.cluster.log("job"))


class Rehearsed(Estimates):
    agent_settings = "rehearsal = true\n"

    def count_in_log(self, node, what):
        return (self.cluster.home / "nodes" / node / "agent.log").read_text().count(what)

    def wait_for_rehearsal(self, node):
        """True: it found the node's rates; False: it cannot here."""
        with subprocess.Popen(["tail", "-n", "+1", "-F", self.cluster.home / "nodes" / node / "agent.log"],
                              stdout=subprocess.PIPE, text=True) as log:
            try:
                for line in log.stdout:
                    if "cannot be moved between nodes" in line or "not rehearsed" in line:
                        return False
                    if "process moves rehearsed" in line:
                        return True
            finally:
                log.kill()
        return False

    def test_node_rehearses_its_rates_once_and_leaves_no_files(self):
        if not self.wait_for_rehearsal("node-a") or not self.wait_for_rehearsal("node-b"):
            if self.count_in_log("node-a", "not rehearsed") or self.count_in_log("node-b", "not rehearsed"):
                self.fail((self.cluster.home / "nodes" / "node-a" / "agent.log").read_text())
            self.skipTest("this machine moves no processes")
        self.assertEqual(self.cluster.pids("--rehears"), [])
        home = (self.cluster.home / "nodes" / "node-a").stat()
        left = list(pathlib.Path("/dev/shm").glob(f"gpumigrate-{home.st_dev}.{home.st_ino}-*"))
        self.assertEqual(left, [])
        agents = len(self.cluster.pids("gpumigrate-agent"))
        self.cluster.kill("gpumigrate-agent")
        self.cluster.up()
        self.assertEqual(len(self.cluster.pids("gpumigrate-agent")), agents)
        expected = self.start_training(1200, "node-a")
        self.check_forecast("between_nodes", "node-b")
        self.check_moves("node-b", ("context", "host", "commit", "resume"))
        self.assertEqual(self.cluster.finish("job")["digest"], expected["digest"])
        self.assertEqual(self.count_in_log("node-a", "process moves rehearsed"), 1, "once for each version")


    def test_stopped_rehearsal_leaves_no_folder_in_memory(self):
        home = self.cluster.home / "by-hand"
        home.mkdir()
        facts = home.stat()
        images = pathlib.Path("/dev/shm")
        name = f"gpumigrate-{facts.st_dev}.{facts.st_ino}-*"
        helper = subprocess.Popen([BIN / "gpumigrate-agent", "--rehearse", home], env=self.cluster.environment,
                                  stdout=subprocess.PIPE, text=True)
        deadline = time.monotonic() + COMMAND_LIMIT_S
        while helper.poll() is None and not list(images.glob(name)):
            self.assertLess(time.monotonic(), deadline, "waited for an image of the rehearsal")
            time.sleep(0.001)
        if helper.poll() is not None:
            said = helper.communicate()[0]
            self.assertEqual(helper.returncode, 1, "it ended before it was stopped: " + said)
            self.skipTest("this machine moves no processes: " + said)
        helper.terminate()
        said = helper.communicate(timeout=COMMAND_LIMIT_S)[0]
        self.assertEqual(list(images.glob(name)), [])
        self.assertEqual(helper.returncode, 1, said)


class OnANode(Estimates):
    nodes, gpus = 1, 2

    def test_job_continues_at_the_source_if_the_pause_exceeds_its_limit_under_abort(self):
        expected = self.start_training(800, "node-a:0")
        self.check_goes_back("node-a:1", "mover.node-a.1", "node-a:0")
        self.check_moves("node-a:1", ("context", "commit", "resume"))
        self.assertEqual(self.cluster.finish("job")["digest"], expected["digest"])
        self.assert_steps_in_order(self.cluster.log("job"))

    def test_pause_of_a_job_that_has_not_moved_is_estimated(self):
        expected = self.start_training(800, "node-a:0")
        self.check_forecast("within_node", "node-a:1")
        self.check_moves("node-a:1", ("context", "commit", "resume"))
        self.check_forecast_of_last_move("within_node")
        self.assertEqual(self.cluster.finish("job")["digest"], expected["digest"])

    def test_swap_with_an_estimated_pause_over_the_limit_does_not_begin(self):
        expected = self.start_training(800, "node-a:0")
        self.check_stays("node-a:1", "1ms", r"\w+", "node-a:0")
        self.check_moves("node-a:1", ("context", "commit", "resume"))
        self.assertEqual(self.cluster.finish("job")["digest"], expected["digest"])
