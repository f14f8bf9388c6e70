# SPDX-License-Identifier: Apache-2.0
"""Ranks of a job move while all of them run: one, several, or all, on one node or over several. The digests are those of
ranks that nobody touched, and each step is computed once."""
import json
import os
import re
import signal
import subprocess
import unittest

from cluster import BIN, COMMAND_LIMIT_S, EXAMPLES, final_object
from crashing import CrashingTest
from fault_points import Point
from losing_store import StoreLosingTest
from ranks_by_hand import run_by_hand
from waiting import eventually

STEPS = ("--params", "20000", "--print-every", "1")
FOREVER = 1_000_000


def steps_of(log):
    return [int(step) for step in re.findall(r"^step (\d+)", log, re.M)]


class GangMovesTest(CrashingTest):
    nodes, gpus = 3, 4

    def start(self, ranks=4, options=None, more=(), pace="--step-ms 15", program="charlm-dp"):
        """They run until check_end()."""
        self.program, self.training, self.ranks = program, (*STEPS, *more), ranks
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
    def test_one_rank_moves_and_comes_back(self):
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

    def test_two_ranks_move_to_two_nodes_and_all_come_together(self):
        self.start(options=("--ranks", "4", "--nodes", "node-a,node-b"), more=("--shards",), pace="--step-ms $((5 + RANK * 6))")
        shown = self.migrate("--rank", "1,2", "--to", "node-b,node-c").stdout
        self.assertRegex(shown, r"^moved train.1 .*\n(.*\n)*moved train.2 ")
        self.settled()
        self.assertEqual([gpu.split(":")[0] for gpu in self.gpus_of_job()], ["node-a", "node-b", "node-c", "node-b"])
        self.migrate("--to", "node-c")
        self.settled()
        self.assertEqual({gpu.split(":")[0] for gpu in self.gpus_of_job()}, {"node-c"})
        self.check_end()

    def test_stages_of_a_pipeline_move_one_two_and_all(self):
        self.start(options=("--ranks", "4", "--nodes", "node-a,node-b"), program="pipeline")
        self.migrate("--rank", "0", "--to", "node-c")
        self.settled()
        self.migrate("--rank", "1,2", "--to", "node-b,node-c")
        self.settled()
        self.migrate("--to", "node-a")
        self.settled()
        self.assertEqual({gpu.split(":")[0] for gpu in self.gpus_of_job()}, {"node-a"})
        self.check_end()

    def test_report_has_the_skew_and_the_pauses_of_all_ranks(self):
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

    def test_drain_of_a_node_moves_its_ranks_and_leaves_the_others(self):
        self.start(options=("--ranks", "4", "--nodes", "node-a,node-b"))
        before = self.gpus_of_job()
        self.cluster.call("drain", "node-b")
        self.settled()
        after = self.gpus_of_job()
        self.assertEqual(after[:2], before[:2])
        self.assertFalse([gpu for gpu in after if gpu.startswith("node-b")], after)
        self.assertEqual(len(self.cluster.json("migrations")), 2, "no other rank was moved")
        self.check_end()

    def test_ranks_that_moved_rest_in_images_and_go_on(self):
        self.start(2, options=("--ranks", "2", "--nodes", "node-a,node-b"))
        self.migrate("--rank", "0", "--to", "node-c")
        self.settled()
        self.cluster.call("suspend", "train")
        self.cluster.call("resume", "train")
        eventually(lambda: self.cluster.json("describe", "train")["state"] == "running", "it runs")
        self.migrate("--rank", "1", "--to", "auto")
        self.settled()
        self.check_end()

    def test_agent_that_dies_in_a_pause_knows_an_earlier_move_and_images_since(self):
        self.start(2, options=("--ranks", "2", "--nodes", "node-a,node-b"))
        for node in ("node-b", "node-c"):
            self.cluster.call("cordon", node)
        self.migrate("--rank", "1", "--to", "node-a")  # rank 0 stays
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

    def test_only_the_rank_of_that_gpu_moves(self):
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
        self.pid = self.cluster.json("describe", "train")["ranks"][1]["pid"]

    def moves_once_it_goes_on(self):
        os.kill(self.pid, signal.SIGCONT)
        self.settled()
        self.migrate("--rank", "3", "--to", "node-c")
        self.settled()
        self.check_end()

    def test_before_the_move(self):
        os.kill(self.pid, signal.SIGSTOP)
        refused = self.cluster.run("migrate", "train", "--rank", "3", "--to", "node-c", "--timeout", "4s")
        self.assertEqual(refused.returncode, 5, refused)
        self.assertIn("Rank 1 on node-a: Its process has not answered", refused.stderr)
        self.assertEqual(self.cluster.json("migrations"), [], "nothing was touched")
        self.moves_once_it_goes_on()

    def test_before_the_common_step(self):
        with self.cluster.popen("migrate", "train", "--rank", "3", "--to", "node-c", "--timeout", "5s", "--bandwidth",
                                "50KiB/s") as moving:
            eventually(lambda: any(m["state"] == "precopy" for m in self.cluster.json("migrations")), "it is copied")
            os.kill(self.pid, signal.SIGSTOP)
            self.cluster.call("set", self.cluster.json("migrations")[0]["id"], "bandwidth", "1GiB/s")
            output, errors = moving.communicate(timeout=120)
        self.assertEqual(moving.returncode, 2, output + errors)
        self.assertRegex(output + errors, r"ranks? .*1.* had not come to the common barrier")
        self.moves_once_it_goes_on()


