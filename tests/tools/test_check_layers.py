# SPDX-License-Identifier: Apache-2.0
"""tools/check-layers on small trees: what it must find is planted, one thing at a time."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

CHECK = pathlib.Path(__file__).resolve().parents[2] / "tools" / "check-layers"


class CheckLayers(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        subprocess.run(["git", "init", "-q", self.root], check=True)
        self.write("agent/jobs/job.h", "agent/io/file.h")
        self.write("agent/io/file.h", "libckpt/base/result.h")
        self.write("libckpt/base/result.h")

    def write(self, name, *includes):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f'#include "{include}"\n' for include in includes))

    def run_check(self):
        done = subprocess.run([sys.executable, CHECK, self.root], capture_output=True, text=True)
        self.assertEqual(done.stderr, "")
        return done.returncode, done.stdout

    def assert_finds(self, *texts):
        code, found = self.run_check()
        self.assertEqual(code, 1, found)
        for text in texts:
            self.assertIn(text, found)

    def test_tree_without_violations_passes(self):
        self.assertEqual(self.run_check(), (0, ""))

    def test_cycle_of_two_folders_is_reported_with_the_include_that_closes_it(self):
        self.write("agent/io/pipe.h", "agent/jobs/job.h")
        self.assert_finds("agent: these depend on each other: io, jobs",
                          "agent/io/pipe.h:1: includes agent/jobs/job.h")

    def test_cycle_over_three_folders_is_found(self):
        self.write("agent/gpus/gpu.h", "agent/jobs/job.h")
        self.write("agent/io/pipe.h", "agent/gpus/gpu.h")
        self.assert_finds("agent: these depend on each other: gpus, io, jobs")

    def test_cycle_of_a_folder_with_its_own_subfolder_is_found(self):
        self.write("agent/jobs/table/table.h", "agent/jobs/job.h")
        self.write("agent/jobs/list.h", "agent/jobs/table/table.h")
        self.assert_finds("agent/jobs: these depend on each other: (its own files), table")

    def test_folder_above_a_cycle_is_not_reported(self):
        self.write("agent/io/pipe.h", "agent/jobs/job.h")
        self.write("agent/daemon/main.h", "agent/jobs/job.h")
        self.assert_finds("agent: these depend on each other: io, jobs.")

    def test_21st_entry_of_a_folder_is_found(self):
        for number in range(19):
            self.write(f"agent/io/file{number}.h")
            self.write(f"agent/io/file{number}.cc", f"agent/io/file{number}.h")
        self.assertEqual(self.run_check(), (0, ""))
        self.write("agent/io/one_more.h")
        self.assert_finds("agent/io: 21 entries, at most 20")

    def test_forbidden_include_is_found(self):
        self.write("libckpt/net/link.h")
        self.write("libckpt/inprocess/local/socket.h", "libckpt/net/link.h")
        self.assert_finds("libckpt/inprocess/local/socket.h:1: includes libckpt/net/link.h: libckpt/inprocess must not")

    def test_misplaced_word_is_found(self):
        (self.root / "agent/io/file.h").write_text("// as cudasim has it\n")
        self.assert_finds("agent/io/file.h:1: the word cudasim")

    def test_misplaced_call_is_found(self):
        (self.root / "agent/migration/modes").mkdir(parents=True)
        call = "auto list = host::processes_of(root);\n"
        (self.root / "agent/migration/modes/tree_work.cc").write_text(call)
        self.assertEqual(self.run_check(), (0, ""))
        (self.root / "agent/migration/modes/swap_mode.cc").write_text(call)
        self.assert_finds("agent/migration/modes/swap_mode.cc:1: calls host::processes_of")

    def write_line(self, name, line):
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(line + "\n")

    def test_query_of_the_number_of_ranks_is_found(self):
        for line in ("if (spec.gang.id == 0) return;", "if (!job.spec.gang.id) return;", "if (job->spec.gang.id) return;",
                     "if (wanted.gang.ranks > 1) return;", "if (spec.ranks.size() != 1) return;",
                     "if (target_ranks.size() == 1) return;", "const bool one = job.size == 1;",
                     "if (rank.whole() == rank.id) return;", "if (is_one_of_several(job)) return;"):
            with self.subTest(line):
                self.write_line("agent/io/planted.cc", line)
                self.assert_finds("agent/io/planted.cc:1: asks for the number of ranks")

    def test_other_uses_of_ranks_pass(self):
        for line in ("const auto ranks = jobs.ranks_of(job.whole());", "spec.gang.id = id;",
                     "// a job of several ranks has gang.id != 0", "for (std::size_t i = 0; i < ranks.size(); ++i) {}",
                     "if (ranks.size() != whole.size) return;", "names.push_back(job_text(gang.id));"):
            with self.subTest(line):
                self.write_line("agent/io/planted.cc", line)
                self.assertEqual(self.run_check(), (0, ""))

    def test_listed_file_may_query_the_number_of_ranks_until_the_query_is_removed(self):
        self.write_line("coordinator/fleet/job_admission.cc", "const bool is_several = placings.size() > 1;")
        self.assertEqual(self.run_check(), (0, ""))
        self.write_line("coordinator/fleet/job_admission.cc", "")
        self.assert_finds("coordinator/fleet/job_admission.cc: no longer asks for the number of ranks")


unittest.main()
