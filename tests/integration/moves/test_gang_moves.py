# SPDX-License-Identifier: Apache-2.0
"""Ranks of a job move while all of them run: one, several, or all, on one node or over several. The digests are those of
ranks that nobody touched, and each step is computed once."""
import os
import re
import signal
import subprocess
import unittest

from cluster import BIN, COMMAND_LIMIT_S, EXAMPLES, final_object
from crashing import CrashingTest
from fault_points import Point
from ranks_by_hand import run_by_hand
from waiting import eventually

STEPS = ("--params", "20000", "--print-every", "1")
FOREVER = 1_000_000


def steps_of(log):
    return [int(step) for step in re.findall(r"^step (\d+)", log, re.M)]


class GangMovesTest(CrashingTest):
    nodes, gpus = 3, 4

    def start(self, ranks=4, options=None, more=(), pace="--step-ms 15", program="charlm-dp", steps=STEPS):
        """They run until check_end()."""
        self.program, self.training, self.ranks = program, (*steps, *more), ranks
        self.end_of_job = self.cluster.home / "shared/end-of-job"
        self.end_of_job.parent.mkdir(exist_ok=True)
        self.cluster.call("run", "--detach", "--name", "train", *(options or ("--ranks", str(ranks))), "--cooperative", "--",
                          "/bin/sh", "-c", f'exec "$0" {pace} "$@"', EXAMPLES / program, *self.training,
                          "--steps", str(FOREVER), "--until", self.end_of_job)
        self.cluster.wait_for_line("train", r"^step 5\b")

    def logs(self):
        return [self.cluster.call("logs", "train", "--rank", str(rank)).stdout for rank in range(self.ranks)]

    def gpus_of_job(self):
        return self.cluster.json("describe", "train")["gpus"]

    def migrate(self, *options):
        return self.cluster.call("migrate", "train", *options)

    def settled(self):
        """Also the other ranks' migrations are over."""
        eventually(lambda: not any(m["open"] for m in self.cluster.json("migrations")), "all migrations have ended")

    def end(self):
        self.end_of_job.write_text("")
        self.assertEqual(self.cluster.run("wait", "train").returncode, 0, self.cluster.run("describe", "train").stdout)

    def check_digests(self, logs):
        got = [final_object(log) for log in logs]
        steps = got[0]["steps"]
        expected = run_by_hand(self.ranks, *self.training, "--steps", str(steps), program=self.program,
                               limit_s=COMMAND_LIMIT_S + steps / 20)
        self.assertEqual([result["digest"] for result in got], [result["digest"] for result in expected],
                         "\n".join(log[-400:] for log in logs))

    def check_end(self):
        self.end()
        logs = self.logs()
        self.check_digests(logs)
        for log in logs:
            self.assertEqual(steps_of(log), list(range(1, steps_of(log)[-1] + 1)), "each step was computed once")


