# SPDX-License-Identifier: Apache-2.0
"""A seeded random mix of operations on the jobs of a cluster by several clients at once, while its processes
are killed, and what must hold of it: every command ends within its limit with an exit code of its verb, and
each job's instances speak one after the other."""
import collections
import contextlib
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import threading
import time

from cluster import COMMAND_LIMIT_S, EXAMPLES, CommandError, wait_for_end

# The longest command waits for its turn, then moves, then waits for a coordinator that was killed.
COMMAND_ENDS_WITHIN_S = 240
NODES = ("node-a", "node-b", "node-c")
TRANSPARENT, COOPERATIVE = (), ("--cooperative",)
# The exit codes that the help of each verb names. The exit code 64 would mean an error in this file.
EXITS = {
    "run": (0, 5, 6), "migrate": (0, 1, 2, 3, 5, 6), "snapshot": (0, 1, 2, 5, 6), "suspend": (0, 1, 2, 5, 6),
    "resume": (0, 1, 2, 3, 5, 6),
    "restore": (0, 1, 2, 3, 5, 6), "stop": (0, 5, 6), "drain": (0, 1, 2, 3, 5, 6), "uncordon": (0, 5, 6)}
AWAY = re.compile(r"Cannot reach the coordinator|There is no coordinator at|Lost contact with the coordinator|is not connected")
LINE = re.compile(r"^(?:step|request) (\d+)\b.* at ([\d.]+)$", re.M)

Slot = collections.namedtuple("Slot", "name program way arguments pace fast")
Done = collections.namedtuple("Done", "began took client verb job arguments fitting exit message")


def slots(steps, step_ms):
    """One job at a time in each: (name, program, way, what the digest depends on, pace, pace of the unmoved
    run)."""
    def training(seed):
        return ["--params", "20000", "--steps", steps, "--seed", seed, "--print-every", "1"]

    def hotset(seed):
        return ["--bytes", "16MiB", "--hot", "4%", "--pattern", "random", "--steps", steps, "--seed", seed,
                "--print-every", "1"]

    pace, fast = ["--step-ms", step_ms, "--print-times"], ["--step-ms", 0]
    serve = ["--weights", "8MiB", "--cache", "8MiB", "--requests", steps, "--seed", "9", "--print-every", "1"]
    return [Slot("charlm", "charlm", COOPERATIVE, training(5), pace, fast),
            Slot("hot", "hotset", COOPERATIVE, hotset(6), pace, fast),
            Slot("serve", "serve", COOPERATIVE, serve, ["--request-ms", step_ms, "--print-times"], []),
            Slot("plain", "charlm-plain", TRANSPARENT, training(7), pace, fast),
            Slot("plain2", "charlm-plain", TRANSPARENT, training(8), pace, fast),
            Slot("bare", "hotset", TRANSPARENT, [*hotset(10), "--without-ckpt"], pace, fast)]


class Witness(threading.Thread):
    """Opens the log of every instance as it appears, so that one whose folder is removed is read, too."""

    def __init__(self, cluster):
        super().__init__(daemon=True)
        self.cluster, self.files, self.over = cluster, {}, threading.Event()

    def run(self):
        while not self.over.wait(0.1):
            self.look()

    def look(self):
        for path in self.cluster.home.glob("nodes/*/jobs/j*/out.log"):
            with contextlib.suppress(OSError):
                # A removed folder may be created again, for another instance.
                key = (path, path.stat().st_ino)
                if key not in self.files:
                    self.files[key] = path.open("rb")

    def close(self):
        self.over.set()
        self.join()
        for file in self.files.values():
            file.close()

    def spoken(self, job_id):
        """[(time, folder of the instance, step)] of all instances, in the order of time."""
        found = []
        for (path, inode), file in self.files.items():
            if path.parent.name.split(".")[0] != job_id:
                continue
            text = os.pread(file.fileno(), os.fstat(file.fileno()).st_size, 0).decode(errors="replace")
            folder = f"{path.parts[-4]}/{path.parent.name} ({inode})"
            found += [(float(at), folder, int(step)) for step, at in LINE.findall(text)]
        return sorted(found)


def instances_in_turn(spoken):
    """[(folder, first step, last step, when it began)], one for each time that another instance begins to
    speak; steps missing or repeated within one."""
    turns, wrong = [], []
    for at, folder, step in spoken:
        if turns and turns[-1][0] == folder:
            if step != turns[-1][2] + 1:
                wrong.append(f"{folder} goes from step {turns[-1][2]} to {step}")
            turns[-1][2] = step
        else:
            turns.append([folder, step, step, at])
    return [tuple(turn) for turn in turns], wrong


