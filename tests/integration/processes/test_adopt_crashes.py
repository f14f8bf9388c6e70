# SPDX-License-Identifier: Apache-2.0
"""kill -9 at the crash points of a move of an adopted process, between two GPUs of a node and between nodes,
and aborts meanwhile. One instance goes on, from the very step it stopped at: each step is printed once."""
import pathlib
import unittest

from adopting import HandStarted, needs_criu
from crashing import EITHER, SOURCE, TARGET, TransparentCrashes
from fault_points import Point

COORDINATOR = [("coordinator", number, ends_on) for number, ends_on in [
    (Point.COORDINATOR_BEGUN, EITHER), (Point.COORDINATOR_PREPARED, EITHER),
    (Point.COORDINATOR_GRANTED_DURABLE, EITHER), (Point.COORDINATOR_COMMIT_SENT, EITHER),
    (Point.COORDINATOR_HEARD_COMMITTED, TARGET), (Point.COORDINATOR_HEARD_RELEASED, TARGET),
    (Point.COORDINATOR_CLOSED_DURABLE, TARGET)]]
# Once the host threads run at the target, an order with an unknown outcome is repeated. The last two orders
# therefore do not end the move.
HELPER = [(f"context.{order}", number, ends_on) for order, ends_on in
          (("lock", SOURCE), ("checkpoint", SOURCE), ("restore", TARGET), ("unlock", TARGET))
          for number in (Point.CONTEXT_ORDERED, Point.CONTEXT_PERFORMED)]


class AdoptedCrashes(TransparentCrashes):
    def start_training(self, steps):
        self.training = HandStarted(self.cluster, steps, step_ms=8)
        self.addCleanup(self.training.end)
        self.training.wait_for_step(5)
        self.cluster.call("adopt", *self.training.name, "--name", "job")

    def running_place(self):
        self.training.wait_for_step(max(self.training.printed(), default=0) + 2)
        return self.place()

    def instances(self):
        # Until its parent has reaped it, the original exists as a zombie, which runs nothing.
        self.training.process.poll()
        return super().instances()

    def finish_training(self):
        self.training.let_end()
        self.cluster.call("wait", "job", exits=(0, 6))
        self.training.check_end(self)
        self.assertEqual(self.instances(), [], "an instance is left over")
        for place in self.places:
            facts = (self.cluster.home / "nodes" / place.partition(":")[0]).stat()
            left = [*pathlib.Path("/dev/shm").glob(f"gpumigrate-{facts.st_dev}.{facts.st_ino}-*")]
            self.assertEqual(left, [], "an image is left in memory")


class BetweenNodes(AdoptedCrashes):
    places = ("node-a", "node-b")

    @classmethod
    def setUpClass(cls):
        needs_criu()

    def test_adopted_job_survives_a_source_agent_crash(self):
        self.crash([("agent.source", number, ends_on) for number, ends_on in [
            (Point.SOURCE_PREPARING, EITHER), (Point.SOURCE_PAUSED, SOURCE),
            (Point.SOURCE_CONTEXT_SAVED, SOURCE), (Point.SOURCE_DUMPED, SOURCE),
            (Point.SOURCE_BARRIER_DURABLE, EITHER), (Point.SOURCE_FINAL_SENT, EITHER),
            (Point.SOURCE_RECEIVED_RUNS, TARGET), (Point.SOURCE_RELEASED_DURABLE, TARGET)]])

    def test_adopted_job_survives_a_target_agent_crash(self):
        # The image belongs to the target agent until the restored process has a keeper, so 204 ends on the
        # source.
        self.crash([("agent.target", number, ends_on) for number, ends_on in [
            (Point.TARGET_PREPARING, EITHER), (Point.TARGET_VERIFIED, SOURCE),
            (Point.TARGET_COMMITTED_DURABLE, SOURCE), (Point.TARGET_RESTORED, TARGET),
            (Point.TARGET_CONTEXT_PLACED, TARGET), (Point.TARGET_RUNS, TARGET),
            (Point.TARGET_RUNS_STATED, TARGET)]])

    def test_job_survives_a_coordinator_crash(self):
        self.crash(COORDINATOR)

    def test_job_survives_a_context_helper_crash(self):
        self.crash(HELPER)

    def test_adopted_job_survives_an_abort_at_each_step(self):
        self.abort_at([(number, EITHER) for number in (Point.SOURCE_CONTEXT_SAVED, Point.SOURCE_DUMPED,
                                                       Point.TARGET_VERIFIED,
                                                       Point.TARGET_COMMITTED_DURABLE)])


class BetweenGpus(AdoptedCrashes):
    places = ("node-a:0", "node-a:1")
    nodes, gpus = 1, 2

    def test_adopted_job_survives_an_agent_crash_within_a_node(self):
        # Both sides of the move are in one agent.
        self.crash([("agent.source", number, ends_on) for number, ends_on in [
            (Point.SOURCE_PREPARING, EITHER), (Point.SOURCE_PAUSED, SOURCE),
            (Point.SOURCE_CONTEXT_SAVED, SOURCE), (Point.SOURCE_BARRIER_DURABLE, EITHER),
            (Point.SOURCE_FINAL_SENT, EITHER), (Point.TARGET_VERIFIED, SOURCE),
            (Point.TARGET_COMMITTED_DURABLE, EITHER), (Point.TARGET_CONTEXT_PLACED, EITHER),
            (Point.TARGET_CONTEXT_RESTORED, TARGET), (Point.SOURCE_CONTEXT_SAVED, SOURCE),
            (Point.TARGET_RUNS, TARGET), (Point.TARGET_RUNS_STATED, TARGET),
            (Point.SOURCE_RECEIVED_RUNS, TARGET), (Point.SOURCE_RELEASED_DURABLE, TARGET)]])

    def test_job_survives_a_context_helper_crash(self):
        self.crash(HELPER)

    def test_adopted_job_survives_an_abort_at_each_step(self):
        self.abort_at([(number, EITHER) for number in (Point.SOURCE_CONTEXT_SAVED, Point.TARGET_VERIFIED,
                                                       Point.TARGET_COMMITTED_DURABLE)])
