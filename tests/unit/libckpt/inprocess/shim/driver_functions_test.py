# SPDX-License-Identifier: Apache-2.0
"""The table of driver functions against the installed cuda.h, and libckpt_shim.so against the table."""
import argparse
import pathlib
import re
import subprocess
import sys
import unittest

OPTIONS = None
ROW = re.compile(r"^CKPT_DRIVER_FUNCTION\((\w+), (\w+)\)", re.M)
KINDS = {"hook", "gate", "query", "refuse"}
LIBC = re.compile(r"^(libc|libm|libpthread|libdl|ld-linux-[a-z0-9_-]+)\.so\.\d+$")


def run(*command, **options):
    return subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE, **options).stdout


def declared_functions():
    """Every function that cuda.h declares, each version and kind of stream under its own name."""
    text = run(OPTIONS.compiler, "-E", "-P", "-x", "c", f"-I{OPTIONS.include}", "-",
               input="#define __CUDA_API_VERSION_INTERNAL\n#include <cuda.h>\n")
    return set(re.findall(r"\bCUresult\s+(cu[A-Z]\w*)\s*\(", text))


def problems_of(table, declared):
    """The mistakes in this text of the table, for a header that declares these functions."""
    rows = ROW.findall(table)
    names = [name for name, _ in rows]
    problems = [f"{name} has no row: add it to libckpt/cuda/driver_functions.def with its kind"
                for name in sorted(declared - set(names))]
    problems += [f"{name} has two rows" for name in sorted({name for name in names if names.count(name) > 1})]
    problems += [f"{name}: {kind} is no kind" for name, kind in rows if kind not in KINDS]
    return problems


def exported_by(library):
    lines = run(OPTIONS.nm, "-D", "--defined-only", library).splitlines()
    return {line.split()[2].split("@")[0] for line in lines if len(line.split()) == 3}


class Table(unittest.TestCase):
    def test_every_function_of_the_header_has_a_row_in_the_table(self):
        declared = declared_functions()
        self.assertGreater(len(declared), 500)
        self.assertEqual([], problems_of(pathlib.Path(OPTIONS.table).read_text(), declared))

    def test_a_fault_in_the_table_is_found(self):
        rows = "CKPT_DRIVER_FUNCTION(cuInit, hook)\nCKPT_DRIVER_FUNCTION(cuInit, hook)\nCKPT_DRIVER_FUNCTION(cuMemFree, other)\n"
        self.assertEqual(3, len(problems_of(rows, {"cuInit", "cuMemFree", "cuLaunchKernel"})))

    def test_the_library_exports_only_the_table_dlsym_and_fopen(self):
        expected = {"dlsym", "fopen", "fopen64"}
        for table in [OPTIONS.table, *OPTIONS.more]:
            expected |= {name for name, _ in ROW.findall(pathlib.Path(table).read_text())}
        self.assertEqual(sorted(expected), sorted(exported_by(OPTIONS.shim)))

    def test_the_library_has_the_name_of_the_driver_and_needs_only_libc(self):
        dynamic = run(OPTIONS.readelf, "-d", OPTIONS.shim)
        self.assertEqual(["libcuda.so.1"], re.findall(r"\(SONAME\).*\[(.+)\]", dynamic))
        needed = re.findall(r"\(NEEDED\).*\[(.+)\]", dynamic)
        self.assertIn("libc.so.6", needed)
        self.assertEqual([], [name for name in needed if not LIBC.match(name)])


def main():
    global OPTIONS
    parser = argparse.ArgumentParser()
    for name in ("table", "shim", "include", "compiler", "nm", "readelf"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--more", nargs="*", default=[], help="tables of functions of other headers")
    OPTIONS, rest = parser.parse_known_args()
    unittest.main(argv=[sys.argv[0], *rest])


if __name__ == "__main__":
    main()
