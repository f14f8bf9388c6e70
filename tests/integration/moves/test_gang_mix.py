# SPDX-License-Identifier: Apache-2.0
"""Operators do what they like to one job of four ranks on three nodes, by a seed, while agents, movers and the coordinator
are killed. Each command ends, the ranks run on as a whole after each, and the digests at the end are those of ranks that
nobody touched.

GANG_MIX_SECONDS: how long (25). GANG_MIX_SEED: the seed to repeat; else one is drawn and printed."""
import contextlib
import os
import random
import signal
import time
import unittest
from collections import Counter

from cluster import EXAMPLES
from test_gang_moves import GangMovesTest
from waiting import eventually

SECONDS = int(os.environ.get("GANG_MIX_SECONDS", "25"))
SEED = os.environ.get("GANG_MIX_SEED") or str(random.SystemRandom().randrange(10**6))
NODES = ("node-a", "node-b", "node-c")
DAEMONS = (*(f"nodes/{node}/agent.toml" for node in NODES), "gpumigrate-coordinator", "gpumigrate-mover")
JOBS = (("charlm-dp", ()), ("charlm-dp", ("--shards",)), ("charlm-dp", ("--graphs",)), ("pipeline", ()))
SETTLED_WITHIN_S = 90
ONE_MORE_S = 60  # time to wait until a move is done, in seconds
# With this limit, the copy before the pause takes some seconds.
SLOW = ("--bandwidth", "96KiB/s", "--max-downtime", "30s", "--if-not-converged", "switch")


@unittest.skipUnless((EXAMPLES / "charlm-dp").exists(), "there was no nccl.h")
class GangMix(GangMovesTest):
    def setUp(self):
        super().setUp()
        self.random = random.Random(SEED)
        self.history, self.codes = [], Counter()

    def order(self, *arguments, while_it_runs=None):
        """Its exit code and its words. 1, 2 and 5: not done, and the ranks run where they did; 6: it lost contact."""
        begun = time.monotonic()
        with self.cluster.popen(*arguments) as command:
            if while_it_runs:
                time.sleep(self.random.expovariate(0.3 if SLOW[0] in arguments else 4))
                while_it_runs()
            output, errors = command.communicate(timeout=180)
        self.history.append(f"{begun - self.begun:7.2f} {' '.join(map(str, arguments))}: {command.returncode} {errors.strip()[-200:]}")
        self.codes[arguments[0], command.returncode] += 1
        self.assertIn(command.returncode, (0, 1, 2, 5, 6), output + errors)
        return command.returncode

    def kill_daemon(self):
        wanted = self.random.choice(DAEMONS)
        pids = self.cluster.pids(wanted)
        if not pids:
            return
        self.history.append(f"{time.monotonic() - self.begun:7.2f} kill {wanted}")
        with contextlib.suppress(ProcessLookupError):
            victim = os.pidfd_open(self.random.choice(pids))
            signal.pidfd_send_signal(victim, signal.SIGKILL)
            self.wait_until_dead([victim])
        self.cluster.up()

    def abort(self):
        self.history.append(f"{time.monotonic() - self.begun:7.2f} abort: {self.cluster.run('abort', 'train').returncode}")

    def some_nodes(self, count):
        return ",".join(self.random.choices(NODES, k=count))

    def pace(self):
        return self.random.choice(((), (), (), SLOW))

    def migrate_some(self):
        ranks = sorted(self.random.sample(range(4), self.random.randint(1, 3)))
        to = self.random.choice(("auto", self.some_nodes(1), self.some_nodes(len(ranks))))
        disturb = self.random.choice((None, None, self.kill_daemon, self.abort))
        when = self.random.choice(((), (), ("--communicators", "in-pause")))
        self.order("migrate", "train", "--rank", ",".join(map(str, ranks)), "--to", to, *when, *self.pace(), while_it_runs=disturb)

    def migrate_all(self):
        self.order("migrate", "train", "--to", self.some_nodes(self.random.choice((1, 4))), *self.pace(),
                   while_it_runs=self.random.choice((None, self.kill_daemon)))

    def snapshot(self):
        self.order("snapshot", "train", while_it_runs=self.random.choice((None, self.kill_daemon)))

    def rest_and_go_on(self):
        self.order("suspend", "train", while_it_runs=self.random.choice((None, None, self.kill_daemon)))
        eventually(lambda: self.state() in ("running", "parked"), "it rests, or runs on", SETTLED_WITHIN_S)
        if self.state() == "parked":
            eventually(lambda: self.order("resume", "train") in (0, 6), "it goes on", SETTLED_WITHIN_S)

    def drain(self):
        node = self.random.choice(NODES)
        self.order("drain", node, while_it_runs=self.random.choice((None, self.kill_daemon)))
        eventually(lambda: self.cluster.run("uncordon", node).returncode == 0, f"{node} is open again")

    def state(self):
        return self.cluster.json("describe", "train")["state"]

    def runs_on(self):
        """As a whole: each rank prints another step."""
        self.settled()
        eventually(lambda: self.state() == "running", "it runs", SETTLED_WITHIN_S)
        before = [len(log) for log in self.logs()]
        eventually(lambda: all(len(log) > known for log, known in zip(self.logs(), before)), "all ranks compute", SETTLED_WITHIN_S)

    def test_jobs_survive_a_random_mix_of_operations(self):
        self.begun = time.monotonic()
        program, more = self.random.choice(JOBS)
        print(f"GANG_MIX_SEED={SEED} GANG_MIX_SECONDS={SECONDS} {program} {' '.join(more)} {self.cluster.home}", flush=True)
        self.start(options=("--ranks", "4", "--nodes", "node-a,node-b"), more=more, program=program, pace="--step-ms 40")
        actions = (self.migrate_some,) * 5 + (self.migrate_all, self.snapshot, self.rest_and_go_on, self.drain)
        try:
            while time.monotonic() < self.begun + (SECONDS if self.codes["migrate", 0] else SECONDS + ONE_MORE_S):
                self.random.choice(actions)()
                self.runs_on()
            self.check_end()
        except Exception:
            print("\n".join(self.history), flush=True)
            raise
        finally:
            print(dict(self.codes), flush=True)
        moved = self.codes["migrate", 0]
        self.assertGreater(moved, 0, "some moves were done:\n" + "\n".join(self.history))


if __name__ == "__main__":
    unittest.main()