class Mix:
    """The clients and the killer. After run(): `done`, `hung`, and what is known of each job that was
    begun."""

    def __init__(self, cluster, seed, seconds, clients, steps, step_ms):
        self.cluster, self.seed, self.clients = cluster, seed, clients
        self.slots = slots(steps, step_ms)
        self.ends_at = time.monotonic() + seconds
        self.began = time.time()
        self.lock = threading.Lock()
        self.draining = threading.Lock()  # only one drain runs at a time, since the drained jobs need another
                                          # node
        self.generation = collections.Counter()
        self.slot_of = {}  # slots by the names of their jobs
        self.beginning = {}
        self.here = threading.Event()  # set while the coordinator runs or has been restarted
        self.here.set()
        self.stopped, self.keeper_killed, self.restored = set(), set(), collections.Counter()
        self.done, self.hung, self.broken, self.killed = [], [], [], collections.Counter()

    # ---- commands ----

    def command(self, client, verb, job, *arguments, fitting=True):
        """One command to its end, by its limit."""
        began = time.time() - self.began
        try:
            result = self.cluster.run(verb, *arguments, limit=COMMAND_ENDS_WITHIN_S)
            code, output, errors = result.returncode, result.stdout, result.stderr
        except subprocess.TimeoutExpired:
            code, output, errors = None, "", f"did not end within {COMMAND_ENDS_WITHIN_S} s"
        message = errors.strip().split("\n")[-1]
        done = Done(began, time.time() - self.began - began, client, verb, job, arguments, fitting, code,
                    message)
        with self.lock:
            self.done.append(done)
            if code is None:
                self.hung.append(done)
            elif code not in EXITS[verb]:
                self.broken.append(f"{verb} {' '.join(map(str, arguments))} ends with {code}: {output[-300:]} {errors[-500:]}")
        return done

    def jobs(self):
        """The jobs that the coordinator lists, or None while it is away."""
        with contextlib.suppress(subprocess.TimeoutExpired, ValueError):
            return json.loads(self.cluster.run("jobs", "-o", "json").stdout)
        return None

    def begin(self, client, slot):
        with self.lock:
            self.generation[slot.name] += 1
            name = f"{slot.name}-{self.generation[slot.name]}"
            self.slot_of[name] = slot
        self.command(client, "run", name, *slot.way, "--detach", "--name", name, "--env", f"MIX_JOB={name}",
                     "--env",
                     f"CKPT_FAULT_DIR={self.cluster.faults}", "--", EXAMPLES / slot.program, *slot.arguments,
                     *slot.pace)

    def drain(self, client, chance):
        if not self.draining.acquire(blocking=False):
            return
        try:
            node = chance.choice(NODES)
            self.command(client, "drain", None, node, "--deadline", "20s")
            self.command(client, "uncordon", None, node)
        finally:
            self.draining.release()

    def place(self, job, chance):
        """Where to; a process moves between nodes as root only."""
        if job["mode"] == "transparent" and os.geteuid() != 0:
            return f"{job['node']}:{1 - (job['gpu'] or 0)}"
        return chance.choice(["auto", *(f"{node}:{gpu}" for node in NODES for gpu in (0, 1)
                                        if (node, gpu) != (job["node"], job["gpu"]))])

    def act(self, client, job, chance):
        name, state = job["name"], job["state"]
        running, parked = state == "running", state == "parked"
        if running:
            verb = chance.choices(["migrate", "snapshot", "suspend", "restore", "stop"],
                                  [50, 25, 12, 9, 4])[0]
        elif parked:
            verb = chance.choices(["resume", "restore", "stop", "migrate"], [80, 14, 3, 3])[0]
        else:  # an operation is in progress
            verb = chance.choices(["migrate", "snapshot", "suspend", "resume", "restore", "stop"],
                                  [40, 20, 10, 10, 15, 5])[0]
        arguments = [name]
        if verb == "migrate":
            arguments += ["--to", self.place(job, chance), chance.choice(["--live", "--live", "--stop-copy"]),
                          "--timeout", "60s"]
        elif verb in ("resume", "restore") and chance.random() < 0.5:
            arguments += ["--to", chance.choice(NODES)]
        elif verb in ("snapshot", "suspend") and chance.random() < 0.5:
            arguments += ["--to", chance.choice([*NODES, str(self.cluster.home / "vault") + "/"])]
        elif verb == "stop":
            arguments += ["--grace", chance.choice(["0s", "1s", "5s"])]
        if verb == "restore":
            arguments.append("--accept-loss")
        with self.lock:
            if verb == "stop":
                self.stopped.add(name)
            elif verb == "restore":
                self.restored[name] += 1
        self.command(client, verb, name, *arguments,
                     fitting=running or (parked and verb in ("resume", "restore", "stop")))

    def client(self, number):
        """Takes a job by chance and does something to it; begins a new one where one has ended."""
        chance = random.Random(f"{self.seed}/client/{number}")
        while time.monotonic() < self.ends_at:
            if chance.random() < 0.8:  # otherwise a client calls the coordinator while the coordinator is
                                       # down
                self.here.wait(self.ends_at - time.monotonic())
            if chance.random() < 0.04:
                self.drain(number, chance)
                continue
            slot = chance.choice(self.slots)
            jobs = self.jobs()
            if jobs is None:
                continue
            current = next((job for job in jobs
                            if job["name"] == f"{slot.name}-{self.generation[slot.name]}"), None)
            ended = current is None or current["state"] in ("exited", "failed", "lost")
            if not ended:
                self.act(number, current, chance)
            elif current is not None and current["name"] in self.keeper_killed and chance.random() < 0.5:
                self.act(number, dict(current, state="parked"), chance)
            else:
                self.begin_if_none_begins(number, slot, current)

    def begin_if_none_begins(self, client, slot, current):
        """Begins the slot's next job. If two clients see the same end, one of them begins it."""
        with self.lock:
            name = current["name"] if current else None
            newest = f"{slot.name}-{self.generation[slot.name]}"
            if name not in (newest, None) or self.beginning.get(slot.name) == newest:
                return
            self.beginning[slot.name] = newest
        self.begin(client, slot)

    # ---- processes that are killed ----

    def killer(self):
        chance = random.Random(f"{self.seed}/killer")
        while time.monotonic() < self.ends_at - 5:
            time.sleep(chance.uniform(0.5, 3))
            kinds = chance.choices(["agent", "mover", "coordinator", "keeper"], [35, 35, 22, 8],
                                   k=chance.choice([1, 1, 1, 2, 3]))
            try:
                for kind in kinds:
                    self.kill(kind, chance)
                if "agent" in kinds or "coordinator" in kinds:
                    time.sleep(chance.choice([0, 0, 0.5, 2]))
                    self.cluster.up()
            # The clients continue, and the test fails.
            except (CommandError, subprocess.TimeoutExpired, OSError) as error:
                with self.lock:
                    self.broken.append(f"killing {kinds}: {error}\n{self.threads_of_agents()}")
            finally:
                self.here.set()

    def threads_of_agents(self):
        """Whether each agent is stopped or traced, and where its threads wait: one of them may serve nothing."""
        found = []
        for pid in self.cluster.pids("agent.toml"):
            with contextlib.suppress(OSError):
                status = pathlib.Path(f"/proc/{pid}/status").read_text().split("\n")
                found += [f"{pid} {line}" for line in status if line.startswith(("State:", "TracerPid:"))]
            for thread in sorted(pathlib.Path(f"/proc/{pid}/task").iterdir()):
                for name in ("comm", "wchan", "syscall", "stack"):
                    with contextlib.suppress(OSError):
                        found.append(f"{thread}/{name}: {(thread / name).read_text().strip()}")
        return "\n".join(found)

    def kill(self, kind, chance):
        word = {"agent": f"nodes/{chance.choice(NODES)}/agent.toml"}.get(kind, f"gpumigrate-{kind}")
        found = sorted((pid, command) for pid, command in self.cluster.processes().items() if word in command)
        if not found:
            return
        pid, command = chance.choice(found)
        if kind == "keeper":
            # The client that the keeper was started for; its resources end with the keeper.
            whose = re.search(r"/jobs/(j[^./]+)\.", command)
            job = next((job for job in self.jobs() or () if whose and job["id"] == whose.group(1)), None)
            if job is None:
                return
            with self.lock:
                self.keeper_killed.add(job["name"])
        if kind == "coordinator":
            self.here.clear()
        with contextlib.suppress(ProcessLookupError):
            process = os.pidfd_open(pid)
            os.kill(pid, signal.SIGKILL)
            wait_for_end(process, COMMAND_LIMIT_S)
            os.close(process)
            with self.lock:
                self.killed[kind] += 1
                self.done.append(Done(time.time() - self.began, 0, "killer", f"({kind} {pid})", None,
                                      (command[:120],), False, 0, ""))

    # ---- the whole run ----

    def run(self):
        self.began = time.time()
        for slot in self.slots:
            self.begin("first", slot)
        threads = [threading.Thread(target=self.client, args=(number,)) for number in range(self.clients)]
        threads.append(threading.Thread(target=self.killer))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def history(self, name=None):
        """One line for each command on the job, or on all jobs, with its exit code."""
        lines = []
        for done in sorted(self.done, key=lambda done: done.began):
            if name is None or done.job == name or done.job is None:
                what = " ".join(map(str, done.arguments))[:150] if done.verb != "run" else done.job
                lines.append(f"{done.began:8.2f} +{done.took:6.2f} {done.client}: {done.verb} {what} -> {done.exit} {done.message[:300]}")
        return "\n".join(lines)

    def shares(self):
        """{verb: (count, accepted, refused, away, {exit code: count})} of what was asked of jobs in a state
        that fits."""
        table = {}
        for verb in EXITS:
            asked = [done for done in self.done if done.verb == verb and done.fitting]
            away = sum(bool(AWAY.search(done.message)) and done.exit in (5, 6) for done in asked)
            refused = sum(done.exit in (5, None) and not AWAY.search(done.message) for done in asked)
            codes = collections.Counter(done.exit for done in asked)
            table[verb] = (len(asked), len(asked) - away - refused, refused, away,
                           dict(sorted(codes.items(), key=str)))
        return table
