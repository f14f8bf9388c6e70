# SPDX-License-Identifier: Apache-2.0
"""A program that listens, and a target on which another program has its port."""
import re
import subprocess
import unittest

from cluster import COMMAND_LIMIT_S, run_unmoved
from host_cluster import HostCluster
from test_hosts import HostsTest
from test_python_jobs import PROGRAM, PYTHON

STEPS = 1500
HOLD = "import socket, sys; held = socket.create_server(('127.0.0.1', int(sys.argv[1]))); print(flush=True); sys.stdin.read()"


class Ports(HostsTest):
    def setUp(self):
        self.cluster = HostCluster()
        self.addCleanup(self.cluster.down)
        self.addCleanup(self.show_logs_of_a_failure)

    def test_taken_port_is_refused_by_name_before_the_pause(self):
        expected = run_unmoved(PYTHON, str(PROGRAM), "listen", str(STEPS), whole=True).split("\n")[-2]
        self.cluster.start("job", PYTHON, str(PROGRAM), "listen", str(STEPS), way=())
        port = self.cluster.wait_for_line("job", r"^listening at (\d+)").group(1)
        self.cluster.wait_for_line("job", r"^step \d+")
        command = ["nsenter", "--target", str(self.cluster.hosts.pid("node-b")), "--net", "--", PYTHON, "-c", HOLD, port]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
            holder.stdout.readline()
            refused = self.cluster.run("migrate", "job", "--to", "node-b", "--live")
            holder.communicate(b"", timeout=COMMAND_LIMIT_S)
        self.assertEqual(refused.returncode, 5, refused.stderr)
        self.assertIn(f"TCP 127.0.0.1:{port} cannot be bound at the target", refused.stderr + refused.stdout)
        self.assertEqual(self.cluster.job("job")["incarnation"], 1)
        self.assertEqual(self.cluster.migrate("job", "node-b", "--live")["result"], "done")
        self.cluster.call("wait", "job")
        log = self.cluster.log("job")
        self.assertEqual(re.findall(r"(?m)^{.*}$", log)[-1], expected)
        self.assert_steps_in_order(log)


if __name__ == "__main__":
    unittest.main()
