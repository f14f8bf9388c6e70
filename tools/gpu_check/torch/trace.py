#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""trace.py --out FOLDER [--json FILE] [CASE...]: the driver calls of PyTorch, or of the example runtime, written down in
FOLDER (CASE.PID.gz) and made again on the software GPU. From the bundle. Exit status 1 if a trace could not be made or not
be made again; what the software GPU answers differently is in the report."""
import argparse
import gzip
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
PROGRAMS = HERE.parents[1] / "bin"
LIBRARIES = HERE.parents[1] / "lib"
TRAIN = [HERE / "train.py", "--layers", "2", "--steps", "8"]
CASES = {  # what comes after the interpreter, or, of runtime, all
    "eager": TRAIN,
    "graph": [*TRAIN, "--mode", "graph"],
    "compile": [*TRAIN, "--mode", "compile"],
    "runtime": [PROGRAMS / "examples/runtime", "--steps", "40"],
}
MIN_CALLS = 1000  # fewer: the program was not traced
RUN_SECONDS, REPLAY_SECONDS = 140, 140  # together less than gpu-check gives the item
DIFFERS = 1  # exit code of gpumigrate-replay


class Failed(Exception):
    pass


def write_trace(command, name, folder):
    """The path of the trace with most calls. Processes that compile kernels have traces of their own."""
    environment = dict(os.environ, LD_PRELOAD=str(LIBRARIES / "libckpt_shim.so"), GPUMIGRATE_TRACE=str(folder / name))
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=RUN_SECONDS)
    if done.returncode != 0:
        raise Failed(f"the program failed under the shim: {done.stderr.strip()[-600:]}")
    traces = sorted(folder.glob(f"{name}.*"), key=lambda path: path.stat().st_size)
    if not traces:
        raise Failed("the program left no trace")
    return traces[-1]


def replay(trace, folder):
    """Returns the report of gpumigrate-replay on the trace, on the software GPU."""
    environment = dict(os.environ, LD_LIBRARY_PATH=str(LIBRARIES / "cudasim"), GPUMIGRATE_SOFTWARE_GPU="1",
                       CUDASIM_DIR=str(folder / "gpu"), CUDASIM_DEVICES="1", CUDASIM_MEMORY="64GiB")
    done = subprocess.run([PROGRAMS / "gpumigrate-replay", "--trace", trace, "--json"], env=environment, capture_output=True,
                          text=True, timeout=REPLAY_SECONDS)
    if done.returncode not in (0, DIFFERS):
        raise Failed(f"{trace.name} was not made again: {done.stderr.strip()[-600:]}")
    return json.loads(done.stdout)


def pack(trace, out):
    with open(trace, "rb") as source, gzip.open(out / f"{trace.name}.gz", "wb") as packed:
        shutil.copyfileobj(source, packed)


def run_case(python, name, out):
    command = CASES[name] if name == "runtime" else [python, *CASES[name]]
    with tempfile.TemporaryDirectory(prefix="gm-trace-") as folder:
        folder = pathlib.Path(folder)
        trace = write_trace(command, name, folder)
        pack(trace, out)  # first: it is worth most, and what follows may fail
        report = replay(trace, folder)
    if report["traced"] < MIN_CALLS:
        raise Failed(f"only {report['traced']} calls were traced")
    return report | {"trace": f"{trace.name}.gz"}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--python", default=sys.executable, help="the one that has PyTorch")
    parser.add_argument("cases", nargs="*", metavar="CASE", choices=[*CASES, []], help=", ".join(CASES))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    results = {}
    for name in options.cases or CASES:
        try:
            results[name] = run_case(options.python, name, options.out)
            print(f"{name}: {results[name]['replayed']} of {results[name]['traced']} calls made again,"
                  f" {len(results[name]['differences'])} answers of functions differ", flush=True)
        except (Failed, subprocess.TimeoutExpired) as error:
            results[name] = {"failed": str(error)}
            print(f"{name}: failed: {error}", flush=True)
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))
    return int(any("failed" in result for result in results.values()))


if __name__ == "__main__":
    sys.exit(main())
