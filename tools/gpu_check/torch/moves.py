#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Moves PyTorch live between two nodes on this machine's GPU, and back. `moves.py [--json FILE] [CASE...]` compares each
case step by step with an unmoved run. PyTorch runs unmodified (train.py), and with the package gpumigrate (package.py). It
runs from the bundle, as root. The exit status is 1 if anything differs."""
import argparse
import dataclasses
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
PROGRAMS = HERE.parents[1] / "bin"
WHEELS = HERE.parents[1] / "python"


@dataclasses.dataclass(frozen=True)
class Case:
    arguments: tuple = ()
    allocator: str = ""  # value of PYTORCH_CUDA_ALLOC_CONF
    program: str = "train.py"
    way: tuple = ()  # options of gpumigrate run


def four_layers(*more, **fields):
    return Case(("--layers", "4", *more), **fields)


def package(*arguments):
    return Case(arguments, program="package.py", way=("--cooperative",))


CASES = {
    "eager": Case(),
    "expandable": four_layers(allocator="expandable_segments:True"),
    "driver pool": four_layers(allocator="backend:cudaMallocAsync"),
    "compile": four_layers("--mode", "compile"),
    "graph": four_layers("--mode", "graph", allocator="expandable_segments:True"),
    "workers": four_layers("--workers", "2", "--pin"),
    "package": package(),
    "package compile": package("--layers", "4", "--mode", "compile", "--optimizer", "fused"),
}
SMALL = ("--layers", "1", "--width", "48", "--vocabulary", "500")
STEPS_BEFORE, LONG, START_SECONDS, MOVE_SECONDS = 20, "1000000", 120, 120


class Failed(Exception):
    pass


def gpumigrate(*arguments, timeout=60):
    return subprocess.run([PROGRAMS / "gpumigrate", *arguments], capture_output=True, text=True, timeout=timeout)


def steps_of(text):
    """Returns {step: its losses}. A step that ran twice has more than one loss."""
    steps = {}
    for number, loss in re.findall(r"^step (\d+) (\S+)$", text, re.M):
        steps.setdefault(int(number), []).append(loss)
    return steps


def wait_for_step(job, number):
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        text = gpumigrate("logs", job).stdout
        if max(steps_of(text), default=0) >= number:
            return
        if gpumigrate("wait", job, "--timeout", "1s").returncode != 124:
            raise Failed(f"{job} ended before step {number}: {text[-1000:]}")
    raise Failed(f"{job} did not reach step {number} within {START_SECONDS} s")


def move(job, place):
    result = gpumigrate("migrate", job, "--to", place, "--live", "--max-downtime", "60s", "-o", "json",
                        timeout=MOVE_SECONDS)
    if result.returncode != 0:
        raise Failed(f"move to {place}: {result.stderr.strip()[-600:]}")
    return json.loads(result.stdout)


def environment_of(case, packages):
    """Returns the environment of a case. The package's wheel is unpacked in the folder `packages`."""
    environment = {"PYTHONUNBUFFERED": "1"}
    if case.allocator:
        environment["PYTORCH_CUDA_ALLOC_CONF"] = case.allocator
    if case.program == "package.py":
        environment["PYTHONPATH"] = packages
    return environment


def run_case(name, case, python, packages, small):
    job = name.replace(" ", "-")
    environment = environment_of(case, packages)
    variables = [word for pair in environment.items() for word in ("--env", "=".join(pair))]
    command = [python, str(HERE / case.program), *case.arguments, *small]
    started = gpumigrate("run", "--detach", "--name", job, "--node", "node-a", *case.way, *variables, "--",
                         *command, "--steps", LONG)
    if started.returncode != 0:
        raise Failed(started.stderr.strip())
    reports = []
    try:
        for place in ("node-b", "node-a"):
            wait_for_step(job, max(steps_of(gpumigrate("logs", job).stdout), default=0) + STEPS_BEFORE)
            reports.append(move(job, place))
        wait_for_step(job, max(steps_of(gpumigrate("logs", job).stdout)) + STEPS_BEFORE)
        moved = steps_of(gpumigrate("logs", job).stdout)
    finally:
        gpumigrate("stop", job)
    unmoved = subprocess.run([*command, "--steps", str(max(moved))], capture_output=True, text=True,
                             env=dict(os.environ, **environment), timeout=600)
    if unmoved.returncode != 0:
        raise Failed(f"the unmoved run failed: {unmoved.stderr[-600:]}")
    expected = steps_of(unmoved.stdout)
    wrong = [step for step in range(1, max(moved) + 1) if moved.get(step) != expected.get(step)]
    if wrong:
        raise Failed(f"steps {wrong[:5]} differ from the unmoved run's, are missing, or were made twice")
    return {"steps": max(moved), "moves": reports}


def pause_of(report):
    bound = "" if report["bound_ms"] is None else f" (bound {report['bound_ms']:.1f} by {report['bound_by']})"
    return f"{report['downtime_ms']:.1f}{bound}"


def summary_of(name, result):
    return f"{name}: {result['steps']} steps as unmoved, downtime in ms: {', '.join(map(pause_of, result['moves']))}"


def run_cases(options, packages):
    results = {}
    for name in options.cases or CASES:
        try:
            results[name] = run_case(name, CASES[name], options.python, packages, SMALL if options.small else ())
            print(summary_of(name, results[name]), flush=True)
        except (Failed, subprocess.TimeoutExpired) as error:
            results[name] = {"failed": str(error)}
            print(f"{name}: failed: {error}", flush=True)
    return results


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("--python", default=sys.executable, help="the Python that has PyTorch")
    parser.add_argument("--small", action="store_true", help="use a small model, for tests on the processor; only for the cases of package")
    parser.add_argument("cases", nargs="*", metavar="CASE", choices=[*CASES, []], help=", ".join(CASES))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gm-torch-") as folder:
        for wheel in WHEELS.glob("gpumigrate-*.whl"):
            zipfile.ZipFile(wheel).extractall(f"{folder}/packages")
        os.environ["GPUMIGRATE_HOME"] = f"{folder}/home"
        os.mkdir(f"{folder}/home", 0o700)
        up = gpumigrate("local", "up", "--nodes", "2")
        if up.returncode != 0:
            sys.exit(up.stderr)
        try:
            results = run_cases(options, f"{folder}/packages")
        finally:
            gpumigrate("local", "down")
    if options.json:
        options.json.write_text(json.dumps(results, indent=1))
    return int(any("failed" in result for result in results.values()))


if __name__ == "__main__":
    sys.exit(main())
