# SPDX-License-Identifier: Apache-2.0
"""What waits, and how it ends: programs that cannot be started, limits of waiting, Ctrl-C."""
import unittest

from cluster import ClusterTest


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


if __name__ == "__main__":
    unittest.main()
