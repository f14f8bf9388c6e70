# SPDX-License-Identifier: Apache-2.0
"""The new communicators of ranks that move, and of those that stay: made while they compute, or in the pause. Making them
takes long, or never ends."""
import os
import signal
import unittest

from cluster import EXAMPLES
from test_gang_moves import GangMovesTest, steps_of
from unix_http import ask
from waiting import eventually


class SlowCommunicatorsTest(GangMovesTest):
    def setUp(self):
        super().setUp()
        # The path must be readable for the ranks of all hosts.
        self.faults_of_nccl = self.cluster.home / "shared/nccl-faults"
        self.faults_of_nccl.parent.mkdir(exist_ok=True)
        self.faults_of_nccl.write_text("")

    def start(self, *options):
        super().start(options=("--ranks", "4", "--nodes", "node-a,node-b", "--env", f"NCCLSIM_FAULTS={self.faults_of_nccl}",
                               *options))

    def last_step(self):
        return steps_of(self.logs()[0])[-1]

    def report(self, rank=3):
        """The report of that rank's last move."""
        return max((m for m in self.cluster.json("migrations") if m["job_name"] == f"train.{rank}"),
                   key=lambda m: m["started"])["report"]


SWITCH = ("--if-not-converged", "switch")  # these moves do not test the limit


@unittest.skipUnless((EXAMPLES / "charlm-dp").exists(), "there was no nccl.h")
class GangMovesWithSlowCommunicators(SlowCommunicatorsTest):
    """Nothing runs in CI's time that the ranks would notice."""

    def test_ranks_compute_while_new_communicators_are_made(self):
        self.start()
        self.faults_of_nccl.write_text("init-delay 3000\n")
        before = self.last_step()
        self.migrate("--rank", "3", "--to", "node-c", "--max-downtime", "1s", *SWITCH)
        self.settled()
        self.assertGreater(self.last_step(), before + 30)
        report = self.report()
        self.assertLess(report["downtime_ms"], 1500, "the three seconds are not in the pause")
        self.check_end()

    def test_endless_creation_of_communicators_fails_only_the_move(self):
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

    def check_stayed(self, gpus):
        """Nothing is left of the slow move, and another one is done."""
        self.settled()
        self.assertEqual(self.gpus_of_job(), gpus)
        eventually(lambda: len(self.cluster.pids("charlm-dp")) == 4, "the standby has ended")
        self.faults_of_nccl.write_text("")
        self.migrate("--rank", "3", "--to", "node-c")
        self.check_end()

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
            self.cluster.call("cluster", "recover", "--for", "10m")
            moving.kill()
        self.check_stayed(before)

    def test_lost_journal_is_rebuilt_from_reports_of_the_agents(self):
        self.lose_the_journal()

    def test_loss_of_the_journal_and_all_agents_leaves_all_ranks_in_place(self):
        self.lose_the_journal("agent.toml")

    def test_aborted_move_leaves_all_ranks_in_place(self):
        self.start()
        before = self.gpus_of_job()
        with self.begin_slow_move() as moving:
            self.cluster.call("abort", "train")
            moving.communicate(timeout=120)
        self.assertEqual(moving.returncode, 2)
        self.check_stayed(before)

    def test_stop_during_a_move_ends_all_ranks(self):
        self.start()
        with self.begin_slow_move() as moving:
            self.cluster.call("stop", "train")
            self.cluster.run("wait", "train")
            moving.communicate(timeout=120)
        eventually(lambda: self.cluster.pids("charlm-dp") == [], "no rank is left")
        self.settled()

    def kill(self, rank):
        self.start()
        with self.begin_slow_move() as moving:
            os.kill(self.cluster.rank_pid("train", rank), signal.SIGKILL)
            output, errors = moving.communicate(timeout=120)
        self.assertIn(moving.returncode, (1, 2, 4), output + errors)
        ended = self.cluster.run("wait", "train")
        self.assertNotEqual(ended.returncode, 0)
        eventually(lambda: self.cluster.pids("charlm-dp") == [], "no rank is left")
        self.settled()
        return self.cluster.json("describe", "train")

    def test_death_of_a_staying_rank_during_a_move_ends_the_job(self):
        job = self.kill(0)
        self.assertIn("rank 0", job["reason"])

    def test_death_of_a_moving_rank_ends_the_job(self):
        job = self.kill(3)
        self.assertIn("rank 3", job["reason"])


