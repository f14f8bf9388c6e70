# SPDX-License-Identifier: Apache-2.0
"""Daemons, helpers, ranks, nodes and the coordinator's records are lost while ranks of a job move: the ranks run on as a
whole, moved or not, and no step is computed twice; or the job ends and comes back from its images."""
import json
import signal
import subprocess
import unittest

from cluster import BIN, EXAMPLES
from fault_points import Point
from losing_store import StoreLosingTest
from test_gang_moves import GangMovesTest, steps_of
from waiting import eventually


# Ranks 0 and 1 stay on node-a, rank 2 moves from node-b to node-c, rank 3 from node-b to node-d. So each
# daemon has a separate role, and the target of rank 2 is the lead.
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

    def test_all_ranks_continue_if_the_coordinator_dies_after_the_commit(self):
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


    def test_job_that_ends_without_a_coordinator_is_reported_as_ended(self):
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
            self.up_again()
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
            steps = steps_of(log)  # once a move is over, the rank's former place is unknown
            self.assertEqual(steps, list(range(steps[0], steps[-1] + 1)), "each step was computed once")

    def gpus_known(self):
        described = self.cluster.run("describe", "train", "-o", "json")
        return json.loads(described.stdout)["gpus"] if described.returncode == 0 else []


for name, role, point in POINTS:
    for how in ("removed", "older"):
        setattr(GangMovesWhoseCoordinatorIsLost, f"test_{name}_{how}",
                lambda self, role=role, point=point, how=how: self.lose_at(role, point, how))


# Helpers of rank 3, which moves from node-b to node-c. {0} is its GPU on node-b, {1} is its job.
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

    def test_loss_of_a_target_node_before_go_loses_no_work(self):
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

    def test_loss_of_a_target_node_and_the_store_loses_no_work(self):
        with self.lose_the_target(Point.TARGET_COMMITTED_DURABLE) as moving:
            self.stop_coordinator()
            self.remove_store()
            moving.kill()
        config = self.cluster.home / "coordinator/coordinator.toml"
        alone = subprocess.Popen([BIN / "gpumigrate-coordinator", "--config", config], env=self.cluster.environment,
                                 stderr=subprocess.DEVNULL)
        self.addCleanup(alone.wait)
        self.addCleanup(alone.kill)
        eventually(lambda: self.cluster.run("cluster", "recover", "--for", "10m").returncode == 0, "the window is open")
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

    def test_job_is_restored_from_its_images_after_a_rank_dies_past_its_gate(self):
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


if __name__ == "__main__":
    unittest.main()
