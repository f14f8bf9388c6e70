# SPDX-License-Identifier: Apache-2.0
"""Loss of the coordinator pauses nothing; `jobs` and `logs` work again when it is back. Hostile bytes on its
ports and on the movers' harm no job."""
import os
import pathlib
import resource
import signal
import socket
import unittest

from cluster import network_of, run_unmoved
from crashing import CrashingTest
from fault_points import Point
from waiting import eventually

ARGUMENTS = ["--bytes", "32MiB", "--hot", "4%", "--step-ms", "5", "--seed", "4", "--pattern", "random",
             "--steps", "2000",
             "--print-every", "1"]


class Losses(CrashingTest):
    def test_jobs_continue_without_a_coordinator_and_are_found_again(self):
        cluster = self.cluster
        expected = run_unmoved("hotset", *ARGUMENTS)["digest"]
        cluster.start("job", "hotset", *ARGUMENTS)
        cluster.wait_for_line("job", r"^step 5\b")
        log = next(cluster.home.glob("nodes/node-a/jobs/*/out.log"))
        cluster.kill("gpumigrate-coordinator")
        self.assertNotEqual(cluster.run("jobs").returncode, 0)
        self.wait_for_step(log, 400)
        cluster.up()
        job = cluster.job("job")
        self.assertEqual((job["state"], job["node"]), ("running", "node-a"))
        cluster.migrate("job", "node-b")
        self.assertEqual(cluster.finish("job")["digest"], expected)
        self.assert_steps_in_order(cluster.log("job"))

    def test_a_signal_ends_a_migrate_that_lost_the_coordinator(self):
        cluster = self.cluster
        cluster.start("job", "hotset", *ARGUMENTS)
        cluster.wait_for_line("job", r"^step 5\b")
        with cluster.popen("migrate", "job", "--to", "node-b", "--bandwidth", "1MiB/s") as moving:
            progress = iter(moving.stderr)
            next(line for line in progress if "round 1" in line)
            cluster.kill("gpumigrate-coordinator")
            next(line for line in progress if "retrying" in line)
            moving.send_signal(signal.SIGTERM)
            # Without the signal the command would retry for a minute and then report the same result.
            rest = moving.communicate(timeout=30)[1]
        self.assertEqual(moving.returncode, 6)
        self.assertRegex(rest, r"gpumigrate watch m\d+\S* asks again")
        cluster.up()
        cluster.call("abort", cluster.json("migrations")[0]["id"])
        self.assertEqual(cluster.job("job")["node"], "node-a")

    def wait_for_step(self, log, step):
        import subprocess
        with subprocess.Popen(["tail", "-n", "+1", "-F", log], stdout=subprocess.PIPE, text=True) as follower:
            for line in follower.stdout:
                if line.startswith(f"step {step}"):
                    break
            follower.kill()

    def test_jobs_survive_the_death_of_their_agents(self):
        cluster = self.cluster
        expected = run_unmoved("hotset", *ARGUMENTS)["digest"]
        cluster.start("job", "hotset", *ARGUMENTS)
        cluster.wait_for_line("job", r"^step 5\b")
        cluster.kill("gpumigrate-agent")
        cluster.up()
        cluster.migrate("job", "node-b")
        self.assertEqual(cluster.finish("job")["digest"], expected)
        self.assert_steps_in_order(cluster.log("job"))

    def test_malformed_bytes_on_every_port_harm_no_job(self):
        cluster = self.cluster
        expected = run_unmoved("hotset", *ARGUMENTS)["digest"]
        cluster.start("job", "hotset", *ARGUMENTS)
        cluster.wait_for_line("job", r"^step 5\b")
        ports = listening_ports(cluster)
        self.assertGreaterEqual(len(ports), 3, "coordinator's two ports and the agents' at least")
        for port in ports:
            attack(*port)
        cluster.up()
        report = cluster.migrate("job", "node-b")
        self.assertEqual(report["result"], "done")
        self.assertEqual(cluster.finish("job")["digest"], expected)
        self.assert_steps_in_order(cluster.log("job"))


    def test_malformed_bytes_on_a_mover_port_harm_no_job(self):
        """They may end the mover: then the migration fails, the job and the agent are unharmed, and the next
        one works."""
        cluster = self.cluster
        expected = run_unmoved("hotset", *ARGUMENTS)["digest"]
        cluster.start("job", "hotset", *ARGUMENTS)
        cluster.wait_for_line("job", r"^step 5\b")
        # Once the source has connected, no port listens any more.
        cluster.arm("mover.node-a.0", Point.SOURCE_MOVER_ATTACHED, "stop")
        moving = cluster.popen("migrate", "job", "--to", "node-b", "--timeout", "60s")
        self.wait_until_fired("mover.node-a.0", Point.SOURCE_MOVER_ATTACHED, moving)
        agents = self.agents()
        ports = eventually(lambda: listening_ports(cluster, "gpumigrate-mover"),
                           "the target's mover listens for the source's")
        for port in ports:
            attack(*port, until_closed=False)
        cluster.kill("gpumigrate-mover", signal.SIGCONT)
        moving.communicate(timeout=120)
        self.assertIn(moving.returncode, (0, 1))
        self.assertEqual(self.agents(), agents)
        there = cluster.job("job")["node"]
        self.assertEqual(cluster.migrate("job", "node-b" if there == "node-a" else "node-a")["result"],
                         "done")
        self.assertEqual(cluster.finish("job")["digest"], expected)
        self.assert_steps_in_order(cluster.log("job"))

    def agents(self):
        """A process that one of them starts has its command line for a moment."""
        return eventually(lambda: [pids for pids in [sorted(self.cluster.pids("gpumigrate-agent"))]
                                   if len(pids) == self.nodes], "there is one agent for each node")

    def test_a_full_disk_under_a_journal_harms_no_job(self):
        """Refused or given up cleanly, at each party's full disk; the job runs on, the daemon lives, and
        later a move works."""
        cluster = self.cluster
        expected = run_unmoved("hotset", *ARGUMENTS)["digest"]
        cluster.start("job", "hotset", *ARGUMENTS)
        cluster.wait_for_line("job", r"^step 5\b")
        # A mover that is started under the limit would inherit the limit.
        cluster.call("migrate", "job", "--to", "node-b", "--dry-run")
        # The target is limited before the source. A target that an earlier migration has prepared has free
        # space in its journal. A full disk would leave it that space, but RLIMIT_FSIZE does not let it write
        # there.
        daemons = {"coordinator": cluster.pids("gpumigrate-coordinator"),
                   "target": cluster.pids("nodes/node-b/agent.toml"),
                   "source": cluster.pids("nodes/node-a/agent.toml")}
        for name, pids in daemons.items():
            self.assertEqual(len(pids), 1, name)
            with self.subTest(full=name):
                before = resource.prlimit(pids[0], resource.RLIMIT_FSIZE)
                # Every write to a file fails as on a full disk, with EFBIG instead of ENOSPC.
                resource.prlimit(pids[0], resource.RLIMIT_FSIZE, (0, before[1]))
                result = cluster.call("migrate", "job", "--to", "node-b", "--timeout", "30s", exits=(1, 5))
                resource.prlimit(pids[0], resource.RLIMIT_FSIZE, before)
                self.assertRegex(result.stdout + result.stderr, r"(?i)journal|disk|space|file")
                job = cluster.job("job")
                self.assertEqual((job["state"], job["node"], job["incarnation"]), ("running", "node-a", 1))
                self.assertTrue(set(pids) <= set(cluster.processes()), "the daemon died")
        self.assertEqual(cluster.migrate("job", "node-b")["result"], "done")
        self.assertEqual(cluster.finish("job")["digest"], expected)
        self.assert_steps_in_order(cluster.log("job"))


