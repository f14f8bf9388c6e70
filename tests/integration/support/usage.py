# SPDX-License-Identifier: Apache-2.0
"""The resources that the daemons of a local cluster hold: memory, descriptors, threads, memory files, shared
memory. And work after which they must hold no more than before: test_leftovers.py does some of it,
test_many_jobs.py much."""
import collections
import contextlib
import json
import os
import pathlib
import re
import statistics

from unix_http import ask
from waiting import eventually_equal

DEADLINE_S = 60
SETTINGS = "ended_jobs_kept = 10\nclosed_migrations_kept = 10\nevents_kept = 200\nended_images_max_age_ms = 5000\n"
HOTSET = ["--bytes", "4MiB", "--step-ms", "5", "--seed", "4", "--steps", "1000000", "--print-every", "1"]
Held = collections.namedtuple("Held", "descriptors threads memory_files shared_files")
# The first use of a page cache, an arena or a pool is not a leak. Memory that remains after each job is a
# leak.
GROWTH_SHARE, GROWTH_KIB = 0.05, 2048
# Only a mover's private memory counts. Its staging memory is shared, and so large that it hides the rest.
MOVER, MOVER_GROWTH_SHARE, MOVER_GROWTH_KIB = "gpumigrate-mover", 0.02, 1024
# The private memory settles at 2 to 4 MiB after tens of jobs. With fewer samples it is still growing, from
# 1.6 MiB.
SETTLED_SAMPLES, SETTLING_KIB = 20, 2048


def links(pid):
    """The targets of the process's descriptors: paths, or names that the kernel makes up."""
    found = []
    with contextlib.suppress(OSError):
        for descriptor in pathlib.Path(f"/proc/{pid}/fd").iterdir():
            with contextlib.suppress(OSError):
                found.append(os.readlink(descriptor))
    return found


def memory_files(pid):
    """By the names the kernel shows."""
    return [name for name in links(pid) if name.startswith("/memfd:")]


def number(pid, field):
    text = pathlib.Path(f"/proc/{pid}/status").read_text()
    return int(re.search(rf"^{field}:\s+(\d+)", text, re.M).group(1))


def held_by(pid):
    maps = pathlib.Path(f"/proc/{pid}/maps").read_text()
    shared = set(re.findall(r"/dev/shm/\S+", maps)) | {name for name in links(pid)
                                                       if name.startswith("/dev/shm/")}
    # The software driver's device has a thread for each stream, so the streams of movers are counted there.
    return Held(len(links(pid)), number(pid, "Threads"), len(memory_files(pid)), len(shared))


