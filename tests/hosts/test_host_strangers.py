# SPDX-License-Identifier: Apache-2.0
"""A host that is no part of the cluster talks to every port that movers, agents and the coordinator open, while a job
moves."""
import pathlib
import select
import subprocess
import unittest

from cluster import COMMAND_LIMIT_S, run_unmoved
from host_cluster import AGENT_PORT, API_PORT, CONTROL, PEER_PORT
from test_host_trust import STRANGER, ClusterWithStranger
from test_hosts import TRAINING, HostsTest
from waiting import eventually

MOVES, MAX_MOVES = 4, 40
HELD = 200  # the number of connections of an unauthenticated peer to each host
FEW_DESCRIPTORS = 24  # the unauthenticated peers that a mover accepts at a time, and the descriptors of the
                      # move itself
GROWTH_KIB = 32 << 10


class StrangersTest(HostsTest):
    def setUp(self):
        self.cluster = ClusterWithStranger()
        self.addCleanup(self.cluster.down)
        self.addCleanup(self.show_logs_of_a_failure)

    def bother(self, node, *spared, more=()):
        """Until its input ends; it prints that it has found a port, and how many connections it had."""
        hosts = self.cluster.hosts
        process = subprocess.Popen(self.cluster.intruder(STRANGER, "bother", hosts.address(node),
                                                         f"/proc/{hosts.pid(node)}/net/tcp",
                                                         ",".join(map(str, spared)), *more),
                                   stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.addCleanup(process.stdout.close)
        self.addCleanup(process.kill)
        return process

    def turns(self, strangers, enough):
        """Numbers of moves: at least MOVES, and until `enough` of the strangers have found a port. How soon they
        find one depends on the machine."""
        for turn in range(MAX_MOVES):
            yield turn
            found = select.select([stranger.stdout for stranger in strangers], [], [], 0)[0]
            if turn + 1 >= MOVES and turn % 2 == 1 and len(found) >= enough:
                return
        self.fail(f"strangers found no port in {MAX_MOVES} moves")

    @staticmethod
    def connections_of(stranger):
        return int(stranger.communicate("", timeout=COMMAND_LIMIT_S)[0].split()[-1])

    def processes(self, *programs):
        """By process: open descriptors, and KiB in memory."""
        found = {}
        for pid in [pid for program in programs for pid in self.cluster.pids(program + " ")]:
            process = pathlib.Path(f"/proc/{pid}")
            resident = next(line for line in (process / "status").read_text().splitlines() if "VmRSS" in line)
            found[pid] = (len(list((process / "fd").iterdir())), int(resident.split()[1]))
        return found

    def movers(self):
        return self.processes("gpumigrate-mover")

    def move(self, turn):
        report = self.cluster.migrate("job", "node-b" if turn % 2 == 0 else "node-a", "--live")
        self.assertEqual((report["result"], report["verified"]), ("done", True), report)


class StrangersAtTheMovers(StrangersTest):
    def test_a_move_succeeds_despite_malformed_bytes_sent_to_the_movers(self):
        arguments = [*TRAINING, "--steps", "4000"]
        expected = run_unmoved("charlm-plain", *arguments)
        self.cluster.start("job", "charlm-plain", *arguments, way=())
        self.cluster.wait_for_line("job", r"^step \d+")
        for turn in range(2):
            self.move(turn)  # after these moves the movers have all memory that they retain
        before = self.movers()
        self.assertEqual(len(before), 2)
        strangers = [self.bother(node, AGENT_PORT, API_PORT, PEER_PORT) for node in ("node-a", "node-b")]
        for turn in self.turns(strangers, 1):
            self.move(turn)
            for pid, (descriptors, _) in self.movers().items():
                self.assertLessEqual(descriptors, before[pid][0] + FEW_DESCRIPTORS)
        had = [self.connections_of(stranger) for stranger in strangers]
        self.assertGreater(sum(had), 0, "no port of a mover was found")
        for turn in range(2):
            self.move(turn)  # moves the job back to its first node
        self.assertEqual(self.movers().keys(), before.keys(), "a mover has ended")
        eventually(lambda: all(descriptors <= before[pid][0] for pid, (descriptors, _) in self.movers().items()),
                   "movers have as many descriptors as before")
        for pid, (_, resident) in self.movers().items():
            self.assertLessEqual(resident, before[pid][1] + GROWTH_KIB)
        self.assertEqual(self.cluster.finish("job")["digest"], expected["digest"])
        self.assert_steps_in_order(self.cluster.log("job"))


class StrangersAtEveryPort(StrangersTest):
    """One of them has the certificate of a node, and is not that node."""

    def test_moves_and_clients_continue_during_an_attack(self):
        arguments = [*TRAINING, "--steps", "4000"]
        expected = run_unmoved("charlm-plain", *arguments)
        self.cluster.start("job", "charlm-plain", *arguments, way=())
        self.cluster.wait_for_line("job", r"^step \d+")
        daemons = ("gpumigrate-coordinator", "gpumigrate-agent")
        for turn in range(2):
            self.move(turn)
        eventually(lambda: len(self.processes(*daemons)) == 3, "what agents have tried at their start has ended")
        before = self.processes(*daemons)
        more = (HELD, self.cluster.tls_folder("node-b"))
        strangers = [self.bother(host, more=more) for host in (CONTROL, "node-a", "node-b")]
        for turn in self.turns(strangers, len(strangers)):
            self.move(turn)
            answered = self.cluster.as_client("viewer", "jobs")
            self.assertEqual(answered.returncode, 0, answered.stderr)
            for pid, (descriptors, _) in self.processes(*daemons).items():
                self.assertLessEqual(descriptors, before[pid][0] + 2 * HELD)
        self.assertTrue(self.cluster.all_ready())
        had = [self.connections_of(stranger) for stranger in strangers]
        self.assertTrue(all(had), had)
        eventually(lambda: all(descriptors <= before[pid][0] + FEW_DESCRIPTORS
                               for pid, (descriptors, _) in self.processes(*daemons).items()),
                   "daemons have as many descriptors as before")
        after = self.processes(*daemons)
        self.assertEqual(after.keys(), before.keys(), "a daemon has ended")
        for pid, (_, resident) in after.items():
            self.assertLessEqual(resident, before[pid][1] + GROWTH_KIB)
        self.assertEqual(self.cluster.finish("job")["digest"], expected["digest"])
        self.assert_steps_in_order(self.cluster.log("job"))


if __name__ == "__main__":
    unittest.main()
