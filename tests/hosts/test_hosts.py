# SPDX-License-Identifier: Apache-2.0
"""Jobs that move between machines: every daemon on a host with a network, files and processes of its own."""
import pathlib
import unittest

from cluster import run_unmoved
from host_cluster import HostsTest

TRAINING = ["--params", "200000", "--seed", "3", "--print-every", "1", "--step-ms", "5"]
LISTENS = "0A"  # the state LISTEN in /proc/net/tcp


class MovesBetweenHosts(HostsTest):
    def there_and_back(self, way, program, arguments):
        expected = run_unmoved(program, *arguments)
        self.cluster.start("job", program, *arguments, way=way)
        self.cluster.wait_for_line("job", r"^step \d+")
        for turn in range(10):
            report = self.cluster.migrate("job", "node-b" if turn % 2 == 0 else "node-a", "--live")
            self.assertEqual((report["result"], report["verified"]), ("done", True), report)
            self.assertEqual((report["network"], report["transport"]), ("net0", self.transports[0]))
            self.assert_only_configured_addresses_listen()
        self.assertEqual(self.cluster.finish("job")["digest"], expected["digest"])
        self.assert_steps_in_order(self.cluster.log("job"))

    def assert_only_configured_addresses_listen(self):
        for host in ("control", "node-a", "node-b"):
            own = {self.cluster.hosts.address(host), "127.0.0.1"}
            self.assertLessEqual(self.listening_on(host), own, host)

    def listening_on(self, host):
        """The addresses that anything of the host's listens on; all of IPv6 as one."""
        found = set()
        for line in pathlib.Path(f"/proc/{self.cluster.hosts.pid(host)}/net/tcp").read_text().split("\n")[1:]:
            fields = line.split()
            if len(fields) > 3 and fields[3] == LISTENS:
                found.add(".".join(str(byte) for byte in bytes.fromhex(fields[1].split(":")[0])[::-1]))
        sixes = pathlib.Path(f"/proc/{self.cluster.hosts.pid(host)}/net/tcp6").read_text().split("\n")[1:]
        return found | {"IPv6" for line in sixes if line.split()[3:4] == [LISTENS]}

    def test_cooperative_job_moves_ten_times(self):
        self.there_and_back(("--cooperative",), "charlm", [*TRAINING[:4], "--print-every", "1", "--steps", "4000"])

    def test_transparent_job_moves_ten_times(self):
        self.there_and_back((), "charlm-plain", [*TRAINING, "--steps", "3000"])


if __name__ == "__main__":
    unittest.main()
