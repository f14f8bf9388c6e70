# SPDX-License-Identifier: Apache-2.0
"""Python programs that use the package gpumigrate (libckpt/python): they move live to another node and back, in
cooperative mode, and end with the digest of an unmoved run."""
import os
import pathlib
import re
import sys
import unittest

from cluster import BUILD, COMMAND_LIMIT_S, ClusterTest, run_unmoved
from fault_points import Point
from waiting import eventually

ROOT = pathlib.Path(__file__).resolve().parents[3]
PACKAGE = ROOT / "libckpt" / "python"
PROGRAM = ROOT / "tests" / "integration" / "programs" / "package_job.py"
# The system's Python is used: hosts (tests/hosts) have no home folder that contains another Python.
PYTHON = "/usr/bin/python3" if os.access("/usr/bin/python3", os.X_OK) else sys.executable
# With -B, no files are written next to the sources. Unbuffered output would hide output that is lost when the
# process exits.
INTERPRETER = ("/usr/bin/env", "-u", "PYTHONUNBUFFERED", f"PYTHONPATH={PACKAGE}",
               f"GPUMIGRATE_LIBCKPT={BUILD}/lib/libckpt.so.1", PYTHON, "-B")
RUN = (*INTERPRETER, str(PROGRAM))
EXAMPLES = ROOT / "tools" / "examples" / "python"


