# SPDX-License-Identifier: Apache-2.0
"""Every name of the table, every name that the driver has beyond it and some that nobody has, looked up with
and without libckpt_shim.so: the answers are the same, and what is found is the shim's function, or the
driver's where the shim has none.

With --fetch the driver is NVIDIA's own library without a GPU (tools/fetch-driver-library); exit 77 where it
cannot be had."""
import argparse
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROW = re.compile(r"^CKPT_DRIVER_FUNCTION\((\w+), (\w+)\)", re.M)
NOBODYS = ["cuNobodyHasThis", "cuMemAlloc_v9", "cu"]
CUDA_ERROR_NO_DEVICE = 100


def without_version(name):
    return re.sub(r"(_v\d+)?(_ptsz|_ptds)?$", "", name)


def names_to_ask(tables, driver, nm):
    table = [name for path in tables for name, _ in ROW.findall(pathlib.Path(path).read_text())]
    lines = subprocess.run([nm, "-D", "--defined-only", driver], check=True, text=True,
                           stdout=subprocess.PIPE).stdout
    exported = {line.split()[2].split("@")[0] for line in lines.splitlines() if len(line.split()) == 3}
    beyond = sorted(name for name in exported - set(table) if name.startswith("cu"))
    asked = [f"{name} 1" for name in table] + [f"{name} 0" for name in beyond + NOBODYS]
    asked += [f"{name} 2" for name in sorted({without_version(name) for name in table}) + NOBODYS]
    return asked, len(set(table) - exported), len(beyond)


def answers(options, driver, names, shim):
    environment = dict(os.environ, LD_LIBRARY_PATH=str(pathlib.Path(driver).parent), LD_BIND_NOW="1")
    if shim is not None:
        environment["LD_PRELOAD"] = shim
    done = subprocess.run([options.answers, names, driver, *([shim] if shim else [])], env=environment,
                          text=True,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    if done.returncode != 0:
        sys.exit(f"answers ended with {done.returncode}, shim {shim}:\n{done.stderr[:4000]}")
    return done.stdout.splitlines()


def main():
    parser = argparse.ArgumentParser()
    for name in ("answers", "shim", "nm"):
        parser.add_argument(f"--{name}", required=True)
    parser.add_argument("--tables", nargs="+", required=True)
    parser.add_argument("--driver", help="the driver's library")
    parser.add_argument("--fetch", help="the script that prints where NVIDIA's library is")
    options = parser.parse_args()
    driver = options.driver
    if options.fetch:
        fetched = subprocess.run([options.fetch], text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                 check=False)
        if fetched.returncode == 2:
            print(f"SKIPPED: NVIDIA's driver library could not be had: {fetched.stderr.strip()}")
            return 77
        fetched.check_returncode()
        driver = fetched.stdout.strip()
    asked, lacking, beyond = names_to_ask(options.tables, driver, options.nm)
    with tempfile.NamedTemporaryFile("w", suffix=".names") as names:
        names.write("\n".join(asked) + "\n")
        names.flush()
        alone = answers(options, driver, names.name, None)
        shimmed = answers(options, driver, names.name, options.shim)
    print(f"{driver}: lacks {lacking} of the table's names, has {beyond} beyond it; {len(alone)} answers")
    if len(alone) < 10000:
        sys.exit("too few answers to be a comparison")
    for before, after in zip(alone, shimmed):
        if before != after:
            sys.exit(f"alone:      {before}\nwith shim:  {after}")
    if len(alone) != len(shimmed):
        sys.exit(f"{len(alone)} answers alone, {len(shimmed)} with the shim")
    if options.fetch and not os.path.exists("/dev/nvidiactl") and alone[0] != f"cuInit {CUDA_ERROR_NO_DEVICE}":
        sys.exit(f"without a GPU the library said: {alone[0]}")
    return 0


sys.exit(main())
