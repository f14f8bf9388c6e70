# SPDX-License-Identifier: Apache-2.0
"""A local cluster under a temporary GPUMIGRATE_HOME, driven by the gpumigrate command alone, as an operator
would.

Environment: GPUMIGRATE_BUILD names the build folder. Nothing here sleeps to wait: it waits for commands that
end when something has happened (wait, watch, logs -f) and for processes."""
import contextlib
import ctypes
import json
import os
import pathlib
import re
import select
import shutil
import signal
import subprocess
import tempfile
import unittest

from waiting import eventually

BUILD = pathlib.Path(os.environ["GPUMIGRATE_BUILD"]).resolve()
BIN = BUILD / "bin"
EXAMPLES = BIN / "examples"
COMMAND_LIMIT_S = 120  # the time limit of a command; a hang is a failure, not a measurement


class CommandError(AssertionError):
    def __init__(self, result):
        self.result = result
        super().__init__(f"{' '.join(map(str, result.args))} -> exit {result.returncode}\nstdout: {result.stdout[-3000:]}\n"
                         f"stderr: {result.stderr[-3000:]}")


def run_unmoved(program, *arguments, memory="4GiB", whole=False, limit=COMMAND_LIMIT_S):
    """Runs an example without gpumigrate and returns its final JSON object: what a moved one must end with.
    `whole`: all that it printed."""
    folder = tempfile.mkdtemp(prefix="gm-unmoved-")
    environment = dict(os.environ, LD_LIBRARY_PATH=str(BUILD / "lib" / "cudasim"), CUDASIM_DIR=folder,
                       CUDASIM_DEVICES="1",
                       CUDASIM_MEMORY=memory, GPUMIGRATE_TEST_HURRY=folder)
    try:
        result = subprocess.run([EXAMPLES / program, *arguments], env=environment, capture_output=True,
                                text=True,
                                timeout=limit)
        if result.returncode != 0:
            raise CommandError(result)
        return result.stdout if whole else final_object(result.stdout)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def final_object(text):
    """The last line of `text` that is a JSON object."""
    for line in reversed(text.strip().split("\n")):
        with contextlib.suppress(ValueError):
            value = json.loads(line)
            if isinstance(value, dict):
                return value
    raise AssertionError("no JSON object in: " + text[-2000:])


def wait_for_end(process, limit_s):
    """Waits for the end of a process by its descriptor. select() would take descriptors below 1,024 only."""
    poll = select.poll()
    poll.register(process, select.POLLIN)
    poll.poll(limit_s * 1000)


@contextlib.contextmanager
def network_of(pid):
    """This thread's new sockets are in the process's network: over hosts, its host's."""
    libc = ctypes.CDLL(None, use_errno=True)
    own, its = (os.open(f"/proc/{who}/ns/net", os.O_RDONLY) for who in ("thread-self", pid))

    def enter(network):
        if os.readlink("/proc/thread-self/ns/net") != os.readlink(f"/proc/self/fd/{network}") \
                and libc.setns(network, 0) != 0:
            raise OSError(ctypes.get_errno(), "setns")
    try:
        enter(its)
        yield
        enter(own)
    finally:
        os.close(own)
        os.close(its)