@unittest.skipUnless((EXAMPLES / "charlm-dp").exists(), "there was no nccl.h")
class GangMovesWithCommunicatorsInPause(SlowCommunicatorsTest):
    """Nothing uses the old communicators while the new ones are made: all ranks are held."""
    rank_3 = ("--rank", "3", "--communicators", "in-pause")

    def test_pause_includes_the_time_to_create_communicators(self):
        self.start()
        self.faults_of_nccl.write_text("init-delay 3000\n")
        self.migrate(*self.rank_3, "--to", "node-c", "--max-downtime", "10s", *SWITCH)
        self.settled()
        report = self.report()
        self.assertEqual(report["communicators"], "in-pause")
        self.assertGreater(report["downtime_breakdown_ms"]["communicators"], 1000, report)
        self.assertGreater(report["downtime_ms"], 1500)
        eventually(lambda: len(self.report()["staying"]) == 3, "the ranks that stayed have reported")
        for rank in self.report()["staying"]:
            self.assertGreater(rank["pause_ms"], 1500, rank)
            self.assertGreater(rank["communicators_ms"], 1000, rank)
        self.check_metrics()
        self.migrate(*self.rank_3, "--to", "node-a", "--max-downtime", "10s", *SWITCH)
        self.settled()
        self.assertGreater(self.report()["estimate_breakdown_ms"]["communicators"], 1000, "known from the move before")
        self.check_end()

    def check_metrics(self):
        page = ask(self.cluster.home, "/metrics")[1]
        for series, count in (('gpumigrate_staying_rank_pause_seconds_count{communicators="in_pause"}', 3),
                              ('gpumigrate_communicators_seconds_count{communicators="in_pause",rank="stayed"}', 3),
                              ('gpumigrate_communicators_seconds_count{communicators="in_pause",rank="moved"}', 1),
                              ('gpumigrate_staying_rank_pause_seconds_count{communicators="overlap"}', 0)):
            self.assertIn(f"\n{series} {count}\n", page)

    def test_long_copy_does_not_make_staying_ranks_count_as_silent(self):
        self.start()
        self.migrate(*self.rank_3, "--to", "node-c", "--max-downtime", "10s", *SWITCH, "--bandwidth", "128KiB/s")
        self.settled()
        report = self.report()
        self.assertGreater(report["total_ms"] - report["downtime_ms"], 3500, "the copy ahead took too short for this test")
        self.check_end()

    def test_limit_of_the_pause_includes_the_creation_of_communicators(self):
        self.start()
        before = self.gpus_of_job()
        limited = (*self.rank_3, "--max-downtime", "2s", "--if-not-converged", "abort", "--to")
        self.faults_of_nccl.write_text("init-delay 8000\n")
        failed = self.cluster.run("migrate", "train", *limited, "node-c")
        self.assertNotEqual(failed.returncode, 0, "nobody knew how long they take, and it was too long")
        self.assertIn("communicators", failed.stderr + failed.stdout)
        self.settled()
        self.assertEqual(self.gpus_of_job(), before)
        self.faults_of_nccl.write_text("init-delay 2500\n")
        self.migrate("--rank", "3", "--to", "node-c")
        self.settled()
        known = self.cluster.run("migrate", "train", *limited, "node-a")
        self.assertNotEqual(known.returncode, 0)
        self.assertRegex(known.stderr + known.stdout, "communicators took [0-9]+ ms")
        self.check_end()

    def test_endless_creation_of_communicators_ends_the_pause(self):
        self.start()
        before = self.gpus_of_job()
        self.faults_of_nccl.write_text("init-endless\n")
        failed = self.cluster.run("migrate", "train", *self.rank_3, "--to", "node-c", "--timeout", "6s")
        self.assertNotEqual(failed.returncode, 0)
        self.assertIn("communicators", failed.stderr + failed.stdout)
        self.settled()
        self.assertEqual(self.gpus_of_job(), before)
        step = self.last_step()
        eventually(lambda: self.last_step() > step, "the ranks compute again")
        self.faults_of_nccl.write_text("")
        self.migrate(*self.rank_3, "--to", "node-c", "--max-downtime", "10s", *SWITCH)
        self.settled()
        self.check_end()

    def dies_while_they_are_made(self, kill, fault="init-delay 8000"):
        """All ranks are held, and wait for each other."""
        self.faults_of_nccl.write_text(fault + "\n")
        with self.cluster.popen("migrate", "train", *self.rank_3, "--to", "node-c", "--max-downtime", "20s",
                                *SWITCH) as moving:
            eventually(lambda: self.cluster.json("describe", "train")["ranks"][0]["state"] == "paused", "rank 0 is held")
            kill()
            moving.communicate(timeout=120)
        self.settled()
        self.faults_of_nccl.write_text("")
        step = self.last_step()
        eventually(lambda: self.last_step() > step, "the ranks compute again", 60)
        eventually(lambda: len(self.cluster.pids("charlm-dp")) == 4, "no rank is there twice")

    def kill_and_start_again(self, word):
        self.cluster.kill(word)
        self.cluster.up()

    def test_daemon_crash_during_the_creation_of_communicators_fails_at_most_the_move(self):
        self.start()
        for word in ("nodes/node-a/agent.toml", "nodes/node-b/agent.toml", "nodes/node-c/agent.toml", "gpumigrate-coordinator",
                     "gpumigrate-mover"):
            with self.subTest(word):
                self.dies_while_they_are_made(lambda: self.kill_and_start_again(word))
                if self.cluster.json("describe", "train")["ranks"][3]["node"] != "node-b":
                    self.migrate("--rank", "3", "--to", "node-b")
                    self.settled()
        self.check_end()

    def test_drain_creates_communicators_as_configured_at_the_start_of_the_job(self):
        self.start("--communicators", "in-pause")
        self.cluster.call("drain", "node-b")
        self.settled()
        self.assertEqual({self.report(rank)["communicators"] for rank in (2, 3)}, {"in-pause"})
        self.check_end()

    def test_abort_during_the_creation_of_communicators_ends_the_pause(self):
        self.start()
        before = self.gpus_of_job()

        def abort():
            self.cluster.call("abort", "train")
        self.dies_while_they_are_made(abort, "init-endless")
        self.assertEqual(self.gpus_of_job(), before)
        self.check_end()

    def test_communicators_are_created_before_the_pause_if_all_ranks_move(self):
        self.start()
        self.migrate("--to", "node-c", "--communicators", "in-pause")
        self.settled()
        self.assertEqual(self.report(0)["communicators"], "overlap")
        self.check_end()


if __name__ == "__main__":
    unittest.main()