@unittest.skipUnless((EXAMPLES / "charlm-dp").exists(), "there was no nccl.h")
class GangMoves(GangMovesTest):
    def test_one_rank_moves_there_and_back(self):
        self.start(options=("--ranks", "4", "--nodes", "node-a,node-b"))
        before = self.gpus_of_job()
        planned = self.migrate("--rank", "3", "--to", "node-c", "--dry-run").stdout
        self.assertRegex(planned, r"^dry run: rank 3 of train at node-b:\d would move to node-c:\d \(live, state [\d.]+ [KM]iB")
        self.migrate("--rank", "3", "--to", "node-c")
        self.settled()
        after = self.gpus_of_job()
        self.assertEqual(after[:3], before[:3])
        self.assertTrue(after[3].startswith("node-c:"), after)
        self.migrate("--rank", "3", "--to", "node-b")
        self.settled()
        self.check_end()

    def test_two_ranks_move_to_two_nodes_and_later_all_ranks_to_one_node(self):
        self.start(options=("--ranks", "4", "--nodes", "node-a,node-b"), more=("--shards",), pace="--step-ms $((5 + RANK * 6))")
        shown = self.migrate("--rank", "1,2", "--to", "node-b,node-c").stdout
        self.assertRegex(shown, r"^moved train.1 .*\n(.*\n)*moved train.2 ")
        self.settled()
        self.assertEqual([gpu.split(":")[0] for gpu in self.gpus_of_job()], ["node-a", "node-b", "node-c", "node-b"])
        self.migrate("--to", "node-c")
        self.settled()
        self.assertEqual({gpu.split(":")[0] for gpu in self.gpus_of_job()}, {"node-c"})
        self.check_end()

    def test_one_two_and_all_stages_of_a_pipeline_move(self):
        self.start(options=("--ranks", "4", "--nodes", "node-a,node-b"), program="pipeline")
        self.migrate("--rank", "0", "--to", "node-c")
        self.settled()
        self.migrate("--rank", "1,2", "--to", "node-b,node-c")
        self.settled()
        self.migrate("--to", "node-a")
        self.settled()
        self.assertEqual({gpu.split(":")[0] for gpu in self.gpus_of_job()}, {"node-a"})
        self.check_end()

    def test_report_contains_the_skew_and_the_pauses_of_all_ranks(self):
        self.start(3, options=("--ranks", "3", "--nodes", "node-a,node-b,node-c"), program="pipeline")
        self.migrate("--rank", "1", "--to", "node-a")
        self.settled()
        eventually(lambda: self.cluster.json("migrations")[0]["report"]["skew_ms"] is not None, "all ranks have reported")
        report = self.cluster.json("migrations")[0]["report"]
        times = [report["to_barrier_ms"], *(rank["to_barrier_ms"] for rank in report["staying"])]
        self.assertEqual([rank["rank"] for rank in sorted(report["staying"], key=lambda rank: rank["rank"])], [0, 2])
        self.assertAlmostEqual(report["skew_ms"], max(times) - min(times), places=3)
        self.assertGreater(report["communicators_ms"], 0)
        self.assertIn("first rank at the barrier", self.cluster.call("events").stdout)
        self.check_end()

    def test_all_ranks_of_one_node_move_to_another(self):
        self.start(2, options=("--gpus", "2"))
        self.migrate("--to", "node-b")
        self.settled()
        self.assertEqual(self.gpus_of_job(), ["node-b:0", "node-b:1"])
        refused = self.cluster.run("migrate", "train", "--rank", "1", "--to", "node-c")
        self.assertEqual(refused.returncode, 5, refused)
        self.assertIn("started for one node", refused.stderr)
        self.migrate("--rank", "1", "--to", "node-b:3")
        self.settled()
        self.check_end()

    def test_graphs_are_captured_again_for_new_communicators(self):
        self.start(options=("--ranks", "4", "--nodes", "node-a,node-b"), more=("--graphs",))
        self.migrate("--rank", "1", "--to", "node-c")
        self.settled()
        self.migrate("--to", "node-b")
        self.settled()
        self.check_end()

    def test_drain_of_a_node_moves_only_its_ranks(self):
        self.start(options=("--ranks", "4", "--nodes", "node-a,node-b"))
        before = self.gpus_of_job()
        self.cluster.call("drain", "node-b")
        self.settled()
        after = self.gpus_of_job()
        self.assertEqual(after[:2], before[:2])
        self.assertFalse([gpu for gpu in after if gpu.startswith("node-b")], after)
        self.assertEqual(len(self.cluster.json("migrations")), 2, "no other rank was moved")
        self.check_end()

    def test_moved_ranks_are_suspended_and_resumed(self):
        self.start(2, options=("--ranks", "2", "--nodes", "node-a,node-b"))
        self.migrate("--rank", "0", "--to", "node-c")
        self.settled()
        self.cluster.call("suspend", "train")
        self.cluster.call("resume", "train")
        eventually(lambda: self.cluster.json("describe", "train")["state"] == "running", "it runs")
        self.migrate("--rank", "1", "--to", "auto")
        self.settled()
        self.check_end()

    def test_agent_restarted_in_a_pause_knows_earlier_moves_and_images(self):
        self.start(2, options=("--ranks", "2", "--nodes", "node-a,node-b"))
        for node in ("node-b", "node-c"):
            self.cluster.call("cordon", node)
        self.migrate("--rank", "1", "--to", "node-a")  # rank 0 remains on its node
        self.settled()
        self.cluster.call("suspend", "train")
        self.cluster.call("resume", "train")
        eventually(lambda: self.cluster.json("describe", "train")["state"] == "running", "it runs")
        self.assertEqual([gpu.split(":")[0] for gpu in self.gpus_of_job()], ["node-a", "node-a"])
        victims = self.daemons_of("agent.node-a")
        self.cluster.arm("agent.node-a", Point.SNAPSHOT_SAVED)
        with self.cluster.popen("suspend", "train") as resting:
            self.wait_until_fired("agent.node-a", Point.SNAPSHOT_SAVED, resting)
            self.wait_until_dead(victims)
            self.cluster.up()
            resting.communicate(timeout=COMMAND_LIMIT_S)
        eventually(lambda: {rank["state"] for rank in self.cluster.json("describe", "train")["ranks"]} == {"running"}, "it runs on")
        self.check_end()


@unittest.skipUnless((EXAMPLES / "charlm-dp").exists(), "there was no nccl.h")
class GangMovesOffTroubledGpus(GangMovesTest):
    agent_settings = "health_window_ms = 200\n"

    def test_only_the_rank_of_a_failing_gpu_is_evacuated(self):
        self.start(options=("--ranks", "4", "--nodes", "node-a,node-b"))
        before = self.gpus_of_job()
        node, device = before[2].split(":")
        subprocess.run([BIN / "cudasim-ctl", "--dir", self.cluster.home / "nodes" / node / "gpu", "--device", device, "xid", "64"],
                       check=True, capture_output=True)
        eventually(lambda: self.gpus_of_job()[2] != before[2], "the rank has left its GPU")
        self.settled()
        after = self.gpus_of_job()
        self.assertEqual([after[0], after[1], after[3]], [before[0], before[1], before[3]])
        evacuation = self.cluster.json("health")["evacuations"][-1]
        self.assertEqual(evacuation["state"], "moved", evacuation)
        self.check_end()


