# SPDX-License-Identifier: Apache-2.0
"""Several clients do what they like to six jobs on three nodes, by a seed, while agents, movers, keepers and
the coordinator are killed. Every command ends, most are accepted, each job has one instance or none that was
asked for, and what was not stopped ends with the digest of an unmoved run.

RANDOM_MIX_SECONDS: how long (60). RANDOM_MIX_SEED: the seed to repeat; else one is drawn and printed."""
import itertools
import os
import pathlib
import random
import re
import subprocess
import time
import unittest

from cluster import BIN, ClusterTest, CommandError, final_object, run_unmoved
from mixing import Mix, NODES, Witness, instances_in_turn
from waiting import eventually

SECONDS = int(os.environ.get("RANDOM_MIX_SECONDS", "60"))
SEED = os.environ.get("RANDOM_MIX_SEED") or str(random.SystemRandom().randrange(10**6))
CLIENTS = 5
STEPS, STEP_MS = 500, 50
ALL_END_WITHIN_S = 300
LEFT_ALONE_WITHIN_S = 60
OVER = ("exited", "failed", "lost")


class RandomMix(ClusterTest):
    nodes, gpus, memory = 3, 2, "1GiB"

    def wait_for(self, what, condition, seconds=LEFT_ALONE_WITHIN_S):
        try:
            eventually(condition, "", seconds)
        except AssertionError:
            self.wrong.append(what() if callable(what) else what)

    def memory_files(self):
        """How many memory files each agent holds."""
        found = {}
        for node in NODES:
            for agent in self.cluster.pids(f"nodes/{node}/agent.toml"):
                links = [os.readlink(link) for link in pathlib.Path(f"/proc/{agent}/fd").iterdir()
                         if link.is_symlink()]
                found[node] = sum(link.startswith("/memfd:") for link in links)
        return found

    def processes_of(self, names):
        """{name: pids} of the jobs that have any."""
        found = {}
        for pid in self.cluster.processes():
            try:
                environment = pathlib.Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
                program = pathlib.Path(os.readlink(f"/proc/{pid}/exe")).parent.name
            except OSError:
                continue
            if program != "examples":
                continue
            for name in names:
                if f"MIX_JOB={name}".encode() in environment:
                    found.setdefault(name, []).append(pid)
        return found

    def let_all_end(self):
        """No process is killed any more. Parked jobs go on, and all end by themselves."""
        try:
            self.cluster.up()
        except CommandError as error:
            self.fail(f"{error}\n{self.mix.threads_of_agents()}")
        for node in NODES:
            self.cluster.run("uncordon", node)
        deadline = time.monotonic() + ALL_END_WITHIN_S
        asked = {}
        while time.monotonic() < deadline:
            jobs = {job["name"]: job for job in self.cluster.json("jobs")}
            open_jobs = {name: job for name, job in jobs.items() if job["state"] not in OVER}
            if not open_jobs:
                return jobs
            for name, job in open_jobs.items():
                if job["state"] == "parked":
                    asked[name] = self.cluster.run("resume", name).stderr.strip()
            time.sleep(0.5)
        for name in open_jobs:
            self.wrong.append(f"{name} has not ended {ALL_END_WITHIN_S} s after the last kill: {open_jobs[name]}\n"
                              f"{asked.get(name, '')}\n{self.cluster.run('describe', name).stdout}\n{self.mix.history(name)}")
        return jobs

    def check_end(self, name, job, expected):
        """As the unmoved run, unless a client asked for its end, or its keeper was killed."""
        if job["state"] == "exited" and job["exit_code"] == 0:
            digest = final_object(self.cluster.log(name))["digest"]
            if digest != expected:
                self.wrong.append(f"{name} ends with {digest} and not {expected}\n{self.mix.history(name)}")
        elif name not in self.mix.stopped | self.mix.keeper_killed:
            self.wrong.append(f"{name} is {job['state']}, which nobody asked for: {job}\n{self.mix.history(name)}\n{self.cluster.log(name)[-500:]}")

    def moves_that_went_back(self, name):
        log = (pathlib.Path(self.cluster.home) / "coordinator/coordinator.log").read_text()
        return len(re.findall(rf"migration-ended migration \S+ of {re.escape(name)} is restored", log))

    def check_instances(self, name, job, witness):
        """One after the other: each goes on where the one before it ended, or, if it was restored, before
        that."""
        turns, wrong = instances_in_turn(witness.spoken(job["id"]))
        folders = [turn[0] for turn in turns]
        # A target ran and exited before its source was released. The source then continues from the barrier,
        # and the migration ends as restored.
        gone_back = self.moves_that_went_back(name)
        again = [folder for folder in folders if folders.count(folder) > 1]
        if len(again) - len(set(again)) > gone_back:
            wrong.append(f"{', '.join(sorted(set(again)))} speak again after another, by {gone_back} migrations "
                         "that ended as restored")
        # A restore that was requested before a snapshot ended uses the image before that snapshot. The next
        # restore goes forward to the snapshot.
        reached = list(itertools.accumulate((turn[2] for turn in turns), max))
        pairs = list(zip(turns, turns[1:], reached))
        lost = [(before, after) for before, after, most in pairs if after[1] > most + 1]
        back = [(before, after) for before, after, most in pairs if after[1] <= most
                and after[1] != before[2] + 1]
        wrong += [f"steps are missing between {before} and {after}" for before, after in lost]
        if len(back) > self.mix.restored[name] + gone_back:
            wrong.append(f"another step came next {len(back)} times by {self.mix.restored[name]} restores and "
                         f"{gone_back} migrations that ended as restored")
        if wrong:
            self.wrong.append(f"{name} ({job['id']}): {'; '.join(wrong)}\n" + "\n".join(map(str, turns))
                              + "\n" + self.mix.history(name))

    @staticmethod
    def facts_of(pid):
        """Why a process may still be there: its command, where it waits, its children and what it has
        open."""
        found = [str(pid)]
        for command in (["cat", f"/proc/{pid}/cmdline"], ["cat", f"/proc/{pid}/wchan"],
                        ["pstree", "-ap", str(pid)], ["ls", "-l", f"/proc/{pid}/fd"],
                        ["sh", "-c", f"for p in {pid} $(pgrep -P {pid}); do grep -EH 'State|TracerPid|Pnd|NSpgid'"
                         " /proc/$p/status; done; pgrep -a criu"]):
            found.append(subprocess.run(command, capture_output=True, text=True,
                                        check=False).stdout.replace("\0", " ").strip())
        return "\n".join(found)

    def check_leftovers(self, jobs, memory_files):
        self.wait_for(lambda: f"processes of jobs that have ended: {self.processes_of(jobs)}",
                      lambda: not self.processes_of(jobs))
        self.wait_for(lambda: f"keepers of jobs that have ended: {list(map(self.facts_of, self.cluster.pids('gpumigrate-keeper')))}",
                      lambda: not self.cluster.pids("gpumigrate-keeper"))
        self.wait_for(lambda: f"memory files of agents: {self.memory_files()}, at first {memory_files}",
                      lambda: all(self.memory_files().get(node, 0) <= memory_files[node] for node in NODES))
        ids = [job["id"] for job in jobs.values()]
        self.wait_for(lambda: f"in /dev/shm: {os.listdir('/dev/shm')}",
                      lambda: not any(job + "." in name for job in ids for name in os.listdir("/dev/shm")))

    def print_shares(self):
        print(f"seed {SEED}, {SECONDS} s, killed: {dict(self.mix.killed)}, jobs: {sum(self.mix.generation.values())}")
        for verb, (count, accepted, refused, away, codes) in self.mix.shares().items():
            print(f"  {verb:9} {count:4} asked, {accepted:4} accepted, {refused:3} refused, {away:3} while the coordinator was away; exit codes {codes}",
                  flush=True)

    def test_jobs_survive_a_random_mix_of_operations(self):
        print(f"RANDOM_MIX_SEED={SEED} RANDOM_MIX_SECONDS={SECONDS} {self.cluster.home}", flush=True)
        self.wrong = []
        memory_files = self.memory_files()
        self.mix = mix = Mix(self.cluster, SEED, SECONDS, CLIENTS, STEPS, STEP_MS)
        expected = {slot.name: run_unmoved(slot.program, *map(str, [*slot.arguments, *slot.fast]))["digest"]
                    for slot in mix.slots}
        mix.ends_at = time.monotonic() + SECONDS
        witness = Witness(self.cluster)
        witness.start()
        self.addCleanup(witness.close)
        mix.run()
        self.print_shares()
        for hung in mix.hung:
            self.wrong.append(f"did not end: {hung}\n{self.cluster.run('describe', hung.job or '-', '-o', 'json').stdout}\n{mix.history(hung.job)}\n"
                              + (self.cluster.home / "coordinator/coordinator.log").read_text()[-4000:])
        self.wrong += mix.broken
        jobs = self.let_all_end()
        witness.over.set()
        witness.join()
        witness.look()
        for name, job in jobs.items():
            if job["state"] in OVER:
                self.check_end(name, job, expected[mix.slot_of[name].name])
            self.check_instances(name, job, witness)
        self.check_leftovers(jobs, memory_files)
        if os.environ.get("GPUMIGRATE_KEEP"):
            (self.cluster.home / "history").write_text(mix.history())
        shares = mix.shares()
        moves = [shares[verb] for verb in ("migrate", "snapshot")]
        reached = sum(count - away for count, _, _, away, _ in moves)
        if sum(accepted for _, accepted, _, _, _ in moves) * 2 <= reached:
            self.wrong.append(f"most were refused: {shares}\n{mix.history()}")
        self.cluster.run("local", "down")
        if left := self.cluster.processes():
            self.wrong.append(f"left after `local down`: {left}")
        self.assertFalse(self.wrong, "\n\n".join(self.wrong))
