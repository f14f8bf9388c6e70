# SPDX-License-Identifier: Apache-2.0
"""Jobs in namespaces of their own (`run --namespaces own`, docs/adr/0056). What a program has by name alone moves with
it, and two programs with the same names do not meet. Needs root and a CRIU that works."""
import os
import pathlib
import sys
import tempfile
import unittest
import unittest.mock

from cluster import EXAMPLES, ClusterTest, run_unmoved

PROGRAM = pathlib.Path(__file__).resolve().parents[1] / "programs" / "names_job.py"
PYTHON_JOB = PROGRAM.with_name("python_job.py")
PYTHON = "/usr/bin/python3" if os.access("/usr/bin/python3", os.X_OK) else sys.executable
STEPS = "1500"
OWN = ("--namespaces", "own")


class NamespacesTest(ClusterTest):
    gpus = 2

    def start(self, kind, *way, name="job", program=PROGRAM, node="node-a:0"):
        self.cluster.start(name, PYTHON, str(program), kind, STEPS, node=node, way=way)
        self.cluster.wait_for_line(name, r"^step \d+")

    def move(self, place, name="job"):
        report = self.cluster.migrate(name, place, "--live")
        self.assertEqual((report["result"], report["verified"]), ("done", True), report)
        self.cluster.wait_for_line(name, r"^step \d+")

    def assert_refused(self, pattern, place="node-b:0"):
        refused = self.cluster.run("migrate", "job", "--to", place, "--live")
        self.assertEqual(refused.returncode, 5, refused)
        self.assertRegex(refused.stdout + refused.stderr, pattern)

    def move_there_and_back(self, kind, *way, program=PROGRAM):
        expected = run_unmoved(PYTHON, str(program), kind, STEPS)
        self.start(kind, *OWN, *way, program=program)
        for place in ("node-b:0", "node-a:1", "node-b:1", "node-a:0"):
            self.move(place)
        self.assertEqual(self.cluster.finish("job"), expected)
        self.assert_steps_in_order(self.cluster.log("job"))


class OwnNamespaces(NamespacesTest):
    def test_program_finds_itself_by_number(self):
        self.move_there_and_back("itself")

    def test_closed_files_in_dev_shm(self):
        self.move_there_and_back("files")

    def test_system_v_objects(self):
        self.move_there_and_back("system-v")

    def test_workers_with_locks_and_memory(self):
        """Semaphores are files that a process has mapped by a removed name."""
        self.move_there_and_back("spawn", program=PYTHON_JOB)

    def test_two_with_the_same_names_share_a_node(self):
        self.start("files", *OWN)
        self.start("files", *OWN, name="other", node="node-b:0")
        self.assertFalse(os.path.exists("/dev/shm/gm-names"))
        self.move("node-b:1")
        for name in ("job", "other"):
            self.assertEqual(self.cluster.finish(name)["steps"], int(STEPS))

    def test_it_rests_in_an_image(self):
        expected = run_unmoved(PYTHON, str(PROGRAM), "system-v", STEPS)
        self.start("system-v", *OWN)
        self.cluster.call("suspend", "job")
        self.cluster.call("resume", "job")
        self.assertEqual(self.cluster.finish("job"), expected)
        self.assert_steps_in_order(self.cluster.log("job"))

    def test_message_queue_is_named(self):
        self.start("queue", *OWN)
        self.assert_refused("POSIX message queue /gpumigrate-test of the job would be lost")

    def test_only_a_transparent_job_has_them(self):
        refused = self.cluster.run("run", "--cooperative", *OWN, "--", EXAMPLES / "hotset")
        self.assertEqual(refused.returncode, 64, refused)
        refused = self.cluster.run("run", "--private-tmp", "--", EXAMPLES / "hotset")
        self.assertEqual(refused.returncode, 64, refused)


class WithoutNamespaces(NamespacesTest):
    """The same programs with the node's."""

    def test_program_does_not_find_itself(self):
        self.cluster.start("job", PYTHON, str(PROGRAM), "itself", STEPS, way=("--namespaces", "none"))
        self.cluster.call("wait", "job", exits=(1,))

    def test_closed_folder_in_dev_shm(self):
        self.start("files", "--namespaces", "none")
        self.assert_refused("/dev/shm/gm-names of the job is not a file, and would be lost")
        self.cluster.finish("job")

    def test_system_v_objects(self):
        self.start("system-v", "--namespaces", "none")
        self.assert_refused("System V")
        self.cluster.finish("job")


class PrivateTmp(NamespacesTest):
    def setUp(self):
        # Where the agents' home is in /tmp, a job with its own /tmp is refused.
        self.enterContext(unittest.mock.patch.object(tempfile, "tempdir", "/var/tmp"))
        super().setUp()

    def test_files_move(self):
        self.move_there_and_back("tmp", "--private-tmp")


if __name__ == "__main__":
    unittest.main()
