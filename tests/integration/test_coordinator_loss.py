# SPDX-License-Identifier: Apache-2.0
"""Loss of the coordinator pauses nothing; `jobs` and `logs` work again when it is back. Hostile bytes on its ports and on
the movers' harm no job."""
import json
import os
import pathlib
import socket
import unittest

from cluster import ClusterTest, run_unmoved

ARGUMENTS = ["--bytes", "32MiB", "--hot", "4%", "--step-ms", "5", "--seed", "4", "--pattern", "random", "--steps", "1500",
             "--print-every", "1"]


class CoordinatorLoss(ClusterTest):
    def test_jobs_run_on_and_come_back(self):
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

    def wait_for_step(self, log, step):
        import subprocess
        with subprocess.Popen(["tail", "-n", "+1", "-F", log], stdout=subprocess.PIPE, text=True) as follower:
            for line in follower.stdout:
                if line.startswith(f"step {step}"):
                    break
            follower.kill()

    def test_agents_that_die_take_no_job_down(self):
        cluster = self.cluster
        expected = run_unmoved("hotset", *ARGUMENTS)["digest"]
        cluster.start("job", "hotset", *ARGUMENTS)
        cluster.wait_for_line("job", r"^step 5\b")
        cluster.kill("gpumigrate-agent")
        cluster.up()
        cluster.migrate("job", "node-b")
        self.assertEqual(cluster.finish("job")["digest"], expected)
        self.assert_steps_in_order(cluster.log("job"))

    def test_hostile_bytes_on_every_port(self):
        cluster = self.cluster
        expected = run_unmoved("hotset", *ARGUMENTS)["digest"]
        cluster.start("job", "hotset", *ARGUMENTS)
        cluster.wait_for_line("job", r"^step 5\b")
        ports = listening_ports(cluster.processes())
        self.assertGreaterEqual(len(ports), 3, "coordinator's two ports and the agents' at least")
        for port in ports:
            for junk in (b"", b"\0" * 24, b"GET / HTTP/1.1\r\n\r\n", os.urandom(4096), b"\xff" * 65536):
                with socket.create_connection(("127.0.0.1", port), timeout=30) as connection:
                    try:
                        connection.sendall(junk)
                        connection.shutdown(socket.SHUT_WR)
                        while connection.recv(65536):
                            pass
                    except OSError:
                        continue  # the daemon closed first: just what it should do
        cluster.up()
        report = cluster.migrate("job", "node-b")
        self.assertEqual(report["result"], "done")
        self.assertEqual(cluster.finish("job")["digest"], expected)
        self.assert_steps_in_order(cluster.log("job"))


def listening_ports(pids):
    """TCP ports on which one of the processes listens (loopback only is checked, too)."""
    inodes = set()
    for pid in pids:
        for fd in pathlib.Path(f"/proc/{pid}/fd").glob("*"):
            try:
                link = os.readlink(fd)
            except OSError:
                continue
            if link.startswith("socket:["):
                inodes.add(link[8:-1])
    ports = []
    for line in pathlib.Path("/proc/net/tcp").read_text().split("\n")[1:]:
        fields = line.split()
        if len(fields) > 9 and fields[3] == "0A" and fields[9] in inodes:
            address, port = fields[1].split(":")
            assert address == "0100007F", f"a daemon listens beyond loopback: {line}"
            ports.append(int(port, 16))
    return ports


if __name__ == "__main__":
    unittest.main(verbosity=2)