class Cluster:
    addresses = {"127.0.0.1"}  # the addresses on which the cluster's daemons may listen

    def __init__(self, nodes=2, gpus=1, memory="2GiB", agent_settings="", coordinator_settings=""):
        self.home = pathlib.Path(tempfile.mkdtemp(prefix="gm-"))
        # A rehearsal of each agent in each cluster would use processor time that the tests need.
        rehearsal = "" if "rehearsal" in agent_settings else "rehearsal = false\n"
        (self.home / "agent-extra.toml").write_text(rehearsal + agent_settings)
        if coordinator_settings:
            (self.home / "coordinator-extra.toml").write_text(coordinator_settings)
        self.faults = self.home / "faults"
        self.stopping = set()  # the armed points that stop their process
        self.faults.mkdir()
        self.environment = dict(os.environ, GPUMIGRATE_HOME=str(self.home), CKPT_FAULT_DIR=str(self.faults),
                                GPUMIGRATE_SOFTWARE_GPU="1")
        self.up_arguments = ["--nodes", str(nodes), "--gpus", str(gpus), "--gpu-memory", memory]
        self.up()

    @property
    def shared(self):
        """A folder that all nodes see, under the same path."""
        return self.home

    @property
    def image_place(self):
        """Where images of a job on node-a outlive that node, as `--to` takes it."""
        return str(self.home / "vault") + "/"

    def start_by_hand(self, node, command, output, **options):
        """As a user would on that node, without gpumigrate. The process, and what `adopt` names it by."""
        # The process is started as by a shell. If that shell is outside our PID namespace, which CRIU
        # refuses, the process gets a session of its own.
        with open(output, "wb") as out:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                                       start_new_session=os.getsid(0) == 0, **options)
        return process, (process.pid,)

    def up(self):
        """Starts what does not run; a killed daemon comes back by this, as a service manager would do it."""
        self.call("local", "up", *self.up_arguments)

    def down(self):
        subprocess.run([BIN / "gpumigrate", "local", "down"], env=self.environment, capture_output=True,
                       text=True,
                       timeout=COMMAND_LIMIT_S)
        if not os.environ.get("GPUMIGRATE_KEEP"):
            shutil.rmtree(self.home, ignore_errors=True)

    def run(self, *arguments, limit=COMMAND_LIMIT_S):
        # The command runs in a folder of its own, which is also the jobs' folder. CRIU briefly creates a
        # folder in a process's folder, and two at a time collide.
        return subprocess.run([BIN / "gpumigrate", *map(str, arguments)], env=self.environment,
                              capture_output=True,
                              text=True, timeout=limit, cwd=self.home)

    def popen(self, *arguments):
        return subprocess.Popen([BIN / "gpumigrate", *map(str, arguments)], env=self.environment,
                                stdout=subprocess.PIPE,
                                stderr=subprocess.PIPE, text=True)

    def call(self, *arguments, exits=(0,)):
        result = self.run(*arguments)
        if result.returncode not in exits:
            raise CommandError(result)
        return result

    def json(self, *arguments, exits=(0,)):
        return json.loads(self.call(*arguments, "-o", "json", exits=exits).stdout)

    def start(self, name, program, *arguments, node="node-a", way=("--cooperative",)):
        self.call("run", *way, "--detach", "--name", name, "--node", node, "--env",
                  f"CKPT_FAULT_DIR={self.faults}", "--env", f"GPUMIGRATE_TEST_HURRY={self.hurry(name)}", "--",
                  EXAMPLES / program, *arguments)

    def hurry(self, name):
        """The file that lets a job hurry to its end. Until then the second half of its steps is slow: it lasts for all
        that a test does to it, on a slow machine, too (examples/common/pace.h, programs/pace.py)."""
        return self.shared / f"hurry-{name}"

    def job(self, name):
        return next(job for job in self.json("jobs") if job["name"] == name)

    def wait_for_line(self, name, pattern):
        """Follows the job's log until a line matches; returns the match."""
        with self.popen("logs", name, "-f") as follower:
            try:
                for line in follower.stdout:
                    match = re.search(pattern, line)
                    if match:
                        return match
            finally:
                follower.kill()
        raise AssertionError(f"the log of {name} ended without {pattern!r}: {self.log(name)[-2000:]}")

    def log(self, name):
        return self.call("logs", name).stdout

    def finish(self, name, exits=(0,)):
        """Waits for the job's end and returns the last JSON object of its log."""
        self.hurry(name).touch()
        self.call("wait", name, exits=exits)
        return final_object(self.log(name))

    def migrate(self, name, node, *arguments, exits=(0,)):
        return self.json("migrate", name, "--to", node, *arguments, exits=exits)

    def arm(self, role, point, what="kill"):
        (self.faults / f"{role}.{point}").write_text(what)
        (self.stopping.add if what == "stop" else self.stopping.discard)((role, point))

    def fired(self, role, point):
        return not (self.faults / f"{role}.{point}").exists()

    def wait_until_it_stands(self, role, point):
        """The armed file goes a moment before the process stops: what lets it go on in between would be
        lost."""
        if (role, point) not in self.stopping:
            return
        self.stopping.discard((role, point))
        eventually(lambda: any("T" in self.states_of(pid) for pid in self.processes()),
                   f"a process stands at {role} {point}")

    @staticmethod
    def states_of(pid):
        """The state of each thread. Threads that a keeper holds are traced, never stopped."""
        states = []
        with contextlib.suppress(OSError):
            for thread in pathlib.Path(f"/proc/{pid}/task").iterdir():
                states.append(re.search(r"^State:\s+(\S)", (thread / "status").read_text(), re.M).group(1))
        return states

    def processes(self):
        """Living processes that belong to this home: {pid: command line}, zombies left out."""
        found = {}
        for entry in pathlib.Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            with contextlib.suppress(OSError):
                if str(self.home).encode() not in (entry / "environ").read_bytes():
                    continue
                if re.search(r"^State:\s+Z", (entry / "status").read_text(), re.M):
                    continue
                found[int(entry.name)] = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode()
        return found

    def rank_pid(self, job, number):
        """As the process is called here, which on a host has another number."""
        rank = self.json("describe", job)["ranks"][number]
        return self.pid_here(rank["node"], rank["pid"])

    def pid_here(self, node, pid):
        return pid

    def pids(self, word):
        return [pid for pid, command in self.processes().items() if word in command]

    def kill(self, word, how=signal.SIGKILL):
        """Signals every process of the home whose command has the word, and waits for those that SIGKILL ends. They end as
        on a node that loses power: all are stopped first, so none reports another's end."""
        processes = []
        for pid in self.pids(word):
            with contextlib.suppress(ProcessLookupError):
                processes.append(os.pidfd_open(pid))
        for what in (signal.SIGSTOP, how) if how == signal.SIGKILL else (how,):
            for process in processes:
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(process, what)
        for process in processes:
            if how == signal.SIGKILL:
                wait_for_end(process, COMMAND_LIMIT_S)
            os.close(process)


