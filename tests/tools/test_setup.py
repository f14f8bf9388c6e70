# SPDX-License-Identifier: Apache-2.0
"""tools/setup on a machine that lacks a package, with an apt-get that obeys orders."""
import os
import pathlib
import shutil
import subprocess
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
LOCKED = "E: Could not get lock /var/lib/apt/lists/lock. It is held by process 42 (apt-get)"
# A script that fails with the next line of `answers`, if one is left. It records its arguments.
APT = """#!/bin/bash
echo "$*" >> "$HERE/calls"
if [[ -s $HERE/answers ]]; then
  head -n 1 "$HERE/answers" >&2
  sed -i 1d "$HERE/answers"
  exit 100
fi
"""


class Setup(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.here = pathlib.Path(folder.name)
        self.write("tools/packages.txt",
                   "# a comment\nno-such-package-to-run\nno-such-package-to-test test\n")
        self.write("tools/criu", "#!/bin/bash\n")
        self.write("bin/apt-get", APT)
        self.write("bin/sudo", '#!/bin/bash\nexec "$@"\n')
        self.write("cuda/include/cuda.h", "")
        self.write("cuda/bin/nvcc", "")
        shutil.copy(ROOT / "tools/setup", self.here / "tools/setup")

    def write(self, name, text):
        path = self.here / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)

    def setup(self, *arguments, answers=()):
        (self.here / "answers").write_text("".join(answer + "\n" for answer in answers))
        environment = dict(os.environ, HERE=str(self.here), CUDA_HOME=str(self.here / "cuda"),
                           PATH=f"{self.here / 'bin'}:{os.environ['PATH']}")
        return subprocess.run([self.here / "tools/setup", *arguments], env=environment, capture_output=True,
                              text=True, timeout=60)

    def installed(self):
        return [line.split("--no-install-recommends ")[1]
                for line in (self.here / "calls").read_text().splitlines() if " install " in line]

    def test_missing_packages_are_installed_and_listed(self):
        done = self.setup()
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertEqual(self.installed(), ["no-such-package-to-run no-such-package-to-test"])
        self.assertIn("installing 2 packages", done.stdout)

    def test_run_installs_nothing_for_tests(self):
        self.assertEqual(self.setup("--run").returncode, 0)
        self.assertEqual(self.installed(), ["no-such-package-to-run"])

    def test_setup_waits_until_another_apt_has_finished(self):
        done = self.setup("--run", answers=[LOCKED])
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertIn("waiting for another apt to end (held by process 42 (apt-get))", done.stderr)
        self.assertEqual(self.installed(), ["no-such-package-to-run"])

    def test_other_failure_of_apt_ends_setup_with_its_message(self):
        done = self.setup("--run", answers=["E: Unable to locate package"])
        self.assertEqual(done.returncode, 1, done.stdout)
        self.assertIn("E: Unable to locate package", done.stderr)
        self.assertFalse(self.installed())

    def test_check_names_what_is_missing_and_installs_nothing(self):
        done = self.setup("--run", "--check")
        self.assertEqual(done.returncode, 1)
        self.assertIn("missing packages: no-such-package-to-run", done.stderr)
        self.assertFalse((self.here / "calls").exists())


unittest.main()
