# SPDX-License-Identifier: Apache-2.0
"""kill -9 at the crash points of a hot card swap: agent, movers, coordinator, context helper. One agent has
both sides here, so what it had prepared is lost with it; the memory is with the job's keeper and the context
with the driver."""
import signal
import subprocess
import unittest

from cluster import BIN
from crashing import EITHER, SOURCE, TARGET, TransparentCrashes
from fault_points import Point

AGENT_BEFORE = [("agent.source", number, ends_on) for number, ends_on in [
    (Point.SOURCE_PREPARING, EITHER), (Point.SOURCE_PRECOPY, SOURCE), (Point.SOURCE_PAUSED, SOURCE),
    (Point.SOURCE_BARRIER_DURABLE, SOURCE), (Point.SOURCE_FINAL_SENT, EITHER),
    (Point.TARGET_PREPARING, EITHER), (Point.TARGET_PRECOPY, SOURCE), (Point.TARGET_VERIFIED, SOURCE)]]
AGENT_SAVING = [("agent.source", number, SOURCE) for number in (Point.SOURCE_MEMORY_RELEASED,
                                                                Point.SOURCE_CONTEXT_SAVED)]
# Point 109 follows 213. The agent of the next move must know where the context was when it was saved.
AGENT_AFTER = [("agent.source", number, SOURCE if number == Point.SOURCE_CONTEXT_SAVED else TARGET)
               for number in (Point.TARGET_COMMITTED_DURABLE, Point.TARGET_CONTEXT_RESTORED,
                              Point.SOURCE_CONTEXT_SAVED, Point.TARGET_RUNS, Point.TARGET_RUNS_STATED,
                              Point.TARGET_CONTEXT_PLACED, Point.TARGET_MEMORY_MAPPED,
                              Point.SOURCE_RECEIVED_RUNS, Point.SOURCE_RELEASED_DURABLE)]
MOVERS = [("mover.source", Point.SOURCE_MOVER_ATTACHED, SOURCE),
          ("mover.source", Point.SOURCE_MOVER_ROUND, SOURCE),
          ("mover.source", Point.SOURCE_MOVER_FINAL, SOURCE),
          ("mover.source", Point.SOURCE_MOVER_MANIFEST, EITHER),
          ("mover.target", Point.TARGET_MOVER_ATTACHED, SOURCE),
          ("mover.target", Point.TARGET_MOVER_ROUND, SOURCE),
          ("mover.target", Point.TARGET_MOVER_FINAL, SOURCE),
          ("mover.target", Point.TARGET_MOVER_VERIFIED, SOURCE)]
COORDINATOR = [("coordinator", number, ends_on) for number, ends_on in [
    (Point.COORDINATOR_BEGUN, EITHER), (Point.COORDINATOR_PREPARED, EITHER),
    (Point.COORDINATOR_GRANTED_DURABLE, EITHER), (Point.COORDINATOR_COMMIT_SENT, EITHER),
    (Point.COORDINATOR_HEARD_COMMITTED, TARGET), (Point.COORDINATOR_HEARD_RELEASED, TARGET),
    (Point.COORDINATOR_CLOSED_DURABLE, TARGET)]]
HELPER = [(f"context.{order}", number, SOURCE) for order in ("state", "lock", "checkpoint", "restore",
                                                             "unlock")
          for number in (Point.CONTEXT_ORDERED, Point.CONTEXT_PERFORMED)]
# Crash points while the source takes the job back, since the sent data is not verified.
GOING_BACK = [("agent.source", Point.TARGET_CONTEXT_PLACED), ("agent.source", Point.TARGET_MEMORY_MAPPED),
              ("context.restore", Point.CONTEXT_ORDERED), ("context.restore", Point.CONTEXT_PERFORMED),
              ("context.unlock", Point.CONTEXT_ORDERED)]
GPU_FAULTS = [("mover.source", Point.SOURCE_MOVER_ATTACHED, ["limit", "1MiB"]),
              ("mover.source", Point.SOURCE_MOVER_ROUND, ["fail-copy", "1"]),
              ("agent.source", Point.TARGET_COMMITTED_DURABLE, ["lose-device"])]
POINTS = AGENT_BEFORE + AGENT_SAVING + AGENT_AFTER + MOVERS + COORDINATOR + HELPER


class SwapCrashes(TransparentCrashes):
    nodes, gpus = 1, 2
    places = ("node-a:0", "node-a:1")

    def test_job_returns_after_an_agent_crash_before_committed(self):
        self.crash(AGENT_BEFORE + AGENT_SAVING)

    def test_job_moves_despite_an_agent_crash_after_committed(self):
        self.crash(AGENT_AFTER)

    def test_job_survives_a_mover_crash(self):
        self.crash(MOVERS)

    def test_job_survives_a_coordinator_crash(self):
        self.crash(COORDINATOR)

    def test_job_survives_a_context_helper_crash(self):
        self.crash(HELPER)

    def test_job_survives_an_agent_crash_while_the_rank_releases_or_maps(self):
        self.agent_dies_while_the_rank_is_busy()

    def test_job_survives_an_abort_while_the_context_moves(self):
        self.abort_at([(number, EITHER) for number in (Point.SOURCE_MEMORY_RELEASED,
                                                       Point.SOURCE_CONTEXT_SAVED, Point.TARGET_VERIFIED,
                                                       Point.TARGET_COMMITTED_DURABLE)])

    def test_job_survives_a_second_crash_during_its_return(self):
        self.start_training(2500)
        for role, number in GOING_BACK:
            with self.subTest(role=role, number=number):
                print(f"  mover.target 404, then {role} {number}:", end="", flush=True)
                self.crash_once("mover.target", Point.TARGET_MOVER_VERIFIED, SOURCE, then=[(role, number)])
        self.finish_training()

    def gpu(self, index, *order):
        """Orders a fault of a software GPU of node-a, or its end."""
        subprocess.run([BIN / "cudasim-ctl", "--dir", self.cluster.home / "nodes/node-a/gpu", "--device",
                        str(index), *order],
                       check=True, capture_output=True)

    def test_job_survives_a_failure_of_the_target_gpu(self):
        """Held where it hurts, the GPU loses its memory or all of itself; then it is as before, and the next
        move works."""
        self.start_training(2800)
        self.cluster.call("policy", "pause", "node-a")  # otherwise the lost GPU would be cordoned
        for role, number, order in GPU_FAULTS:
            with self.subTest(held_at=number, order=order):
                print(f"  {role} {number}, GPU 1 {' '.join(order)}:", end="", flush=True)
                held = self.role_of(role, *self.places)
                self.cluster.arm(held, number, "stop")
                moved = self.cluster.popen("migrate", "job", "--to", self.places[1], "-o", "json",
                                           "--timeout", "60s")
                self.wait_until_fired(held, number, moved)
                self.gpu(1, *order)
                self.cluster.kill("gpumigrate-" + held.partition(".")[0], signal.SIGCONT)
                self.check_outcome(moved, *self.places, SOURCE)
                self.gpu(1, "reset")
        # A mover that finds its context lost refuses this move and ends. Its successor has a context of its
        # own.
        self.cluster.call("migrate", "job", "--to", self.places[1], exits=(0, 5))
        for place in [place for place in self.places if place != self.place()] + [self.place()]:
            self.assertEqual(self.cluster.migrate("job", place)["result"], "done")
        self.finish_training()
