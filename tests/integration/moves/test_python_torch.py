# SPDX-License-Identifier: Apache-2.0
"""A training with torch and the package gpumigrate (tests/integration/programs/package_torch.py): it moves live to another
node and back, and each loss is that of an unmoved run, to the last bit. Skipped without a Python with torch."""
import pathlib
import re
import subprocess
import unittest

from cluster import BUILD, ClusterTest, run_unmoved

ROOT = pathlib.Path(__file__).resolve().parents[3]
PROGRAM = ROOT / "tests" / "integration" / "programs" / "package_torch.py"
FRAMEWORKS = PROGRAM.with_name("package_frameworks.py")
FOUND = subprocess.run([ROOT / "tools" / "torch", "find"], capture_output=True, text=True)
INTERPRETER = ("/usr/bin/env", "-u", "PYTHONUNBUFFERED", f"PYTHONPATH={ROOT / 'libckpt' / 'python'}",
       f"GPUMIGRATE_LIBCKPT={BUILD}/lib/libckpt.so.1", FOUND.stdout.strip() or "python3", "-B")
RUN = (*INTERPRETER, str(PROGRAM))
HAVE_FRAMEWORKS = subprocess.run([*INTERPRETER, "-c", "import accelerate, transformers"], capture_output=True).returncode == 0
EXAMPLE = (*INTERPRETER, str(ROOT / "tools" / "examples" / "python" / "train.py"), "--epochs", "12")


def losses(text):
    return re.findall(r"^step \d+ loss \S+.*", text, re.M)


class TrainingTest(ClusterTest):
    def move_there_and_back(self, *options, run=RUN):
        expected = run_unmoved(*run, *options, whole=True)
        moved = self.cluster.shared / "moved"
        self.cluster.start("job", *run, *options, "--slow-until", str(moved))
        for node in ("node-b", "node-a"):
            self.cluster.wait_for_line("job", r"^step \d+")
            report = self.cluster.migrate("job", node, "--live")
            self.assertEqual((report["result"], report["verified"]), ("done", True), report)
        moved.touch()
        self.cluster.call("wait", "job")
        log = self.cluster.log("job")
        self.assertEqual(losses(log), losses(expected))
        self.assertEqual(log.splitlines()[-1], expected.splitlines()[-1])
        return log


@unittest.skipIf(FOUND.returncode != 0, FOUND.stderr.strip())
class PythonTorch(TrainingTest):
    def test_training_with_adamw_and_loader_workers_moves(self):
        log = self.move_there_and_back()
        self.assertIn("the sampler of DataLoader was moved forward by", log)

    def test_training_with_sgd_and_no_workers_moves(self):
        self.move_there_and_back("--optimizer", "SGD", "--workers", "0")

    def test_the_example_moves_as_host_state_after_a_warm_up(self):
        """There is no GPU for torch here. What the standby's warm-up changes is overwritten."""
        expected = run_unmoved(*EXAMPLE, whole=True)
        self.cluster.start("job", *EXAMPLE)
        self.cluster.wait_for_line("job", r"^epoch 0")
        report = self.cluster.migrate("job", "node-b", "--live")
        self.assertEqual((report["result"], report["verified"]), ("done", True), report)
        self.cluster.call("wait", "job")
        epochs = [line for line in self.cluster.log("job").splitlines() if line.startswith("epoch")]
        self.assertEqual(epochs, expected.splitlines())


@unittest.skipUnless(HAVE_FRAMEWORKS, "tools/torch install: accelerate and transformers")
class PythonFrameworks(TrainingTest):
    """The loops of others: what they count, log and draw is as unmoved."""
    run_program = (*INTERPRETER, str(FRAMEWORKS))

    def test_trainer_of_transformers_moves(self):
        self.move_there_and_back("trainer", "--out", str(self.cluster.shared), run=self.run_program)

    def test_trainer_that_accumulates_gradients_moves(self):
        self.move_there_and_back("trainer", "--out", str(self.cluster.shared), "--accumulate", "3", "--epochs", "6",
                                 run=self.run_program)

    def test_accelerate_program_moves(self):
        self.move_there_and_back("accelerate", run=self.run_program)

    def test_accelerate_program_with_its_own_sampler_moves(self):
        self.move_there_and_back("accelerate", "--seedable", "--accumulate", "2", run=self.run_program)


if __name__ == "__main__":
    unittest.main()
