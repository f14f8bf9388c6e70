# SPDX-License-Identifier: Apache-2.0
"""kill -9 at the crash points of a move of an adopted process, between two GPUs of a node and between nodes, and aborts meanwhile. One
instance goes on, from the very step it stopped at: each step is printed once."""
import pathlib
import unittest

from adopting import HandStarted, needs_criu
from crashing import EITHER, SOURCE, TARGET, TransparentCrashes

COORDINATOR = [("coordinator", number, ends_on) for number, ends_on in [
    (601, EITHER), (602, EITHER), (603, EITHER), (604, EITHER), (605, TARGET), (606, TARGET), (607, TARGET)]]
# Once its host threads run at the target, an order whose outcome is not known is asked for again: the last two do not end the move.
HELPER = [(f"context.{order}", number, ends_on) for order, ends_on in
          (("lock", SOURCE), ("checkpoint", SOURCE), ("restore", TARGET), ("unlock", TARGET)) for number in (701, 702)]


class AdoptedCrashes(TransparentCrashes):
    def start_training(self, steps):
        self.training = HandStarted(self.cluster, steps, step_ms=8)
        self.addCleanup(self.training.end)
        self.training.wait_for_step(5)
        self.cluster.call("adopt", self.training.pid, "--name", "job")

    def running_place(self):
        self.training.wait_for_step(max(self.training.printed(), default=0) + 2)
        return self.place()

    def instances(self):
        # Until its parent has been told of its end, the original is there as a zombie, which runs nothing.
        self.training.process.poll()
        return super().instances()

    def finish_training(self):
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

    def test_source_agent(self):
        self.crash([("agent.source", number, ends_on) for number, ends_on in [
            (101, EITHER), (103, SOURCE), (109, SOURCE), (110, SOURCE), (104, EITHER), (105, EITHER), (106, TARGET), (107, TARGET)]], 5000)

    def test_target_agent(self):
        # The image is the target agent's until the restored process has a keeper: 204 ends on the source.
        self.crash([("agent.target", number, ends_on) for number, ends_on in [
            (201, EITHER), (203, SOURCE), (204, SOURCE), (207, TARGET), (208, TARGET), (205, TARGET), (206, TARGET)]], 4500)

    def test_coordinator(self):
        self.crash(COORDINATOR, 4500)

    def test_context_helper(self):
        self.crash(HELPER, 4000)

    def test_abort(self):
        self.abort_at([(number, EITHER) for number in (109, 110, 203, 204)])


class BetweenGpus(AdoptedCrashes):
    places = ("node-a:0", "node-a:1")
    nodes, gpus = 1, 2

    def test_agent(self):
        # Both sides are one agent's.
        self.crash([("agent.source", number, ends_on) for number, ends_on in [
            (101, EITHER), (103, SOURCE), (109, SOURCE), (104, EITHER), (105, EITHER), (203, SOURCE), (204, EITHER), (208, EITHER),
            (213, TARGET), (109, SOURCE), (205, TARGET), (206, TARGET), (106, TARGET), (107, TARGET)]], 6000)

    def test_context_helper(self):
        self.crash(HELPER, 4000)

    def test_abort(self):
        self.abort_at([(number, EITHER) for number in (109, 203, 204)])
