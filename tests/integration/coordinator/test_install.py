# SPDX-License-Identifier: Apache-2.0
"""The files that `cmake --install` puts into a prefix work there: programs find each other and their libraries, a
program that does not use ckpt.h moves between nodes, manual pages and completion are found."""
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

from crashing_processes import find_criu

ROOT = pathlib.Path(__file__).resolve().parents[3]
BUILD = pathlib.Path(os.environ["GPUMIGRATE_BUILD"]).resolve()
LIMIT_S = 120


def call(*command, **options):
    result = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=LIMIT_S, **options)
    if result.returncode != 0:
        raise AssertionError(f"{command} ended with {result.returncode}: {result.stdout[-2000:]}{result.stderr[-2000:]}")
    return result.stdout


class Installed(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="gm-install-", dir="/var/tmp"))
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        cls.prefix = cls.folder / "usr"
        call("cmake", "--install", BUILD, "--prefix", cls.prefix)
        cls.command = cls.prefix / "bin/gpumigrate"

    def test_installed_programs_do_not_depend_on_the_build_folder(self):
        files = [path for path in self.prefix.rglob("*") if path.is_file() and not path.is_symlink()
                 and path.open("rb").read(4) == b"\x7fELF"]
        self.assertGreater(len(files), 12)
        for file in files:
            listed = subprocess.run(["ldd", file], capture_output=True, text=True, timeout=LIMIT_S).stdout
            self.assertNotIn(str(BUILD), listed, file)
            missing = [line for line in listed.splitlines() if "not found" in line and "libcuda.so" not in line]
            self.assertEqual(missing, [], file)
            self.assertNotIn(str(BUILD), call("readelf", "-d", file), file)

    def test_manual_pages_completion_and_header_are_installed(self):
        pages = {page.name for page in (self.prefix / "share/man/man1").iterdir()}
        self.assertIn("gpumigrate.1", pages)
        self.assertIn("gpumigrate-migrate.1", pages)
        script = self.prefix / "share/bash-completion/completions/gpumigrate"
        self.assertIn("gpumigrate", call("bash", "-c", f"source {script}; complete -p gpumigrate"))
        source = self.folder / "program.c"
        source.write_text('#include <ckpt/ckpt.h>\nint main(void) { return ckpt_abi_version() == 0; }\n')
        call("cc", "-I", self.prefix / "include", source, "-L", self.prefix / "lib", "-lckpt",
             f"-Wl,-rpath,{self.prefix}/lib", "-o", self.folder / "program")
        call(self.folder / "program")

    def test_units_name_the_installed_programs_and_keep_jobs(self):
        for name in ("agent", "coordinator"):
            unit = (self.prefix / f"lib/systemd/system/gpumigrate-{name}.service").read_text()
            program = re.search(r"(?m)^ExecStart=(\S+)", unit).group(1)
            self.assertEqual(program, f"{self.prefix}/bin/gpumigrate-{name}")
            call(program, "--version")
            self.assertRegex(unit, r"(?m)^KillMode=process$")

    def test_a_second_installation_replaces_the_first(self):
        call("cmake", "--install", BUILD, "--prefix", self.prefix)
        call(self.command, "--version")

    def test_jobs_move_between_nodes_of_an_installed_cluster(self):
        whole = os.geteuid() == 0 and find_criu()
        environment = dict(os.environ, GPUMIGRATE_HOME=str(self.folder / "home"), GPUMIGRATE_SOFTWARE_GPU="1")

        def gpumigrate(*words):
            return call(self.command, *words, env=environment)

        self.addCleanup(subprocess.run, [self.command, "local", "down"], env=environment, capture_output=True)
        gpumigrate("local", "up", "--nodes", "2", "--gpus", "1", "--gpu-memory", "1GiB")
        ways = [("cooperative", ("--cooperative",), "charlm")]
        if whole:
            ways.append(("transparent", (), "charlm-plain"))
        for name, way, program in ways:
            with self.subTest(name):
                gpumigrate("run", "--detach", "--name", name, "--node", "node-a", *way, "--",
                           BUILD / "bin/examples" / program, "--params", "100000", "--steps", "1000000")
                report = gpumigrate("migrate", name, "--to", "node-b", "--live", "-o", "json")
                self.assertIn('"result": "done"', report)
                gpumigrate("stop", name)
        exes = set()
        for link in pathlib.Path("/proc").glob("[0-9]*/exe"):
            try:
                if str(self.folder) in link.with_name("environ").read_bytes().decode(errors="replace"):
                    exes.add(os.readlink(link))
            except OSError:
                continue
        daemons = {exe for exe in exes if "gpumigrate" in pathlib.Path(exe).name}
        self.assertIn(f"{self.prefix}/lib/gpumigrate/bin/gpumigrate-agent", daemons)
        self.assertEqual([exe for exe in daemons if not exe.startswith(str(self.prefix))], [])


if __name__ == "__main__":
    unittest.main()