@unittest.skipUnless((EXAMPLES / "charlm-dp").exists(), "there was no nccl.h")
class GangMovesWithSlowCommunicators(GangMovesTest):
    """Making communicators takes long, or never ends. Nothing runs in CI's time that the ranks would notice."""

    def setUp(self):
        super().setUp()
        self.faults_of_nccl = self.cluster.home / "nccl-faults"
        self.faults_of_nccl.write_text("")

    def start(self, **more):
        super().start(options=("--ranks", "4", "--nodes", "node-a,node-b", "--env", f"NCCLSIM_FAULTS={self.faults_of_nccl}"),
                      **more)

    def last_step(self):
        return steps_of(self.logs()[0])[-1]

    def test_ranks_compute_while_new_communicators_are_made(self):
        self.start()
        self.faults_of_nccl.write_text("init-delay 3000\n")
        before = self.last_step()
        self.migrate("--rank", "3", "--to", "node-c", "--max-downtime", "1s")
        self.settled()
        self.assertGreater(self.last_step(), before + 30)
        report = next(m for m in self.cluster.json("migrations") if m["job_name"].endswith(".3"))["report"]
        self.assertLess(report["downtime_ms"], 1500, "the three seconds are not in the pause")
        self.check_end()

    def test_communicators_that_are_never_made_cost_nothing_but_the_move(self):
        self.start()
        self.faults_of_nccl.write_text("init-endless\n")
        failed = self.cluster.run("migrate", "train", "--rank", "3", "--to", "node-c", "--timeout", "4s")
        self.assertIn(failed.returncode, (1, 2), failed)
        self.assertIn("communicators", failed.stderr + failed.stdout)
        self.settled()
        self.faults_of_nccl.write_text("")
        self.migrate("--rank", "3", "--to", "node-c")
        self.settled()
        self.check_end()

    def begin_slow_move(self):
        """Its standby is there, and its communicators are not."""
        self.faults_of_nccl.write_text("init-delay 60000\n")
        moving = self.cluster.popen("migrate", "train", "--rank", "3", "--to", "node-c")
        eventually(lambda: len(self.cluster.pids("charlm-dp")) == 5, "the standby is there")
        return moving

    def lose_the_journal(self, *more):
        """While the store knows the move. `more`: processes that end with the coordinator."""
        self.start()
        before = self.gpus_of_job()
        with self.begin_slow_move() as moving:
            for word in ("gpumigrate-coordinator", *more):
                self.cluster.kill(word)
            for journal in (self.cluster.home / "coordinator").glob("gang-journal*"):
                journal.unlink()
            self.cluster.up()
            moving.kill()
        self.settled()
        self.assertEqual(self.gpus_of_job(), before)
        eventually(lambda: len(self.cluster.pids("charlm-dp")) == 4, "the standby has ended")
        self.faults_of_nccl.write_text("")
        self.migrate("--rank", "3", "--to", "node-c")
        self.check_end()

    def test_journal_that_is_lost_is_made_of_what_agents_know(self):
        self.lose_the_journal()

    def test_journal_that_is_lost_with_all_agents_leaves_all_ranks_where_they_are(self):
        self.lose_the_journal("agent.toml")

    def test_move_that_is_aborted_leaves_all_ranks_where_they_are(self):
        self.start()
        before = self.gpus_of_job()
        with self.begin_slow_move() as moving:
            self.cluster.call("abort", "train")
            moving.communicate(timeout=120)
        self.assertEqual(moving.returncode, 2)
        self.settled()
        self.assertEqual(self.gpus_of_job(), before)
        eventually(lambda: len(self.cluster.pids("charlm-dp")) == 4, "the standby has ended")
        self.faults_of_nccl.write_text("")
        self.migrate("--rank", "3", "--to", "node-c")
        self.check_end()

    def test_stop_of_a_job_that_moves_ends_all_of_it(self):
        self.start()
        with self.begin_slow_move() as moving:
            self.cluster.call("stop", "train")
            self.cluster.run("wait", "train")
            moving.communicate(timeout=120)
        eventually(lambda: self.cluster.pids("charlm-dp") == [], "no rank is left")
        self.settled()

    def kill(self, pid):
        self.start()
        with self.begin_slow_move() as moving:
            os.kill(pid(), signal.SIGKILL)
            output, errors = moving.communicate(timeout=120)
        self.assertIn(moving.returncode, (1, 2, 4), output + errors)
        ended = self.cluster.run("wait", "train")
        self.assertNotEqual(ended.returncode, 0)
        eventually(lambda: self.cluster.pids("charlm-dp") == [], "no rank is left")
        self.settled()
        return self.cluster.json("describe", "train")

    def rank_pid(self, number):
        return self.cluster.json("describe", "train")["ranks"][number]["pid"]

    def test_rank_that_stays_and_is_killed_ends_the_job(self):
        job = self.kill(lambda: self.rank_pid(0))
        self.assertIn("rank 0", job["reason"])

    def test_rank_that_moves_and_is_killed_ends_the_job(self):
        job = self.kill(lambda: self.rank_pid(3))
        self.assertIn("rank 3", job["reason"])


