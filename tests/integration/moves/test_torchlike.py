# SPDX-License-Identifier: Apache-2.0
"""torchlike, an unmodified program that allocates as PyTorch does: cached and expandable segments, the driver's pool,
pinned blocks that are used again, captured graphs. Moved in the middle of its steps it must learn the same. How many
moves: TORCHLIKE_MOVES."""
import os

from cluster import ClusterTest, run_unmoved

MOVES = int(os.environ.get("TORCHLIKE_MOVES", "3"))
TORCHLIKE = ["--seed", "5", "--step-ms", "20"]


class TorchlikeTest(ClusterTest):
    def start(self):
        self.end = self.cluster.shared / "end"
        self.cluster.start("job", "torchlike", *TORCHLIKE, "--steps", "1000000", "--until", self.end,
                           node="node-a:0", way=())
        self.cluster.wait_for_line("job", r"^step 2$")

    def last_step(self):
        return max(int(line.split()[1]) for line in self.cluster.log("job").split("\n") if line.startswith("step "))

    def move(self, target, turn):
        """One move, and a step that began after it."""
        report = self.cluster.migrate("job", target, "--live" if turn % 4 != 3 else "--stop-copy")
        self.assertEqual((report["result"], report["verified"], report["incarnation"]), ("done", True, turn + 2), report)
        self.cluster.wait_for_line("job", rf"^step {self.last_step() + 2}$")

    def check_end(self):
        self.end.touch()
        result = self.cluster.finish("job")
        self.assertGreater(result["steps"], 2 * MOVES)
        unmoved = run_unmoved("torchlike", *TORCHLIKE[:2], "--steps", str(result["steps"]))
        self.assertEqual(result, unmoved)
        self.assert_steps_in_order(self.cluster.log("job"))


class TorchlikeSwaps(TorchlikeTest):
    nodes, gpus = 1, 2

    def test_swaps_do_not_change_the_result_of_the_training(self):
        self.start()
        for turn in range(MOVES):
            self.move(f"node-a:{1 - turn % 2}", turn)
        self.check_end()


class TorchlikeMoves(TorchlikeTest):
    def test_moves_of_the_process_do_not_change_the_result_of_the_training(self):
        self.start()
        plan = self.cluster.run("migrate", "job", "--to", "node-b", "--dry-run")
        if plan.returncode != 0 and "host processes" in plan.stdout + plan.stderr:
            self.skipTest((plan.stdout + plan.stderr).strip())
        for turn in range(MOVES):
            self.move("node-b" if turn % 2 == 0 else "node-a", turn)
        self.check_end()
