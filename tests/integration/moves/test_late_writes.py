# SPDX-License-Identifier: Apache-2.0
"""late, an unmodified program whose GPU always has kernels and copies under way that write to pinned, mapped
and registered host memory: the gate closes in the middle of them, and the memory travels with the process,
whose pages nothing else tracks. No write may be lost or be done twice, and after the move the mapped pointers
and the registrations must still be what they were."""
import os
import signal
import unittest

from cluster import EXAMPLES, ClusterTest, CommandError, final_object, run_unmoved
from waiting import eventually

LATE = ["--seed", "5", "--print-every", "1"]


class LateTest(ClusterTest):
    def start_late(self):
        self.cluster.start("job", "late", *LATE, node="node-a:0", way=())
        self.cluster.wait_for_line("job", r"^step 3\b")

    def move(self, target, turn):
        """One move, and more of the program after it than it checks at once."""
        report = self.cluster.migrate("job", target, "--live" if turn % 3 != 2 else "--stop-copy")
        self.assertEqual((report["result"], report["verified"], report["incarnation"]),
                         ("done", True, turn + 2), report)
        self.assertGreater(report["downtime_breakdown_ms"]["quiesce"], 0, report)
        steps = [int(line.split()[1]) for line in self.cluster.log("job").split("\n")
                 if line.startswith("step ")]
        self.cluster.wait_for_line("job", rf"^step {steps[-1] + 30}\b")

    def process(self):
        processes = [pid for pid, command in self.cluster.processes().items()
                     if "/late" in command.split(" ")[0]]
        self.assertEqual(len(processes), 1, self.cluster.processes())
        return processes[0]

    def end_late(self):
        os.kill(self.process(), signal.SIGTERM)
        result = self.cluster.finish("job")
        self.assertEqual(result["errors"], 0, result)
        self.assertGreater(result["checks"], 0, result)


class LateSwaps(LateTest):
    nodes, gpus = 1, 2

    def test_six_swaps_lose_no_write(self):
        self.start_late()
        for turn in range(6):
            self.move(f"node-a:{1 - turn % 2}", turn)
        self.end_late()


class LateMoves(LateTest):
    def test_six_moves_of_the_process_lose_no_write(self):
        self.start_late()
        plan = self.cluster.run("migrate", "job", "--to", "node-b", "--dry-run")
        if plan.returncode != 0 and "host processes" in plan.stdout + plan.stderr:
            self.skipTest((plan.stdout + plan.stderr).strip())
        for turn in range(6):
            self.move("node-b" if turn % 2 == 0 else "node-a", turn)
        self.end_late()


class NoPauseComes(LateTest):
    """A call that waits holds up the program's pause. The move gives up and names the call; the job runs on, and
    moves once the call is over."""

    nodes, gpus = 1, 2

    def refused_then_moved(self, hold, named):
        self.cluster.call("run", "--detach", "--name", "job", "--node", "node-a:0", "--env",
                          "GPUMIGRATE_PAUSE_TIMEOUT_MS=300", "--",
                          EXAMPLES / "late", *LATE, "--hold", hold)
        self.cluster.wait_for_line("job", r"^held")
        refused = self.cluster.run("migrate", "job", "--to", "node-a:1")
        self.assertEqual(refused.returncode, 2, refused)
        self.assertIn(named, refused.stdout + refused.stderr)
        job = self.cluster.job("job")
        self.assertEqual((job["state"], job["gpu"], job["movable"]), ("running", 0, True), job)
        os.kill(self.process(), signal.SIGUSR1)
        report = self.cluster.migrate("job", "node-a:1")
        self.assertEqual((report["result"], report["incarnation"]), ("done", 2), report)
        self.end_late()

    def test_job_is_refused_while_it_waits_for_an_unwritten_value(self):
        self.refused_then_moved("value", "cuCtxSynchronize")

    def test_job_is_refused_while_a_host_callback_blocks(self):
        self.refused_then_moved("callback", "cuCtxSynchronize")

    def test_job_is_refused_while_a_copy_blocks_inside_the_driver(self):
        self.refused_then_moved("copy", "cuMemcpyDtoH_v2")


class NotMovable(LateTest):
    nodes, gpus = 1, 2

    def test_job_is_not_movable_until_its_shared_memory_is_freed(self):
        self.cluster.start("job", "late", *LATE, "--hold", "handle", node="node-a:0", way=())
        self.cluster.wait_for_line("job", r"^held")
        refused = self.cluster.run("migrate", "job", "--to", "node-a:1")
        self.assertEqual(refused.returncode, 5, refused)
        self.assertIn("cuIpcGetMemHandle", refused.stdout + refused.stderr)
        os.kill(self.process(), signal.SIGUSR1)
        self.cluster.wait_for_line("job", r"^let go")
        eventually(lambda: self.cluster.job("job")["movable"], "the job is movable again")
        self.move("node-a:1", 0)
        self.end_late()


class LateFindsWhatItLooksFor(unittest.TestCase):
    def test_program_detects_lost_and_repeated_writes(self):
        with self.assertRaises(CommandError) as broken:
            run_unmoved("late", "--seconds", "3", "--break-at", "1")
        self.assertEqual(broken.exception.result.returncode, 1)
        found = final_object(broken.exception.result.stdout)["errors_found_by"]
        self.assertGreater(found["word"], 0, found)   # a kernel's write that was lost
        self.assertGreater(found["still"], 0, found)  # a copy that was applied twice
        self.assertEqual((found["witness"], found["content"], found["host"], found["answer"]), (0, 0, 0, 0),
                         found)

    def test_program_reports_no_errors_in_an_undisturbed_run(self):
        result = run_unmoved("late", "--seconds", "2")
        self.assertEqual(result["errors"], 0, result)
        self.assertGreater(result["checks"], 0, result)