# Ranks 0 and 1 stay on node-a, rank 2 moves from node-b to node-c, rank 3 from node-b to node-d: so each daemon has a part of
# its own, and the target of rank 2 is the lead.
POINTS = (
    ("source_preparing", "agent.node-b", Point.SOURCE_PREPARING),
    ("source_barrier", "agent.node-b", Point.SOURCE_BARRIER_DURABLE),
    ("source_released", "agent.node-b", Point.SOURCE_RELEASED_DURABLE),
    ("lead_preparing", "agent.node-c", Point.TARGET_PREPARING),
    ("lead_committed", "agent.node-c", Point.TARGET_COMMITTED_DURABLE),
    ("lead_in_gate", "agent.node-c", Point.TARGET_IN_GATE),
    ("target_ready", "agent.node-d", Point.TARGET_READY_DURABLE),
    ("target_in_gate", "agent.node-d", Point.TARGET_IN_GATE),
    ("bystander_held", "agent.node-a", Point.BYSTANDER_HELD),
    ("bystander_gone", "agent.node-a", Point.BYSTANDER_GONE),
    ("coordinator_begun", "coordinator", Point.COORDINATOR_BEGUN),
    ("coordinator_granted", "coordinator", Point.COORDINATOR_GRANTED_DURABLE),
    ("coordinator_ranks_ready", "coordinator", Point.COORDINATOR_RANKS_READY),
    ("coordinator_ranks_gathered", "coordinator", Point.COORDINATOR_RANKS_GATHERED),
    ("coordinator_closed", "coordinator", Point.COORDINATOR_CLOSED_DURABLE),
)