def attack(pid, address, port, until_closed=True):
    """Nonsense of several kinds, each on a connection of its own, until the daemon has closed it (UCX may
    keep it)."""
    for junk in (b"", b"\0" * 24, b"GET / HTTP/1.1\r\n\r\n", os.urandom(4096), b"\xff" * 65536):
        try:
            with network_of(pid):
                connection = socket.create_connection((address, port), timeout=30)
            with connection:
                connection.sendall(junk)
                connection.shutdown(socket.SHUT_WR)
                while until_closed and connection.recv(65536):
                    pass
        except OSError:
            continue  # the daemon closed the connection first, or a mover has ended


def listening_ports(cluster, word=""):
    """(pid, address, port) of each TCP port on which a process with the word listens. All are the cluster's own
    addresses, which is checked, too."""
    ports = []
    for pid in cluster.pids(word):
        inodes = set()
        for fd in pathlib.Path(f"/proc/{pid}/fd").glob("*"):
            try:
                link = os.readlink(fd)
            except OSError:
                continue
            if link.startswith("socket:["):
                inodes.add(link[8:-1])
        for line in pathlib.Path(f"/proc/{pid}/net/tcp").read_text().split("\n")[1:]:
            fields = line.split()
            if len(fields) > 9 and fields[3] == "0A" and fields[9] in inodes:
                address, port = fields[1].split(":")
                address = socket.inet_ntoa(bytes.fromhex(address)[::-1])
                assert address in cluster.addresses, f"a daemon listens elsewhere: {line}"
                ports.append((pid, address, int(port, 16)))
    return ports
