# SPDX-License-Identifier: Apache-2.0
"""CRIU that fails, hangs or is killed on either side of a move of a whole process between two nodes: the job
goes on at the source from the very step it stopped at. Needs root and CRIU."""
import os
import pathlib
import re
import signal
import unittest

from crashing import SOURCE, TARGET
from crashing_processes import CrashesWithCriu

# Fault numbers of criu/include/fault-injection.h: with the first process infected; with the first process
# restored.
KILLED_IN_A_DUMP, KILLED_IN_A_RESTORE = 1, 2


class FailingCriu(CrashesWithCriu):
    def test_job_continues_at_the_source_if_criu_fails(self):
        self.start_training(2500)
        for order, when in (("dump", "early"), ("dump", "late"), ("restore", "early"), ("restore", "late")):
            with self.subTest(order=order, when=when):
                self.move_fails(order, when, "restored" if order == "restore" else "CRIU")
        self.move_and_finish()

    def test_job_continues_at_the_source_if_criu_is_killed(self):
        self.start_training(2500)
        for order, point in (("dump", KILLED_IN_A_DUMP), ("restore", KILLED_IN_A_RESTORE)):
            with self.subTest(order=order):
                self.move_fails(order, f"fault {point}", "restored" if order == "restore" else "CRIU")
        self.move_and_finish()

    def test_job_survives_an_agent_crash_while_criu_works(self):
        """CRIU goes on without its agent, whose successor must not let the process go on before CRIU has
        stopped it, nor run it twice."""
        self.start_training(2000)
        for order, node in (("dump", "node-a"), ("restore", "node-b")):
            with self.subTest(order=order):
                print(f"  agent at {node}, CRIU's {order}:", end="", flush=True)
                moved = self.move_with(order, "hold")
                self.wait_until_reached()
                self.kill_agent(node)
                self.cluster.up()
                os.write(self.ends["go"], b"\n")
                self.check_outcome(moved, "node-a", "node-b", SOURCE)
        self.move_and_finish()

    def test_concurrent_dumps_in_one_working_folder_succeed(self):
        """For a moment CRIU makes a folder in the working folder of the job, which is this cluster's home."""
        self.start_training(2500)
        other = self.cluster.home / "proc.crtools"
        other.mkdir()
        self.move_fails("dump", "tell", "proc.crtools")
        os.read(self.ends["reached"], 1)
        moved = self.move_with("dump", "tell")
        self.wait_until_reached()
        other.rmdir()
        self.check_outcome(moved, "node-a", "node-b", TARGET)
        self.finish_training()


    def test_log_of_a_failed_criu_has_the_path_given_in_the_reason(self):
        self.start_training(2500)
        for order, node in (("dump", "node-a"), ("restore", "node-b")):
            with self.subTest(order=order):
                reason = self.move_fails(order, "late", node)["error"]
                place = re.search(rf"\b{node}:(/[^\s()]+/criu-logs/[^\s()]+\.log)", reason)
                self.assertIsNotNone(place, reason)
                self.assertTrue(pathlib.Path(place.group(1)).exists(), reason)
        self.move_and_finish()

    def test_dry_runs_report_a_snapshot_in_progress(self):
        self.start_training(2500)
        (self.tools / "fail-dump").write_text("hold")
        with self.cluster.popen("snapshot", "job") as snapshot:
            self.wait_until_reached()
            for command, code in ((("migrate", "job", "--to", "node-b"), 5), (("drain", "node-a"), 1)):
                said = self.cluster.run(*command, "--dry-run")
                self.assertIn("A snapshot of the job is in progress", " ".join((said.stdout + said.stderr).split()))
                self.assertEqual(said.returncode, code, said.stdout + said.stderr)
            os.write(self.ends["go"], b"\n")
            self.assertEqual(snapshot.wait(60), 0)
        self.move_and_finish()


class HangingCriu(CrashesWithCriu):
    surroundings = {"GPUMIGRATE_CRIU_TIMEOUT": "5"}

    def test_criu_that_hangs_is_killed_and_the_job_continues(self):
        self.start_training(4000)
        for order in ("dump", "restore"):
            with self.subTest(order=order):
                self.move_fails(order, "hold", "killed")
                os.read(self.ends["reached"], 1)
        self.move_and_finish()

    def test_job_survives_an_agent_crash_while_criu_hangs(self):
        self.start_training(4000)
        print("  agent at node-a, CRIU hangs:", end="", flush=True)
        moved = self.move_with("dump", "hold")
        self.wait_until_reached()
        agent = self.daemons_of("agent.node-a")
        signal.pidfd_send_signal(agent[0], signal.SIGKILL)
        self.wait_until_dead(agent)
        self.cluster.up()
        self.check_outcome(moved, "node-a", "node-b", SOURCE)
        self.move_and_finish()