@unittest.skipUnless((EXAMPLES / "charlm-dp").exists(), "there was no nccl.h")
class GangMovesThroughCrashes(GangMovesTest):
    """Any daemon dies at any point of a move: the ranks run on as a whole, moved or not, and no step is computed twice."""
    nodes = 4

    def crash(self, role, point):
        self.start(options=("--ranks", "4", "--nodes", "node-a,node-b"))
        victims = self.daemons_of(role)
        self.cluster.arm(role, point)
        with self.cluster.popen("migrate", "train", "--rank", "2,3", "--to", "node-c,node-d") as moving:
            self.wait_until_fired(role, point, moving)
            self.wait_until_dead(victims)
            self.cluster.up()
            output, errors = moving.communicate(timeout=120)
        self.assertIn(moving.returncode, (0, 1, 2, 5, 6), output + errors)
        self.settled()
        nodes = [gpu.split(":")[0] for gpu in self.gpus_of_job()]
        self.assertIn(nodes[2:], (["node-b", "node-b"], ["node-c", "node-d"]), "both or none")
        self.migrate("--rank", "2,3", "--to", "node-b" if nodes[2] == "node-c" else "node-c,node-d")
        self.settled()
        self.check_end()


@unittest.skipUnless((EXAMPLES / "charlm-dp").exists(), "there was no nccl.h")
class GangMovesWithoutTheirCoordinator(GangMovesTest):
    """The coordinator is gone from the moment on at which the lead has committed. The agents end the move among themselves."""
    nodes = 4

    def test_all_ranks_go_on(self):
        self.start(options=("--ranks", "4", "--nodes", "node-a,node-b"))
        lead = ("agent.node-c", Point.TARGET_COMMITTED_DURABLE)
        self.cluster.arm(*lead, "stop")
        with self.cluster.popen("migrate", "train", "--rank", "2,3", "--to", "node-c,node-d") as moving:
            self.wait_until_fired(*lead, moving)
            self.cluster.wait_until_it_stands(*lead)
            self.cluster.kill("gpumigrate-coordinator")
            self.cluster.kill("nodes/node-c/agent.toml", signal.SIGCONT)
            moving.kill()
        targets = [self.cluster.home / "nodes" / node / "jobs" for node in ("node-c", "node-d")]
        eventually(lambda: all(any(steps_of(log.read_text()) for log in jobs.glob("*/out.log")) for jobs in targets),
                   "ranks compute at their targets")
        self.cluster.up()
        self.settled()
        self.assertEqual([gpu.split(":")[0] for gpu in self.gpus_of_job()], ["node-a", "node-a", "node-c", "node-d"])
        self.check_end()


    def test_job_that_ends_meanwhile_has_ended(self):
        self.start(options=("--ranks", "4", "--nodes", "node-a,node-b"))
        victims = self.daemons_of("coordinator")
        self.cluster.arm("coordinator", Point.COORDINATOR_CLOSED_DURABLE)
        with self.cluster.popen("migrate", "train", "--rank", "2,3", "--to", "node-c,node-d") as moving:
            self.wait_until_fired("coordinator", Point.COORDINATOR_CLOSED_DURABLE, moving)
            self.wait_until_dead(victims)
            moving.kill()
        self.end_of_job.write_text("")
        eventually(lambda: self.cluster.pids("charlm-dp") == [], "all ranks have ended")
        self.cluster.up()
        self.settled()
        self.check_end()
        self.assertEqual({m["result"] for m in self.cluster.json("migrations")}, {"done"})
        self.assertNotIn("gang-lost", self.cluster.call("events").stdout)


def make_test(role, point):
    return lambda self: self.crash(role, point)


for name, role, point in POINTS:
    setattr(GangMovesThroughCrashes, f"test_{name}", make_test(role, point))


