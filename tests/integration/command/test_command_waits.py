# SPDX-License-Identifier: Apache-2.0
"""Commands that wait, and their ends: programs that cannot be started, limits of waiting, Ctrl-C."""
import os
import signal
import unittest

from cluster import ClusterTest
from waiting import eventually, next_line

ARGUMENTS = ["--bytes", "16MiB", "--hot", "4%", "--step-ms", "10", "--seed", "1", "--pattern", "stride",
             "--steps", "1000000", "--print-every", "1"]


class ProgramsThatCannotBeStarted(ClusterTest):
    nodes = 1

    def refused(self, program, status, message, *options):
        result = self.cluster.run("run", *options, "--", program)
        self.assertEqual((result.returncode, result.stdout), (status, ""), result.stderr)
        self.assertEqual(result.stderr.strip().split("\n")[-1], f"gpumigrate: {message}")

    def test_missing_program_is_named_and_exits_127(self):
        missing = self.cluster.home / "nosuch"
        for options in ((), ("--cooperative",), ("--detach",)):
            self.refused("nosuchprog", 127, "nosuchprog: not found", *options)
            self.refused(missing, 127, f"{missing}: not found", *options)
        job = self.cluster.json("jobs")[0]
        self.assertEqual((job["state"], job["exit_code"], job["reason"]),
                         ("failed", 127, "nosuchprog: not found"))
        self.assertEqual(self.cluster.run("wait", job["id"]).returncode, 127)

    def test_program_that_is_not_executable_exits_126(self):
        text = self.cluster.home / "text"
        text.write_text("no program\n")
        text.chmod(0o644)
        self.refused(text, 126, f"{text}: not executable (Permission denied)")
        script = self.cluster.home / "script"
        script.write_text("#!/nosuch/interpreter\n")
        script.chmod(0o755)
        self.refused(script, 126, f"{script}: not executable (its interpreter is not found)")


class Waits(ClusterTest):
    nodes = 1

    def setUp(self):
        super().setUp()
        self.cluster.start("job", "hotset", *ARGUMENTS)
        self.cluster.wait_for_line("job", r"^step 3\b")

    def test_wait_with_a_limit_exits_124(self):
        result = self.cluster.run("wait", "job", "--timeout", "10ms")
        self.assertEqual(result.returncode, 124, result.stderr)
        self.assertIn("Timed out waiting for the end of job job", result.stderr)
        self.assertEqual(self.cluster.job("job")["state"], "running")

    def test_a_wait_shows_its_subject_and_ends_at_the_first_signal(self):
        """Also of orders that the coordinator does not answer: here it is stopped."""
        waits = [(("wait", "job"), "the end of job job", 2, "the job keeps running; `gpumigrate wait job` waits again"),
                 (("snapshot", "job"), "snapshot of job", 6, "show whether the snapshot has begun"),
                 (("suspend", "job"), "suspend of job", 6, "show whether the suspend has begun"),
                 (("resume", "job"), "resume of job", 6, "show whether the resume has begun"),
                 (("adopt", os.getpid()), f"a node to adopt process {os.getpid()}", 6, "Interrupted before"),
                 (("images", "rm", "j1.v1@node-a"), "image j1.v1@node-a", 6, "Interrupted before")]
        self.cluster.kill("gpumigrate-coordinator", signal.SIGSTOP)
        try:
            for number, (arguments, subject, status, end) in enumerate(waits):
                with self.cluster.popen(*arguments) as process:
                    try:
                        line = next_line(process.stderr, f"{arguments} shows what it waits for")
                        self.assertIn(f"waiting for {subject}", line)
                        process.send_signal((signal.SIGINT, signal.SIGTERM)[number % 2])
                        _, rest = process.communicate(timeout=60)
                    finally:
                        process.kill()
                self.assertEqual(process.returncode, status, rest)
                self.assertIn(end, rest)
        finally:
            self.cluster.kill("gpumigrate-coordinator", signal.SIGCONT)

    def test_each_verb_exits_124_at_its_limit_and_its_order_continues(self):
        cluster = self.cluster
        limited = (("adopt", os.getpid()), ("protect", "job", "--every", "10m"), ("unprotect", "job"),
                   ("images", "rm", "j1.v1@node-a"), ("node", "rm", "node-z"), ("drain", "node-a"),
                   ("drains", "node-a", "--watch"), ("rebalance", "--apply"), ("abort", "job"),
                   ("watch", "job"), ("backup", cluster.home / "copy"), ("run", "--", "/bin/true"))
        cluster.kill("gpumigrate-coordinator", signal.SIGSTOP)
        try:
            for verb, *others in limited:
                end = others.index("--") if "--" in others else len(others)
                result = cluster.run(verb, *others[:end], "--timeout", "50ms", *others[end:])
                self.assertEqual(result.returncode, 124, (verb, result.stderr))
                self.assertIn("Timed out waiting for ", result.stderr.strip().split("\n")[-1], verb)
        finally:
            cluster.kill("gpumigrate-coordinator", signal.SIGCONT)
        self.assertEqual(cluster.job("job")["state"], "running")

    def test_a_drain_continues_after_its_command_has_timed_out(self):
        cluster = self.cluster
        result = cluster.run("drain", "node-a", "--timeout", "0")  # a drain of a job that cannot move
                                                                   # anywhere
        self.assertEqual(result.returncode, 124, result.stderr)
        drains = eventually(lambda: [drain for drain in cluster.json("drains") if not drain["open"]],
                            "the drain ends by itself")
        self.assertEqual((drains[0]["place"], drains[0]["result"]), ("node-a", "incomplete"))

    def test_followed_streams_end_at_the_first_signal(self):
        for arguments, end in ((("logs", "job", "-f"), "Job job keeps running"),
                               (("events", "-f"), "`gpumigrate events -f` follows the events again")):
            with self.cluster.popen(*arguments) as process:
                next_line(process.stdout, f"{arguments} has printed a line")
                process.send_signal(signal.SIGTERM)
                _, errors = process.communicate(timeout=60)
            self.assertEqual(process.returncode, 2, errors)
            self.assertIn(end, errors)


if __name__ == "__main__":
    unittest.main()