class Usage:
    """Samples of all daemons, taken when nothing is under way."""

    def __init__(self, test, cluster):
        self.test, self.cluster = test, cluster
        self.resident = collections.defaultdict(list)  # resident KiB, by process
        self.own = collections.defaultdict(list)  # KiB, by mover: memory that is neither file-backed nor
                                                  # shared
        self.most = {}  # the largest Held, by process
        self.daemons = set()
        self.max_of_jobs = 0
        self.samples = 0

    def processes(self):
        """Names of daemons, and of what serves one instance of a job: that comes and goes with it."""
        daemons, of_jobs = {}, {}
        for pid, command in self.cluster.processes().items():
            with contextlib.suppress(OSError):
                words = command.split()
                name = pathlib.Path(words[0]).name if words else ""
                environment = pathlib.Path(f"/proc/{pid}/environ").read_text(errors="replace")
                node = re.search(r"/nodes/([^/]+)/", command + environment)
                serves = name == "gpumigrate-keeper" or "CKPT_SOCKET=" in environment
                (of_jobs if serves else daemons)[pid] = f"{name} {node.group(1) + ' ' if node else ''}{pid}"
        return daemons, of_jobs

    def files(self):
        """The numbers of files of jobs and of software GPUs in the cluster's folder."""
        nodes = self.cluster.home / "nodes"
        return {kind: len(list(nodes.glob(f"*/{kind}/*"))) for kind in ("jobs", "gpu")}

    def sample(self, remember):
        """Remembers what is held now as what may be held, or waits until no more is held than was
        remembered."""
        if not remember:
            self.wait_until_no_more_is_held()
        daemons, of_jobs = self.processes()
        for pid, name in (daemons | of_jobs).items():
            with contextlib.suppress(OSError, AttributeError):  # the process may belong to a job that is
                                                                # exiting
                self.resident[name].append(number(pid, "VmRSS"))
                if name.startswith(MOVER):
                    self.own[name].append(number(pid, "RssAnon"))
                held = held_by(pid)
                if remember:
                    self.most[name] = Held(*map(max, held, self.most.get(name, held)))
        if remember:
            self.daemons = set(daemons.values())
            self.max_of_jobs = max(self.max_of_jobs, len(of_jobs))
        self.samples += 1
        return self.files()

    def excess(self):
        daemons, of_jobs = self.processes()
        found = [f"{name} is new" for name in daemons.values() if name not in self.daemons]
        if len(of_jobs) > self.max_of_jobs:
            found.append(f"{sorted(of_jobs.values())} serve jobs, at most {self.max_of_jobs} before")
        for pid, name in (daemons | of_jobs).items():
            with contextlib.suppress(OSError, AttributeError):
                held = held_by(pid)
                if name in self.most and any(now > most for now, most in zip(held, self.most[name])):
                    found.append(f"{name} holds {held}, at most {self.most[name]} before")
        return found

    def wait_until_no_more_is_held(self):
        eventually_equal(self.excess, [], "the daemons hold no more than before")
        self.test.assertEqual(self.daemons - set(self.processes()[0].values()), set(), "a daemon has ended")

    def check_memory(self):
        grown = self.grown("resident", self.resident, GROWTH_SHARE, GROWTH_KIB)
        allowed = MOVER_GROWTH_KIB if self.samples >= SETTLED_SAMPLES else SETTLING_KIB
        grown += self.grown("own", self.own, MOVER_GROWTH_SHARE, allowed)
        self.test.assertEqual(grown, [])

    def grown(self, kind, all_sizes, share, kib):
        """Processes that lived all the time and have grown: the last quarter of their samples against the second.
        In the first they warm up."""
        grown = []
        for name, sizes in sorted(all_sizes.items()):
            if len(sizes) < self.samples:
                continue
            quarter = len(sizes) // 4
            before, after = statistics.median(sizes[quarter:2 * quarter]), statistics.median(sizes[-quarter:])
            print(f"{name}, {kind}: {before:.0f} KiB after a quarter, {after:.0f} KiB at the end; {self.most[name]}", flush=True)
            if after > before * (1 + share) + kib:
                grown.append(f"{name}, {kind}: {sizes}")
        return grown


def one_job(cluster, name):
    """Runs it, takes an image, moves it and stops it."""
    cluster.start(name, "hotset", *HOTSET)
    cluster.wait_for_line(name, r"^step 2\b")
    cluster.call("snapshot", name)
    report = cluster.migrate(name, "node-b")
    if report["result"] != "done":
        raise AssertionError(report)
    cluster.call("stop", name, "--grace", "0s")
    cluster.call("wait", name, exits=(137, 143))


def jobs_one_after_the_other(test, cluster, count, warm):
    """The first `warm` show what the daemons hold; the others must not make it more."""
    usage = Usage(test, cluster)
    files = []
    for turn in range(count):
        one_job(cluster, f"job{turn}")
        files.append(usage.sample(remember=turn < warm))
    print(f"{count} jobs were run, snapshot, moved and stopped; files {files[warm - 1]} after {warm}, {files[-1]} at the end", flush=True)
    return usage


class Api:
    """The coordinator's, for calls that are too many for a command each."""

    def __init__(self, cluster):
        self.home = cluster.home

    def call(self, path, body=None):
        """The status and the answer, refusals included."""
        status, text = ask(self.home, path, body)
        return status, json.loads(text or "null")