@unittest.skipUnless((EXAMPLES / "charlm-dp").exists(), "there was no nccl.h")
class GangMovesWhoseCoordinatorIsLost(GangMovesTest, StoreLosingTest):
    """The coordinator's store and journals are lost, or an older copy of them comes back, at any point of a move, together
    with the daemon that stood there: the ranks run on as a whole, no step is computed twice, and the next move is done."""
    nodes = 4

    def lose_at(self, role, point, how):
        self.start(options=("--ranks", "4", "--nodes", "node-a,node-b"))
        if how == "older":
            self.copy_store()
        victims = self.daemons_of(role)
        self.cluster.arm(role, point)
        with self.cluster.popen("migrate", "train", "--rank", "2,3", "--to", "node-c,node-d") as moving:
            self.wait_until_fired(role, point, moving)
            self.wait_until_dead(victims)
            self.stop_coordinator()
            self.bring_copy_back() if how == "older" else self.remove_store()
            self.cluster.up()
            moving.kill()
        eventually(lambda: len(self.gpus_known()) == 4, "its ranks are known again")
        self.settled()
        eventually(lambda: self.cluster.json("describe", "train")["state"] == "running", "it runs")
        nodes = [gpu.split(":")[0] for gpu in self.gpus_of_job()]
        self.assertIn(nodes[2:], (["node-b", "node-b"], ["node-c", "node-d"]), "both or none")
        self.migrate("--rank", "2,3", "--to", "node-b" if nodes[2] == "node-c" else "node-c,node-d")
        self.settled()
        self.end()
        logs = self.logs()
        self.check_digests(logs)
        for log in logs:
            steps = steps_of(log)  # where a rank ran before is not known any more, once its move is over
            self.assertEqual(steps, list(range(steps[0], steps[-1] + 1)), "each step was computed once")

    def gpus_known(self):
        described = self.cluster.run("describe", "train", "-o", "json")
        return json.loads(described.stdout)["gpus"] if described.returncode == 0 else []


for name, role, point in POINTS:
    for how in ("removed", "older"):
        setattr(GangMovesWhoseCoordinatorIsLost, f"test_{name}_{how}",
                lambda self, role=role, point=point, how=how: self.lose_at(role, point, how))


# Of rank 3, which moves from node-b to node-c: {0} its GPU there, {1} its job.
HELPERS = (
    ("source_mover_in_its_rounds", "mover.node-b.{0}", Point.SOURCE_MOVER_ROUND),
    ("source_mover_in_the_pause", "mover.node-b.{0}", Point.SOURCE_MOVER_FINAL),
    ("source_mover_at_its_end", "mover.node-b.{0}", Point.SOURCE_MOVER_MANIFEST),
    ("target_mover", "mover.node-c.0", Point.TARGET_MOVER_VERIFIED),
    ("standby", "rank.{1}.standby", Point.RANK_STANDBY_READY),
    ("keeper_of_the_standby", "keeper.{1}.standby", Point.KEEPER_STANDBY_STARTED),
)


@unittest.skipUnless((EXAMPLES / "charlm-dp").exists(), "there was no nccl.h")
class GangMovesThroughLostHelpers(GangMovesTest):
    """A mover, a standby or its keeper dies: the ranks run on as a whole, and move at the next attempt."""

    def lose(self, role, point):
        self.start(options=("--ranks", "4", "--nodes", "node-a,node-b", "--env", f"CKPT_FAULT_DIR={self.cluster.faults}"))
        rank = self.cluster.json("describe", "train")["ranks"][3]
        role = role.format(rank["gpu"], rank["job"].split("-")[0])
        self.cluster.arm(role, point)
        with self.cluster.popen("migrate", "train", "--rank", "3", "--to", "node-c:0") as moving:
            self.wait_until_fired(role, point, moving)
            output, errors = moving.communicate(timeout=120)
        self.assertIn(moving.returncode, (0, 1, 2, 5), output + errors)
        self.settled()
        if not self.gpus_of_job()[3].startswith("node-c"):
            self.migrate("--rank", "3", "--to", "node-c:0")
            self.settled()
        self.check_end()


for name, role, point in HELPERS:
    setattr(GangMovesThroughLostHelpers, f"test_{name}",
            lambda self, role=role, point=point: self.lose(role, point))


