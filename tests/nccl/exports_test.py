# SPDX-License-Identifier: Apache-2.0
"""The table of tests/simulators/ncclsim/README.md names what the library exports, which is what NCCL's header declares, and
what NVIDIA's library exports where there is one."""
import argparse
import pathlib
import re
import subprocess
import unittest

ARGUMENTS = None
ROW = re.compile(r"^\|\s*((?:`nccl\w+`(?:, )?)+)\s*\|")
DECLARED = re.compile(r"^[\w \t*]*?\b(p?nccl[A-Z]\w+)\s*\(", re.MULTILINE)
NAME = re.compile(r"nccl\w+")
FUNCTION = re.compile(r"p?nccl[A-Z]")


def exported(library):
    listed = subprocess.run(["nm", "-D", "--defined-only", library], capture_output=True, text=True, check=True).stdout
    return {line.split()[-1] for line in listed.splitlines() if FUNCTION.match(line.split()[-1])}


def public(names):
    return {name for name in names if not name.startswith("pnccl")}


class Exports(unittest.TestCase):
    def test_every_function_that_the_header_declares_is_exported(self):
        text = pathlib.Path(ARGUMENTS.header).read_text()
        text = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
        declared = set(DECLARED.findall(text))
        self.assertGreater(len(declared), 70)
        self.assertEqual(set(), declared - exported(ARGUMENTS.library))

    def test_the_table_names_each_exported_function_once(self):
        rows = [ROW.match(line) for line in pathlib.Path(ARGUMENTS.readme).read_text().splitlines()]
        named = [name for row in rows if row for name in NAME.findall(row[1])]
        self.assertEqual(sorted(set(named)), sorted(named))
        self.assertEqual(public(exported(ARGUMENTS.library)), set(named))

    def test_library_exports_the_functions_of_the_real_nccl(self):
        if not pathlib.Path(ARGUMENTS.real).exists():
            self.skipTest(f"there is no {ARGUMENTS.real}")
        self.assertEqual(exported(ARGUMENTS.real), exported(ARGUMENTS.library))


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    for option in ("--library", "--header", "--real", "--readme"):
        parser.add_argument(option, required=True)
    ARGUMENTS = parser.parse_args()
    unittest.main(argv=["exports_test.py"], verbosity=2)
