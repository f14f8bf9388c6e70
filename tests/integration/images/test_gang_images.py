# SPDX-License-Identifier: Apache-2.0
"""A job of several ranks rests in images of one step and goes on from them, on the same nodes or on others, with the
digests of ranks that nobody touched."""
import re
import unittest

from cluster import EXAMPLES, final_object
from crashing import CrashingTest
from fault_points import Point
from ranks_by_hand import run_by_hand
from waiting import eventually

# A program whose ranks have steps of different lengths. Each rank waits for slower ranks in its collectives.
UNEVEN = ("/bin/sh", "-c", 'exec "$0" --step-ms $((5 + RANK * 9)) "$@"')
STEPS = ("--params", "20000", "--print-every", "1")


def last_step(log):
    steps = re.findall(r"^step (\d+)", log, re.M)
    return int(steps[-1]) if steps else 0


class GangImagesTest(CrashingTest):
    nodes, gpus = 3, 2

    def start(self, ranks=2, steps=150, options=None, more=(), command=()):
        self.training = (*STEPS, "--steps", str(steps), *more)
        self.ranks = ranks
        paced = command or ("/bin/sh", "-c", 'exec "$0" --step-ms 20 "$@"')
        self.cluster.call("run", "--detach", "--name", "train", "--env",
                          f"GPUMIGRATE_TEST_HURRY={self.cluster.hurry('train')}", *(options or ("--ranks", str(ranks))), "--cooperative", "--",
                          *paced, EXAMPLES / "charlm-dp", *self.training)
        self.cluster.wait_for_line("train", r"^step 5\b")

    def logs(self):
        return [self.cluster.call("logs", "train", "--rank", str(rank)).stdout for rank in range(self.ranks)]

    def check_end(self):
        """All ranks end with the digests of a run that nobody touched."""
        self.cluster.hurry("train").touch()
        self.assertEqual(self.cluster.run("wait", "train").returncode, 0, self.cluster.run("describe", "train").stdout)
        logs = self.logs()
        got = {final_object(log)["digest"] for log in logs}
        expected = {result["digest"] for result in run_by_hand(self.ranks, *self.training)}
        self.assertEqual(got, expected, "\n".join(log[-400:] for log in logs))

    def state(self):
        return self.cluster.json("describe", "train")["state"]

    def gpus_of_job(self):
        return self.cluster.json("describe", "train")["gpus"]


@unittest.skipUnless((EXAMPLES / "charlm-dp").exists(), "there was no nccl.h")
class GangsThatRest(GangImagesTest):
    def test_snapshot_of_all_ranks_is_from_one_step_and_the_ranks_continue(self):
        self.start()
        taken = self.cluster.call("snapshot", "train").stdout
        self.assertIn("2 images", taken)
        images = self.cluster.json("images")
        self.assertEqual(len(images), 2, images)
        self.assertEqual(len({image["set"] for image in images} - {None}), 1, images)
        self.check_end()

    def test_suspended_job_continues_on_other_nodes(self):
        self.start()
        before = self.gpus_of_job()
        rests = self.cluster.call("suspend", "train").stdout
        self.assertRegex(rests, r"train \(j\S+\) is parked in 2 images")
        self.assertEqual(self.state(), "parked")
        eventually(lambda: self.cluster.pids("charlm-dp") == [], "no rank is left")
        self.assertEqual({job["state"] for job in self.cluster.json("jobs")}, {"parked"})
        resumed = self.cluster.call("resume", "train", "--to", "node-b,node-c").stdout
        self.assertIn("node-b 1 rank, node-c 1 rank", resumed)
        self.assertNotEqual(self.gpus_of_job(), before)
        self.check_end()
        for log in self.logs():
            steps = [int(step) for step in re.findall(r"^step (\d+)", log, re.M)]
            self.assertEqual(steps, list(range(1, 151)), "each step was computed once")

    def test_four_ranks_of_uneven_pace_are_suspended_and_resumed_twice(self):
        self.start(4, more=("--shards",), command=UNEVEN)
        for _ in range(2):
            self.cluster.call("suspend", "train")
            self.cluster.call("resume", "train")
        self.check_end()

    def test_ended_job_is_restored_from_its_images_if_the_loss_is_accepted(self):
        self.start()
        self.cluster.call("snapshot", "train")
        reached = last_step(self.logs()[0])
        eventually(lambda: last_step(self.logs()[0]) > reached + 3, "it goes on")
        self.cluster.call("stop", "train", "--grace", "0s")
        eventually(lambda: self.state() not in ("running", "stopping"), "it has ended")
        refused = self.cluster.run("restore", "train")
        self.assertEqual(refused.returncode, 5, refused)
        self.assertIn("--accept-loss", refused.stderr)
        restored = self.cluster.run("restore", "train", "--accept-loss")
        self.assertEqual(restored.returncode, 3, restored)
        self.assertIn("of work is lost", restored.stdout)
        self.check_end()

    def test_damaged_image_of_one_rank_keeps_all_ranks_parked(self):
        self.start(steps=400)
        first = self.cluster.json("snapshot", "train")["images"]
        self.cluster.call("suspend", "train")
        rank = self.cluster.json("describe", "train")["ranks"][1]
        packs = sorted((self.cluster.home / "nodes" / rank["node"] / "vault/jobs").glob(f"*{rank['job']}*/packs/*.pack"))
        packs[-1].write_bytes(packs[-1].read_bytes()[:100])
        failed = self.cluster.run("resume", "train")
        self.assertEqual(failed.returncode, 1, failed)
        self.assertRegex(failed.stderr, "all are parked again: rank 1: .*damaged")
        self.assertEqual([rank["state"] for rank in self.cluster.json("describe", "train")["ranks"]], ["parked", "parked"])
        alone = self.cluster.run("resume", "train.0")
        self.assertEqual(alone.returncode, 5, alone)
        restored = self.cluster.run("restore", first[0], "--accept-loss")
        self.assertEqual(restored.returncode, 3, restored)
        self.check_end()

    def test_job_that_permanently_loses_a_node_is_restored_from_images_in_a_folder(self):
        self.start(steps=300, options=("--ranks", "2", "--nodes", "node-a,node-b"))
        self.cluster.call("protect", "train", "--every", "1s", "--to", f"{self.cluster.home}/shared/")
        eventually(lambda: len(self.cluster.json("images")) >= 4, "two sets are there")
        self.cluster.kill("nodes/node-b/")
        eventually(lambda: self.state() == "unreachable", "node-b is away")
        refused = self.cluster.run("restore", "train", "--accept-loss")
        self.assertEqual(refused.returncode, 5, refused)
        self.cluster.call("node", "rm", "node-b", "--force", "--fenced")
        eventually(lambda: self.state() in ("exited", "failed", "lost"), "the rank that is left is ended")
        restored = self.cluster.run("restore", "train", "--accept-loss")
        self.assertEqual(restored.returncode, 3, restored)
        self.assertNotIn("node-b", restored.stdout)
        self.check_end()

    def test_ranks_of_one_node_stay_on_one_node(self):
        self.start(options=("--gpus", "2"))
        self.cluster.call("suspend", "train")
        refused = self.cluster.run("resume", "train", "--to", "node-b,node-c")
        self.assertEqual(refused.returncode, 5, refused)
        self.cluster.call("resume", "train", "--to", "node-c")
        self.assertEqual(self.gpus_of_job(), ["node-c:0", "node-c:1"])
        self.check_end()