@unittest.skipUnless((EXAMPLES / "charlm-dp").exists(), "there was no nccl.h")
class GangMovesThatLoseARank(GangMovesTest, StoreLosingTest):
    def lose_the_target(self, point):
        """Its agent dies at that point, and everything else of its node with it."""
        self.start(options=("--ranks", "4", "--nodes", "node-a,node-b"))
        victims = self.daemons_of("agent.node-c")
        self.cluster.arm("agent.node-c", point)
        moving = self.cluster.popen("migrate", "train", "--rank", "3", "--to", "node-c")
        self.wait_until_fired("agent.node-c", point, moving)
        self.wait_until_dead(victims)
        self.cluster.kill("nodes/node-c/")
        return moving

    def test_target_whose_node_is_lost_before_go_costs_nothing(self):
        with self.lose_the_target(Point.TARGET_COMMITTED_DURABLE) as moving:
            eventually(lambda: not self.cluster.json("migrations")[0]["open"], "the ranks go back once the lease is over")
            moving.communicate(timeout=120)
        self.assertIn(moving.returncode, (1, 3))
        self.assertTrue(self.gpus_of_job()[3].startswith("node-b"))
        refused = self.cluster.run("migrate", "train", "--rank", "3", "--to", "node-a")
        self.assertEqual(refused.returncode, 5, "node-c does not know yet")
        self.cluster.call("node", "rm", "node-c", "--force", "--fenced")
        self.migrate("--rank", "3", "--to", "node-a")
        self.settled()
        self.check_end()

    def test_target_whose_node_is_lost_with_the_store_costs_nothing(self):
        with self.lose_the_target(Point.TARGET_COMMITTED_DURABLE) as moving:
            self.stop_coordinator()
            self.remove_store()
            moving.kill()
        config = self.cluster.home / "coordinator/coordinator.toml"
        alone = subprocess.Popen([BIN / "gpumigrate-coordinator", "--config", config], env=self.cluster.environment,
                                 stderr=subprocess.DEVNULL)
        self.addCleanup(alone.wait)
        self.addCleanup(alone.kill)
        eventually(lambda: self.states_known() == {"running"}, "the ranks go back once the lease is over")
        alone.kill()
        alone.wait()
        self.cluster.up()
        self.settled()
        self.migrate("--rank", "3", "--to", "node-a")
        self.settled()
        self.check_end()

    def states_known(self):
        described = self.cluster.run("describe", "train", "-o", "json")
        ranks = json.loads(described.stdout)["ranks"] if described.returncode == 0 else []
        return {rank["state"] for rank in ranks} if len(ranks) == 4 else set()

    def test_rank_that_dies_past_its_gate_ends_the_job_which_comes_back_from_its_images(self):
        self.start(options=("--ranks", "4", "--nodes", "node-a,node-b", "--env", f"CKPT_FAULT_DIR={self.cluster.faults}"))
        self.cluster.call("snapshot", "train")
        rank = self.cluster.json("describe", "train")["ranks"][3]
        role = f"rank.{rank['job'].split('-')[0]}.standby"
        self.cluster.arm(role, Point.RANK_RESUMED)
        with self.cluster.popen("migrate", "train", "--rank", "3", "--to", "node-c:0") as moving:
            self.wait_until_fired(role, Point.RANK_RESUMED, moving)
            moving.communicate(timeout=120)
        self.settled()
        self.assertNotEqual(self.cluster.run("wait", "train").returncode, 0)
        self.assertIn("rank 3", self.cluster.json("describe", "train")["reason"])
        eventually(lambda: self.cluster.pids("charlm-dp") == [], "no rank is left")
        restored = self.cluster.run("restore", "train", "--accept-loss")
        self.assertEqual(restored.returncode, 3, restored)
        self.end()
        self.check_digests(self.logs())


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

    def test_one_rank(self):
        self.again_and_again("3", "node-c", "node-b")

    def test_two_ranks_to_two_nodes(self):
        self.again_and_again("1,3", "node-b,node-c", "node-c,node-a")

    def test_all_ranks(self):
        self.again_and_again("", "node-c", "node-a,node-b")

    def test_one_rank_with_shards(self):
        self.again_and_again("2", "node-c", "node-b", more=("--shards",))

    def test_two_ranks_with_shards_to_two_nodes(self):
        self.again_and_again("0,3", "node-b,node-c", "node-a,node-b", more=("--shards",))

    def test_all_ranks_with_graphs(self):
        self.again_and_again("", "node-c", "node-a,node-b", more=("--graphs",))

    def test_all_ranks_with_shards(self):
        self.again_and_again("", "node-c", "node-a,node-b", more=("--shards",))

    def test_one_stage_of_a_pipeline(self):
        self.again_and_again("1", "node-c", "node-a", program="pipeline")

    def test_two_stages_of_a_pipeline_to_two_nodes(self):
        self.again_and_again("0,2", "node-c,node-a", "node-a,node-b", program="pipeline")

    def test_all_stages_of_a_pipeline(self):
        self.again_and_again("", "node-c", "node-a,node-b", program="pipeline")


if __name__ == "__main__":
    unittest.main()