def make_cluster(*settings):
    """Over hosts with networks of their own (tests/hosts) where GPUMIGRATE_TEST_HOSTS=1 asks for it."""
    if os.environ.get("GPUMIGRATE_TEST_HOSTS") != "1":
        return Cluster(*settings)
    import host_cluster  # noqa: PLC0415 (host_cluster imports this module)
    return host_cluster.HostCluster(*settings)


class ClusterTest(unittest.TestCase):
    """A test case with its own cluster; the logs are printed when a test fails."""

    nodes, gpus, memory = 2, 1, "2GiB"
    agent_settings = ""  # lines added to every agent.toml
    coordinator_settings = ""  # lines added to coordinator.toml

    def setUp(self):
        self.cluster = make_cluster(self.nodes, self.gpus, self.memory, self.agent_settings,
                                    self.coordinator_settings)
        self.addCleanup(self.cluster.down)
        self.addCleanup(self.show_logs_of_a_failure)

    def show_logs_of_a_failure(self):
        result = self._outcome.result
        if not any(test is self for test, _ in result.failures + result.errors):
            return
        for path in sorted(self.cluster.home.rglob("*.log")):
            with contextlib.suppress(OSError):
                text = path.read_text(errors="replace")
                print(f"--- {path.relative_to(self.cluster.home)}\n{text[-4000:]}")

    def assert_steps_in_order(self, log):
        """Every step printed exactly once, in order: nothing lost, nothing run twice."""
        steps = [int(step) for step in re.findall(r"^step (\d+)\b", log, re.M)]
        self.assertTrue(steps, log[-1000:])
        self.assertEqual(steps, list(range(steps[0], steps[0] + len(steps))), "steps lost or repeated")
