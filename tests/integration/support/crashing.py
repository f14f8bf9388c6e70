# SPDX-License-Identifier: Apache-2.0
"""Crash points: waiting until one has fired, and (TransparentCrashes) a chain of them in one life of an
unmodified program. Whichever process dies, the migration ends in a state that the API names, one instance
runs, and the next move begins there."""
import ctypes
import os
import pathlib
import re
import select
import signal

from cluster import EXAMPLES, ClusterTest, run_unmoved
from waiting import eventually
from fault_points import Point

TRAINING = ["--params", "60000", "--seed", "5", "--print-every", "1"]
STEP_MS = 8  # the minimum duration of a step; changes no digest
SOURCE, TARGET, EITHER = "source", "target", None
STEPS_TO_A_POINT = 300  # half of the steps are slow: 15 s
MOVES_TO_A_POINT = 4


class CrashingTest(ClusterTest):
    def daemons_of(self, role):
        """Process descriptors of what `local up` starts again; movers, keepers and helpers are their agent's
        business."""
        kind, _, node = role.partition(".")
        words = {"agent": f"nodes/{node}/agent.toml", "coordinator": "gpumigrate-coordinator"}
        return [os.pidfd_open(pid) for pid in self.cluster.pids(words[kind])] if kind in words else []

    def wait_until_dead(self, victims):
        """A crash point's file goes away just before its process does."""
        for victim in victims:
            ended, _, _ = select.select([victim], [], [], 60)
            os.close(victim)
            self.assertTrue(ended, "the process lives on after its crash point")

    def wait_until_fired(self, role, number, command=None):
        ended = self.ended_without(role, number, command)
        if ended:
            self.fail(f"the migration ended without reaching {role} {number}: {ended}")

    def ended_without(self, role, number, command):
        """Waits for the point. The end of the command's output if it has ended without it; else nothing.

        The armed file goes away when the process dies. Once the command has ended the point has ten seconds
        more: the last messages of a move may reach a daemon after its end has been reported."""
        libc = ctypes.CDLL(None, use_errno=True)
        watch = libc.inotify_init1(os.O_CLOEXEC)
        libc.inotify_add_watch(watch, str(self.cluster.faults).encode(), 0x200)  # the value of IN_DELETE
        ended = os.pidfd_open(command.pid) if command else os.dup(watch)
        awaited, limit_s = [watch, ended], 60
        try:
            while not self.cluster.fired(role, number):
                ready, _, _ = select.select(awaited, [], [], limit_s)
                if not ready and ended not in awaited:
                    output, errors = command.communicate()
                    return f"{output[-500:]} {errors[-500:]}"
                self.assertTrue(ready, "the crash point was not reached in a minute")
                if command and ended in ready:
                    awaited, limit_s = [watch], 10
                if watch in ready:
                    os.read(watch, 4096)
        finally:
            os.close(watch)
            os.close(ended)
        self.cluster.wait_until_it_stands(role, number)
        return None

    def move_until_fired(self, role, number, source="node-a", target="node-b"):
        """Moves "job" live until the point is reached, and returns that move's command. A move need not reach
        one where its agent receives what its mover sends last: the switch does not wait for that."""
        for _ in range(MOVES_TO_A_POINT):
            moved = self.cluster.popen("migrate", "job", "--to", target, "--live", "-o", "json", "--timeout",
                                       "60s")
            ended = self.ended_without(role, number, moved)
            if not ended:
                return moved
            self.cluster.migrate("job", source)
        self.fail(f"{MOVES_TO_A_POINT} migrations ended without reaching {role} {number}, the last: {ended}")


