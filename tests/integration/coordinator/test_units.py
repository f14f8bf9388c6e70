# SPDX-License-Identifier: Apache-2.0
"""The installed units under systemd, in namespaces of their own over this machine's files (support/systemd_root.sh)."""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[3]
BUILD = pathlib.Path(os.environ["GPUMIGRATE_BUILD"]).resolve()
SUPPORT = ROOT / "tests/integration/support"
LIMIT_S = 600


class Units(unittest.TestCase):
    def test_a_job_outlives_its_agents_unit(self):
        if os.geteuid() != 0 or not os.access("/lib/systemd/systemd", os.X_OK):
            self.skipTest("needs root and systemd")
        folder = pathlib.Path(tempfile.mkdtemp(prefix="gm-units-", dir="/var/tmp"))
        self.addCleanup(shutil.rmtree, folder, ignore_errors=True)
        subprocess.run(["cmake", "--install", BUILD, "--prefix", "/usr/local"], check=True, capture_output=True, timeout=120,
                       env=os.environ | {"DESTDIR": str(folder / "tree")})
        ended = subprocess.run(["unshare", "--mount", "--pid", "--fork", "--kill-child", "--uts", "--ipc", "--cgroup", "--net",
                                SUPPORT / "systemd_root.sh", folder, sys.executable,
                                ROOT / "tests/integration/programs/units_trial.py", BUILD, "/out/seen.json"],
                               capture_output=True, text=True, timeout=LIMIT_S)
        report = folder / "out/seen.json"
        log = folder / "out/log"
        self.assertTrue(report.exists(), ended.stdout[-3000:] + ended.stderr[-3000:] +
                        (log.read_text() if log.exists() else ""))
        seen = json.loads(report.read_text())
        self.assertEqual(seen, {"restart": True, "stop": True, "kill": True, "failed": "", "control-group": False})


if __name__ == "__main__":
    unittest.main()
