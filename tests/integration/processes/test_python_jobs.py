# SPDX-License-Identifier: Apache-2.0
"""Python programs as they are (tests/integration/programs/python_job.py): with threads, worker processes, locks,
shared memory, children and timers. Each moves to another node and back, and once to another GPU of its node; or is
refused with what stands in its way."""
import os
import pathlib
import re
import sys
import unittest

from cluster import COMMAND_LIMIT_S, ClusterTest, run_unmoved
from fault_points import Point
from waiting import eventually

PROGRAM = pathlib.Path(__file__).resolve().parents[1] / "programs" / "python_job.py"
# The system's Python is used: hosts (tests/hosts) have no home folder that contains another Python.
PYTHON = "/usr/bin/python3" if os.access("/usr/bin/python3", os.X_OK) else sys.executable
# A round moves the job to the other node, back to another GPU, and to the first GPU.
ROUNDS = int(os.environ.get("GPUMIGRATE_TEST_ROUNDS", "1"))
HOST_MIB = int(os.environ.get("GPUMIGRATE_TEST_HOST_MIB", "256"))
STEPS = (1500 + 300 * (ROUNDS - 1)) * max(1, HOST_MIB // 1024)  # more steps for more memory, because moving
                                                                # gigabytes takes a long time
# Each page that was sent before a pause is compared at the barrier.
os.environ["GPUMIGRATE_COMPARE_HOST_MEMORY"] = "1"


class PythonTest(ClusterTest):
    gpus = 2

    def run_kind(self, kind):
        expected = run_unmoved(PYTHON, str(PROGRAM), kind, str(STEPS))
        self.cluster.start("job", PYTHON, str(PROGRAM), kind, str(STEPS), way=())
        self.cluster.wait_for_line("job", r"^step \d+")
        for place in ("node-b:0", "node-a:1", "node-a:0") * ROUNDS:
            report = self.cluster.migrate("job", place, "--live")
            self.assertEqual((report["result"], report["verified"]), ("done", True), report)
            self.cluster.wait_for_line("job", r"^step \d+")
        self.assertEqual(self.cluster.finish("job"), expected)
        self.assert_steps_in_order(self.cluster.log("job"))


class PythonJobs(PythonTest):
    def test_plain_python_job_moves(self):
        self.run_kind("plain")

    def test_job_with_two_thousand_allocations_moves(self):
        self.run_kind("regions")

    def test_job_with_changing_host_memory_moves(self):
        self.run_kind(f"memory:{HOST_MIB}")

    def test_job_with_eight_threads_moves(self):
        self.run_kind("threads")

    def test_job_with_a_process_pool_moves(self):
        self.run_kind("pool")

    def test_job_with_a_subprocess_moves(self):
        self.run_kind("subprocess")

    def test_job_with_its_own_descriptor_numbers_moves(self):
        self.run_kind("descriptors")

    def test_job_with_signals_and_timers_moves(self):
        self.run_kind("signals")

    def test_job_with_bound_sockets_moves(self):
        log = next((self.cluster.home / "nodes/node-a").glob("*agent.log")).read_text()
        version = re.search(r"processes can be moved between nodes: criu \S+ version (\d+)\.(\d+)", log)
        if version and tuple(map(int, version.groups())) < (4, 2):
            self.skipTest(f"CRIU {version.group(1)}.{version.group(2)} may not save sockets: tools/criu install brings 4.2")
        self.run_kind("listen")


class NamedTest(PythonTest):
    """Memory and semaphores in /dev/shm that have names. Over hosts each node has its own /dev/shm."""

    def run_kind(self, kind):
        before = self.names_of_nodes()
        super().run_kind(kind)
        self.assert_nothing_left(before)

    def names_of_nodes(self):
        """The names in /dev/shm and /tmp of each node, as its agent sees them."""
        names = {}
        for pid, command in self.cluster.processes().items():
            node = re.search(r"gpumigrate-agent .*/(node-\w)", command)
            if node:
                names[node.group(1)] = {f"{folder}/{name}" for folder in ("dev/shm", "tmp")
                                        for name in os.listdir(f"/proc/{pid}/root/{folder}")}
        self.assertEqual(sorted(names), ["node-a", "node-b"])
        return names

    def assert_nothing_left(self, before):
        if os.environ.get("GPUMIGRATE_TEST_HOSTS") == "1":  # on one machine the names of other tests are
                                                            # present
            self.assertEqual(self.names_of_nodes(), before)


class CompiledForIt(PythonTest):
    def test_job_with_a_library_of_a_compiler_cache_moves(self):
        """Over hosts the target has none."""
        self.run_kind("compiled")


class SharedByName(NamedTest):
    def test_job_with_forked_workers_moves(self):
        self.run_kind("fork")

    def test_job_with_workers_forked_after_the_first_driver_call_moves(self):
        self.run_kind("late")

    def test_job_with_spawned_workers_moves(self):
        self.run_kind("spawn")

    def test_job_with_workers_of_a_fork_server_continues(self):
        self.run_kind("forkserver")


class Suspended(NamedTest):
    def test_job_with_workers_of_a_fork_server_continues(self):
        """Nothing of a suspended job is left on its node; all of it comes back."""
        before = self.names_of_nodes()
        expected = run_unmoved(PYTHON, str(PROGRAM), "forkserver", str(STEPS))
        self.cluster.start("job", PYTHON, str(PROGRAM), "forkserver", str(STEPS), way=())
        self.cluster.wait_for_line("job", r"^step \d+")
        self.cluster.call("suspend", "job")
        self.assert_nothing_left(before)
        self.cluster.call("resume", "job")
        self.assertEqual(self.cluster.finish("job"), expected)
        self.assert_steps_in_order(self.cluster.log("job"))
        self.assert_nothing_left(before)


class NamesAfterCrash(NamedTest):
    """An agent is killed in a move of a program with memory, locks and a socket that have names."""

    def crash(self, role, point, kind="forkserver"):
        before = self.names_of_nodes()
        expected = run_unmoved(PYTHON, str(PROGRAM), kind, str(STEPS))
        self.cluster.start("job", PYTHON, str(PROGRAM), kind, str(STEPS), way=())
        self.cluster.wait_for_line("job", r"^step \d+")
        self.cluster.arm(role, point)
        agent = next(pid for pid, command in self.cluster.processes().items()
                     if re.search(rf"gpumigrate-agent .*/{role.split('.')[1]}", command))
        with self.cluster.popen("migrate", "job", "--to", "node-b", "--live") as moving:
            eventually(lambda: self.cluster.fired(role, point), f"{role} reaches {point}")
            eventually(lambda: agent not in self.cluster.processes(), f"the agent of {role} has ended")
            self.cluster.up()
            moving.communicate(timeout=COMMAND_LIMIT_S)
        self.assertEqual(self.cluster.finish("job"), expected)
        self.assert_steps_in_order(self.cluster.log("job"))
        self.assert_nothing_left(before)

    def test_names_are_correct_after_a_source_agent_crash_with_a_dump(self):
        self.crash("agent.node-a", Point.SOURCE_DUMPED)

    @unittest.skipUnless(os.environ.get("GPUMIGRATE_TEST_HOSTS") == "1", "refused within one network")
    def test_connections_survive_a_source_agent_crash_with_a_dump(self):
        self.crash("agent.node-a", Point.SOURCE_DUMPED, "connected")

    def test_names_are_correct_after_a_source_agent_crash_at_released(self):
        self.crash("agent.node-a", Point.SOURCE_RELEASED_DURABLE)

    def test_names_are_correct_after_a_target_agent_crash_before_the_restore(self):
        self.crash("agent.node-b", Point.TARGET_COMMITTED_DURABLE)

    def test_names_are_correct_after_a_target_agent_crash_after_the_restore(self):
        self.crash("agent.node-b", Point.TARGET_RESTORED)


class OpenConnections(PythonTest):
    """Over hosts the program's connections to itself travel. Within one network the two copies would collide."""

    def test_connections_to_itself_move_only_between_networks(self):
        if os.environ.get("GPUMIGRATE_TEST_HOSTS") == "1":
            return self.run_kind("connected")
        expected = run_unmoved(PYTHON, str(PROGRAM), "connected", str(STEPS))
        self.cluster.start("job", PYTHON, str(PROGRAM), "connected", str(STEPS), way=())
        self.cluster.wait_for_line("job", r"^step \d+")
        refused = self.cluster.run("migrate", "job", "--to", "node-b", "--live")
        self.assertEqual(refused.returncode, 5, refused.stderr)
        self.assertRegex(refused.stdout + refused.stderr, r"a connection within the program \(TCP 127.0.0.1:\d+\) cannot be moved within one network")
        self.cluster.migrate("job", "node-a:1", "--live")
        self.assertEqual(self.cluster.finish("job"), expected)


class Refused(PythonTest):
    def test_child_that_only_queries_the_driver_is_reported_and_is_not_a_rank(self):
        """Between nodes; to another card of the node it moves."""
        why = r"process \d+ \(\S+\) has the GPU driver's /\S+ open"
        expected = run_unmoved(PYTHON, str(PROGRAM), "asking", str(STEPS))
        self.cluster.start("job", PYTHON, str(PROGRAM), "asking", str(STEPS), way=())
        self.cluster.wait_for_line("job", r"^step \d+")
        self.assertRegex(self.cluster.call("doctor", "--job", "job").stdout,
                         rf"(?s)yes +move to another GPU of its node\nno +move to another node\n\nTo move to another node:\n.*{why}")
        eventually(lambda: self.cluster.job("job")["obstacles"] == 1, "jobs counts what doctor named")
        self.assertRegex(self.cluster.call("jobs", "-o", "wide").stdout, r"within its node; 1 obstacle\b")
        self.assertIn("1 obstacle to another node (gpumigrate doctor --job job)", self.cluster.call("describe", "job").stdout)
        refused = self.cluster.run("migrate", "job", "--to", "node-b", "--live")
        self.assertEqual(refused.returncode, 5, refused.stderr)
        self.assertRegex(refused.stdout + refused.stderr, why)
        report = self.cluster.migrate("job", "node-a:1", "--live")
        self.assertEqual((report["result"], report["verified"]), ("done", True), report)
        self.assertEqual(self.cluster.finish("job"), expected)
        self.assert_steps_in_order(self.cluster.log("job"))


if __name__ == "__main__":
    unittest.main()