@unittest.skipUnless((EXAMPLES / "charlm-dp").exists(), "there was no nccl.h")
class GangMovesOfRanksThatHang(GangMovesTest):
    """A rank stands still: the move ends in time with its name, and everybody goes on once it does."""

    def setUp(self):
        super().setUp()
        self.start(options=("--ranks", "4", "--nodes", "node-a,node-b"))
        self.pid = self.cluster.rank_pid("train", 1)

    def moves_once_it_goes_on(self):
        os.kill(self.pid, signal.SIGCONT)
        self.settled()
        self.migrate("--rank", "3", "--to", "node-c")
        self.settled()
        self.check_end()

    def test_move_is_refused_if_a_rank_hangs_before_the_move(self):
        os.kill(self.pid, signal.SIGSTOP)
        refused = self.cluster.run("migrate", "train", "--rank", "3", "--to", "node-c", "--timeout", "4s")
        self.assertEqual(refused.returncode, 5, refused)
        self.assertIn("Rank 1 on node-a: The process of the rank has not answered", refused.stderr)
        self.assertEqual(self.cluster.json("migrations"), [], "nothing was touched")
        self.moves_once_it_goes_on()

    def test_move_ends_if_a_rank_hangs_before_the_common_step(self):
        with self.cluster.popen("migrate", "train", "--rank", "3", "--to", "node-c", "--timeout", "5s", "--bandwidth",
                                "50KiB/s") as moving:
            eventually(lambda: any(m["state"] == "precopy" for m in self.cluster.json("migrations")), "it is copied")
            os.kill(self.pid, signal.SIGSTOP)
            self.cluster.call("set", self.cluster.json("migrations")[0]["id"], "bandwidth", "1GiB/s")
            output, errors = moving.communicate(timeout=120)
        self.assertEqual(moving.returncode, 2, output + errors)
        self.assertRegex(output + errors, r"ranks? .*1.* had not reached the common barrier")
        self.moves_once_it_goes_on()


@unittest.skipUnless((EXAMPLES / "charlm-dp").exists(), "there was no nccl.h")
class GangMovesAgainAndAgain(GangMovesTest):
    """Twenty moves of a job (GANG_MOVES), there and back: of one rank, two and all, to one node and to two."""
    rounds = int(os.environ.get("GANG_MOVES", "20"))

    def again_and_again(self, ranks, there, back, more=(), program="charlm-dp"):
        self.start(options=("--ranks", "4", "--nodes", "node-a,node-b"), more=more, program=program)
        chosen = ("--rank", ranks) if ranks else ()
        for number in range(self.rounds):
            self.migrate(*chosen, "--to", back if number % 2 else there)
            self.settled()
        pauses = sorted(m["report"]["downtime_ms"] for m in self.cluster.json("migrations", "--all"))
        print(f"\npauses_ms ranks {ranks or 'all'}: median {pauses[len(pauses) // 2]:.1f}, longest {pauses[-1]:.1f}")
        self.check_end()

    def test_one_rank_moves_repeatedly(self):
        self.again_and_again("3", "node-c", "node-b")

    def test_two_ranks_move_repeatedly_to_two_nodes(self):
        self.again_and_again("1,3", "node-b,node-c", "node-c,node-a")

    def test_all_ranks_move_repeatedly(self):
        self.again_and_again("", "node-c", "node-a,node-b")

    def test_one_rank_with_shards_moves_repeatedly(self):
        self.again_and_again("2", "node-c", "node-b", more=("--shards",))

    def test_two_ranks_with_shards_move_repeatedly_to_two_nodes(self):
        self.again_and_again("0,3", "node-b,node-c", "node-a,node-b", more=("--shards",))

    def test_all_ranks_with_graphs_move_repeatedly(self):
        self.again_and_again("", "node-c", "node-a,node-b", more=("--graphs",))

    def test_all_ranks_with_shards_move_repeatedly(self):
        self.again_and_again("", "node-c", "node-a,node-b", more=("--shards",))

    def test_one_stage_of_a_pipeline_moves_repeatedly(self):
        self.again_and_again("1", "node-c", "node-a", program="pipeline")

    def test_two_stages_of_a_pipeline_move_repeatedly_to_two_nodes(self):
        self.again_and_again("0,2", "node-c,node-a", "node-a,node-b", program="pipeline")

    def test_all_stages_of_a_pipeline_move_repeatedly(self):
        self.again_and_again("", "node-c", "node-a,node-b", program="pipeline")


if __name__ == "__main__":
    unittest.main()