class PythonPackage(ClusterTest):
    def start(self, *options, run=RUN):
        self.cluster.start("job", *run, *options)
        self.cluster.wait_for_line("job", r"^step \d+")

    def move(self, node):
        report = self.cluster.migrate("job", node, "--live")
        self.assertEqual((report["result"], report["verified"]), ("done", True), report)
        return report

    def test_job_moves_there_and_back(self):
        self.move_there_and_back()

    def test_job_with_unexportable_memory_moves_there_and_back(self):
        self.move_there_and_back("--driver-memory")

    def move_there_and_back(self, *options):
        expected = run_unmoved(*RUN, *options)
        self.start(*options)
        for node in ("node-b", "node-a", "node-b"):
            self.move(node)
        self.assertEqual(self.cluster.finish("job"), expected)
        self.assert_steps_in_order(self.cluster.log("job"))

    def test_examples_of_the_package_move(self):
        for example in ("buffers.py", "answers.py"):
            with self.subTest(example):
                run = (*INTERPRETER, str(EXAMPLES / example))
                expected = run_unmoved(*run)
                self.start(run=run)
                self.move("node-b")
                self.assertEqual(self.cluster.finish("job"), expected)
                self.assert_steps_in_order(self.cluster.log("job"))

    def test_first_example_of_the_readme_runs_as_printed(self):
        printed = re.search(r"(?ms)^```python\n(.*?)^```", (PACKAGE / "README.md").read_text()).group(1)
        program = self.cluster.home / "first_example.py"
        program.write_text(printed)
        run = (*INTERPRETER, str(program))
        self.start(run=run)
        self.move("node-b")
        self.cluster.call("wait", "job")
        log = self.cluster.log("job")
        self.assertEqual(log.splitlines()[-1], str({"seen": 10 * sum(range(100))}))
        self.assert_steps_in_order(log)

    def test_package_does_nothing_in_transparent_mode(self):
        self.cluster.start("job", *RUN, way=())
        self.assertEqual(self.cluster.finish("job"), run_unmoved(*RUN))

    def test_a_standby_starts_while_the_source_works(self):
        """The standby's start ends with a step of the source, which could not come if it were in the pause."""
        options = ("--start-beside", str(self.cluster.home))
        expected = run_unmoved(*RUN)
        self.start(*options)
        self.move("node-b")
        self.assertEqual(self.cluster.finish("job"), expected)
        self.assert_steps_in_order(self.cluster.log("job"))

    def exec_move(self, node, more, *options):
        command = " ".join((*RUN, *(("--more", str(more)) if more else ())))
        return self.cluster.run("migrate", "job", "--to", node, "--live", "--exec", command, *options, "-o", "json")

    def assert_moved(self, result):
        self.assertEqual(result.returncode, 0, result.stdout + result.stderr)
        self.cluster.wait_for_line("job", r"^step \d+")

    def test_job_continues_as_the_next_version_of_its_program(self):
        """Forward to a version that names more, moved as such, to one whose array has another size, and back."""
        expected = run_unmoved(*RUN)
        self.start()
        refused = self.exec_move("node-b", 256)
        self.assertEqual(refused.returncode, 5, refused.stdout)
        self.assertRegex(refused.stdout + refused.stderr, r'--allow missing,new,changed.*\\?"more\\?" u32\[4096,16\] exists only at the target')
        self.assertEqual(self.cluster.job("job")["node"], "node-a")
        self.assert_moved(self.exec_move("node-b", 256, "--allow", "new"))
        self.assertIn("--more", self.cluster.json("describe", "job")["argv"])
        self.move("node-a")
        changed = self.exec_move("node-b", 512, "--allow", "new,missing")
        self.assertEqual(changed.returncode, 5, changed.stdout)
        self.assertRegex(changed.stdout + changed.stderr, r"u32\[4096,16\] at the source but u32\[8192,16\] at the target")
        self.assert_moved(self.exec_move("node-b", 512, "--allow", "changed"))
        self.assert_moved(self.exec_move("node-a", 0, "--allow", "missing"))
        self.assertNotIn("--more", self.cluster.json("describe", "job")["argv"])
        self.assertEqual(self.cluster.finish("job"), expected)
        self.assert_steps_in_order(self.cluster.log("job"))

    def crash_while_it_changes(self, role, point):
        """The job as it is known once all that was killed is back."""
        expected = run_unmoved(*RUN)
        self.start()
        self.cluster.arm(role, point)
        program, _, node = role.partition(".")
        daemon = next(pid for pid, command in self.cluster.processes().items()
                      if re.search(rf"gpumigrate-{program} .*/{node or 'coordinator'}", command))
        command = " ".join((*RUN, "--more", "256"))
        with self.cluster.popen("migrate", "job", "--to", "node-b", "--live", "--exec", command, "--allow", "new") as moving:
            eventually(lambda: self.cluster.fired(role, point), f"{role} reaches {point}")
            eventually(lambda: daemon not in self.cluster.processes(), f"{role} has ended")
            self.cluster.up()
            moving.communicate(timeout=COMMAND_LIMIT_S)
        eventually(lambda: self.cluster.job("job")["state"] == "running" and not self.cluster.json("describe", "job")["open_migration"],
                   "the migration is over")
        known = self.cluster.json("describe", "job")
        self.assert_next_move_starts_what_runs()
        self.assertEqual(self.cluster.finish("job"), expected)
        self.assert_steps_in_order(self.cluster.log("job"))
        return known["node"], "--more" in known["argv"]

    def assert_next_move_starts_what_runs(self):
        """A standby of the other version would name other tensors."""
        node = "node-a" if self.cluster.job("job")["node"] == "node-b" else "node-b"
        self.move(node)

    def test_job_continues_as_the_new_program_if_the_target_dies_after_its_commit(self):
        self.assertEqual(self.crash_while_it_changes("agent.node-b", Point.TARGET_COMMITTED_DURABLE), ("node-b", True))

    def test_job_continues_as_the_old_program_if_the_target_dies_before_its_commit(self):
        self.assertEqual(self.crash_while_it_changes("agent.node-b", Point.TARGET_PRECOPY), ("node-a", False))

    def test_restarted_coordinator_knows_the_new_program(self):
        self.assertEqual(self.crash_while_it_changes("coordinator", Point.COORDINATOR_GRANTED_DURABLE), ("node-b", True))

    def test_only_a_cooperative_job_can_continue_as_a_different_program(self):
        self.cluster.start("job", *RUN, way=())
        self.cluster.wait_for_line("job", r"^step \d+")
        refused = self.exec_move("node-b", 256)
        self.assertEqual(refused.returncode, 5, refused.stdout)
        self.assertIn("only a cooperative job can continue as a different program", refused.stdout + refused.stderr)
        self.assertEqual(self.cluster.run("migrate", "job", "--allow", "new").returncode, 64)

    def check_that_it_stays(self, exits, reason, *options):
        """A move ends with that reason, and the job at its source with the unmoved digest."""
        expected = run_unmoved(*RUN, *options)
        self.start(*options)
        if "--break-at" in options:
            self.cluster.wait_for_line("job", r"^step 1\d\b")
        ended = self.cluster.run("migrate", "job", "--to", "node-b", "--live")
        self.assertEqual(ended.returncode, exits, ended.stderr)
        self.assertRegex(ended.stdout + ended.stderr, reason)
        self.assertEqual(self.cluster.finish("job"), expected)
        self.assert_steps_in_order(self.cluster.log("job"))

    def test_a_buffer_with_another_shape_is_not_moved(self):
        self.check_that_it_stays(1, "The save callback of host state 'gpumigrate'", "--break-at", "5")
        self.assertRegex(self.cluster.log("job"), r"MoveWarning: a move was refused: 'weights' was named as u4\[131072, 16\] "
                         r"and is u4\[65536, 16\] now")

    def test_job_stays_if_the_standby_does_not_name_a_buffer(self):
        self.check_that_it_stays(5, "weights.* does not exist at the target", "--forget", "buffer")

    def test_job_stays_if_the_standby_does_not_register_a_state(self):
        self.check_that_it_stays(1, "The standby could not take over the job's state: .*gpumigrate", "--forget", "state")


if __name__ == "__main__":
    unittest.main()
