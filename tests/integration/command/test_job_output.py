# SPDX-License-Identifier: Apache-2.0
"""A job's output has a limit on its node, and its end outlives the node that wrote it."""
import re

from cluster import EXAMPLES, ClusterTest
from waiting import eventually

ARGUMENTS = "--params 20000 --seed 5 --print-every 1 --step-ms 20 --steps 1000000"
NUMBERS = 1_000_000  # the numbers give 6.6 MiB of lines
LIMIT = 1 << 20


def end_of_copy(path):
    """The log's offset behind the last byte of a copy (output_copies.h)."""
    bytes_ = path.read_bytes()
    return int.from_bytes(bytes_[8:16], "little") + len(bytes_) - 16


class JobOutput(ClusterTest):
    agent_settings = "job_log_limit_mib = 1\n"
    coordinator_settings = "output_copy_interval_ms = 500\n"

    def start_job_that_writes_much(self):
        self.cluster.call("run", "--detach", "--name", "job", "--node", "node-a", "--", "/bin/sh", "-c",
                          f"seq 1 {NUMBERS}; exec {EXAMPLES / 'charlm-plain'} {ARGUMENTS}")
        self.cluster.wait_for_line("job", r"^step 3\b")

    def out_log(self, node, incarnation):
        return self.cluster.home / f"nodes/{node}/jobs/{self.cluster.job('job')['id']}.{incarnation}/out.log"

    def output(self):
        """The numbers that `logs` shows, and its standard error. Checks that they are whole and have no gaps."""
        shown = self.cluster.call("logs", "job")
        numbers = [int(number) for number in re.findall(r"^(\d+)$", shown.stdout, re.M)]
        self.assertRegex(shown.stdout, r"\A\d+\n")
        self.assertEqual(numbers, list(range(numbers[0], NUMBERS + 1)))
        self.assert_steps_in_order(shown.stdout)
        self.assertRegex(shown.stdout, rf"\n{NUMBERS}\n(.*\n)*step [01]\b")
        return numbers, shown.stderr

    def test_the_newest_output_stays_on_its_node(self):
        self.start_job_that_writes_much()
        log = self.out_log("node-a", 1)
        eventually(lambda: log.stat().st_blocks * 512 <= LIMIT + LIMIT // 8 + 4096, "older output is freed")
        self.assertGreater(log.stat().st_size, 6 * LIMIT)
        numbers, told = self.output()
        self.assertGreater(len(numbers), LIMIT // 9)
        self.assertRegex(told, r"MiB of older output of job job is deleted: its node keeps only the newest output")
        self.assertRegex(self.cluster.call("logs", "job", "--tail", "2").stdout, r"\Astep \d+ .*\nstep \d+ .*\n\Z")

    def test_the_end_of_the_output_outlives_its_node(self):
        self.start_job_that_writes_much()
        log = self.out_log("node-a", 1)
        self.cluster.migrate("job", "node-b")
        end = log.stat().st_size
        copies = self.cluster.home / "coordinator/output"
        eventually(lambda: [end_of_copy(path) for path in copies.glob("*-1")] == [end], "the last byte is copied")
        self.cluster.kill("nodes/node-a/")

        def is_away():
            states = {node["name"]: node["state"] for node in self.cluster.json("nodes")}
            return states["node-a"] == "unreachable"
        eventually(is_away, "node-a is away")
        numbers, told = self.output()
        self.assertGreater(len(numbers), LIMIT // 9)
        self.assertIn("Output of job job on node-a is missing", told)  # the start of the output is missing
        self.cluster.call("node", "rm", "node-a", "--force", "--fenced")
        again, _ = self.output()
        self.assertEqual(again, numbers)