class TransparentCrashes(CrashingTest):
    """`places`: where the job goes there and back, as `migrate --to` takes it."""
    places = ()

    def start_training(self, steps, step_ms=STEP_MS):
        """It must last for all that is to happen to it: it makes no step in less than `step_ms`."""
        self.steps = steps
        self.cluster.start("job", "charlm-plain", *TRAINING, "--steps", steps, "--step-ms", step_ms,
                           node=self.places[0], way=())
        self.cluster.wait_for_line("job", r"^step 5\b")

    def running_place(self):
        """Where it is once it makes steps again: a migration has failed a moment before the source goes
        on."""
        done = max((int(step) for step in re.findall(r"^step (\d+)\b", self.cluster.log("job"), re.M)),
                   default=0)
        self.cluster.wait_for_line("job", rf"^step {done + 2}\b")
        # The job's steps may be visible before its agent's report.
        eventually(lambda: self.cluster.job("job")["state"] != "paused", "the job is reported as running")
        return self.place()

    def place(self):
        job = self.cluster.job("job")
        self.assertEqual(job["state"], "running", job)
        here = f"{job['node']}:{job['gpu']}"
        return here if here in self.places else job["node"]

    def role_of(self, role, source, target):
        """`agent.source` -> `agent.node-a`, `mover.target` -> `mover.node-b.0`; others stay."""
        kind, _, side = role.partition(".")
        if side not in ("source", "target"):
            return role
        node, _, gpu = (source if side == "source" else target).partition(":")
        return f"agent.{node}" if kind == "agent" else f"mover.{node}.{gpu or 0}"

    def crash(self, points):
        """One job through all of `points`: (role, number, where the job must be afterwards)."""
        self.start_training(STEPS_TO_A_POINT * (len(points) + 2))
        for role, number, ends_on in points:
            with self.subTest(role=role, number=number):
                print(f"  {role} {number}:", end="", flush=True)
                self.crash_once(role, number, ends_on)
        self.finish_training()

    def crash_once(self, role, number, ends_on, then=()):
        """`then`: further points (role, number) that are reached later in the same migration."""
        cluster = self.cluster
        source = self.place()
        target = next(place for place in self.places if place != source)
        crashes = [(self.role_of(role, source, target), number) for role, number in ((role, number), *then)]
        for crash in crashes:
            cluster.arm(*crash)
        victims = {crash: self.daemons_of(crash[0]) for crash in crashes}
        moved = cluster.popen("migrate", "job", "--to", target, "-o", "json", "--timeout", "60s")
        for crash in crashes:
            # The victim exits before the job has returned.
            self.wait_until_fired(*crash, moved if crash == crashes[0] else None)
            self.wait_until_dead(victims[crash])
            # Victims that `local up` does not restart need no call. The call would also fail while the next
            # victim is about to exit, since it would find that victim missing.
            if victims[crash]:
                cluster.up()
        self.check_outcome(moved, source, target, ends_on)

    def agent_dies_while_the_rank_is_busy(self):
        """The agent asks for Release or Map, and its successor finds the rank at it."""
        self.start_training(2500)
        for side, number, ends_on in (("source", Point.RANK_RELEASED, SOURCE),
                                      ("target", Point.RANK_MAPPED, TARGET)):
            with self.subTest(number=number):
                print(f"  rank {number}, agent.{side}:", end="", flush=True)
                source = self.place()
                target = next(place for place in self.places if place != source)
                agent = self.daemons_of(self.role_of("agent." + side, source, target))
                self.cluster.arm("rank.j1.fresh", number, "stop")
                moved = self.cluster.popen("migrate", "job", "--to", target, "-o", "json", "--timeout", "60s")
                self.wait_until_fired("rank.j1.fresh", number, moved)
                signal.pidfd_send_signal(agent[0], signal.SIGKILL)
                self.wait_until_dead(agent)
                for pid in self.instances():
                    os.kill(pid, signal.SIGCONT)
                self.cluster.up()
                self.check_outcome(moved, source, target, ends_on)
        self.finish_training()

    def abort_at(self, points):
        """An abort that comes while the source's agent is held at the point."""
        self.start_training(2500)
        for number, ends_on in points:
            with self.subTest(abort_at=number):
                print(f"  abort at agent {number}:", end="", flush=True)
                source = self.place()
                target = next(place for place in self.places if place != source)
                agent = self.role_of("agent.target" if number // 100 == 2 else "agent.source", source, target)
                held = self.daemons_of(agent)
                self.cluster.arm(agent, number, "stop")
                moved = self.cluster.popen("migrate", "job", "--to", target, "-o", "json", "--timeout", "60s")
                self.wait_until_fired(agent, number, moved)
                aborted = self.cluster.popen("abort", self.cluster.json("migrations")[0]["id"])
                eventually(lambda: aborted.poll() is not None
                           or self.cluster.json("migrations")[0]["abort_requested"], "the abort is recorded")
                signal.pidfd_send_signal(held[0], signal.SIGCONT)
                os.close(held[0])
                aborted.communicate(timeout=120)
                self.check_outcome(moved, source, target, ends_on)
        self.finish_training()

    def check_outcome(self, moved, source, target, ends_on):
        """The command must end with one of these codes: 0 moved, 1, 2 and 5 (refused) at the source, 6
        contact lost."""
        output, errors = moved.communicate(timeout=120)
        self.assertIn(moved.returncode, (0, 1, 2, 5, 6), output + errors)
        cluster = self.cluster
        last = cluster.json("migrations")[0]["id"]
        cluster.call("watch", last, exits=(0, 1, 2, 5))
        migration = cluster.json("migrations")[0]
        self.assertFalse(migration["open"], migration)
        self.assertIn(migration["result"], ("done", "failed", "refused", "timed-out", "interrupted"),
                      migration)
        there = self.running_place()
        self.assertEqual(there, target if migration["result"] == "done" else source, migration)
        if ends_on is not EITHER:
            self.assertEqual(there, target if ends_on == TARGET else source, migration)
        # The process at the other side exits shortly after the move.
        eventually(lambda: len(self.instances()) == 1, "the job has one process")
        print(f" {migration['result']}, goes on at {there}", flush=True)
        return migration

    def instances(self):
        """Processes of this home that run the program itself."""
        program = (EXAMPLES / "charlm-plain").resolve()
        found = []
        for pid in self.cluster.processes():
            try:
                if pathlib.Path(f"/proc/{pid}/exe").resolve() == program:
                    found.append(pid)
            except OSError:
                continue
        return found

    def finish_training(self):
        ended = self.cluster.finish("job")
        self.assertEqual(ended["digest"], run_unmoved("charlm-plain", *TRAINING, "--steps",
                                                      str(self.steps))["digest"])
        self.assert_steps_in_order(self.cluster.log("job"))
        self.assertEqual(self.instances(), [], "an instance is left over")