@unittest.skipUnless((EXAMPLES / "charlm-dp").exists(), "there was no nccl.h")
class GangsThatRestThroughCrashes(GangImagesTest):
    """Any process dies while a job of several ranks is suspended or comes back: it runs on as a whole or rests as a whole, and
    ends with the digests of an untouched run."""

    def crash(self, role, point, *command):
        victims = self.daemons_of(role)
        self.cluster.arm(role, point)
        with self.cluster.popen(*command) as ordering:
            self.wait_until_fired(role, point, ordering)
            self.wait_until_dead(victims)
            ordering.terminate()
        self.cluster.up()

    def settled_state(self):
        """Running as a whole, or resting as a whole."""
        def look():
            job = self.cluster.json("describe", "train")
            states = {rank["state"] for rank in job["ranks"]}
            return states if states in ({"running"}, {"parked"}, {"exited"}) else None
        return eventually(look, "its ranks are together again").pop()

    def suspend_through(self, role, point, wanted):
        self.start(steps=400)
        self.crash(role, point, "suspend", "train")
        state = self.settled_state()
        self.assertEqual(state, wanted)
        if state == "running":
            self.cluster.call("suspend", "train")
        self.cluster.call("resume", "train")
        self.check_end()

    def test_job_survives_a_coordinator_crash_before_its_ranks_are_stopped(self):
        self.suspend_through("coordinator", Point.COORDINATOR_RANKS_READY, "running")

    def test_job_survives_a_coordinator_crash_while_ranks_wait_at_the_barrier(self):
        self.suspend_through("coordinator", Point.COORDINATOR_RANKS_GATHERED, "running")

    def test_job_continues_after_a_coordinator_crash_before_the_suspend_is_recorded(self):
        self.suspend_through("coordinator", Point.COORDINATOR_GANG_STORED, "running")

    def test_job_is_parked_after_a_coordinator_crash_once_the_suspend_is_recorded(self):
        self.suspend_through("coordinator", Point.COORDINATOR_OPERATION_DURABLE, "parked")

    def test_job_is_parked_after_a_coordinator_crash_when_one_rank_is_parked(self):
        self.suspend_through("coordinator", Point.COORDINATOR_PARKED_DURABLE, "parked")

    def test_job_survives_an_agent_crash_while_its_rank_is_paused(self):
        self.suspend_through("agent.node-a", Point.SNAPSHOT_PAUSED, "running")

    def test_job_survives_an_agent_crash_once_its_image_is_durable(self):
        self.suspend_through("agent.node-a", Point.SNAPSHOT_DURABLE, "running")

    def resume_through(self, role, point):
        self.start(steps=400)
        self.cluster.call("suspend", "train")
        self.crash(role, point, "resume", "train", "--to", "node-b,node-c")
        if self.settled_state() == "parked":
            self.cluster.call("resume", "train")
        self.check_end()

    def test_resume_survives_a_coordinator_crash_while_the_ranks_start(self):
        self.resume_through("coordinator", Point.COORDINATOR_START_DURABLE)

    def test_resume_survives_an_agent_crash_after_its_rank_has_started(self):
        self.resume_through("agent.node-c", Point.RESTORE_STARTED)

    def test_resume_survives_an_agent_crash_after_the_memory_is_filled(self):
        self.resume_through("agent.node-b", Point.RESTORE_FILLED)


if __name__ == "__main__":
    unittest.main()
