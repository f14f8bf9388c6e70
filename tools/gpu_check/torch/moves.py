#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""moves.py [--json FILE] [CASE...]: PyTorch, unmodified, moved live there and back between two nodes on this machine's
GPU, and compared step by step with an unmoved run. From the bundle, as root. Exit status 1 if anything differs."""
import argparse
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
PROGRAMS = HERE.parents[1] / "bin"
TRAIN = [sys.executable, "-u", str(HERE / "train.py")]
CASES = {  # name: (arguments, environment)
    "eager": ([], {}),
    "expandable": (["--layers", "4"], {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}),
    "driver pool": (["--layers", "4"], {"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"}),
    "compile": (["--layers", "4", "--mode", "compile"], {}),
    "graph": (["--layers", "4", "--mode", "graph"], {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True"}),
    "workers": (["--layers", "4", "--workers", "2", "--pin"], {}),
}
STEPS_BEFORE, LONG, START_SECONDS, MOVE_SECONDS = 20, "1000000", 120, 120


class Failed(Exception):
    pass


def gpumigrate(*arguments, timeout=60):
    return subprocess.run([PROGRAMS / "gpumigrate", *arguments], capture_output=True, text=True, timeout=timeout)


def steps_of(text):
    """{step: its losses}, more than one if it was made twice."""
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


def run_case(name, arguments, environment):
    job = name.replace(" ", "-")
    variables = [word for pair in environment.items() for word in ("--env", "=".join(pair))]
    started = gpumigrate("run", "--detach", "--name", job, "--node", "node-a", *variables, "--",
                         *TRAIN, *arguments, "--steps", LONG)
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
    unmoved = subprocess.run([*TRAIN, *arguments, "--steps", str(max(moved))], capture_output=True, text=True,
                             env=dict(os.environ, **environment), timeout=600)
    if unmoved.returncode != 0:
        raise Failed(f"the unmoved run failed: {unmoved.stderr[-600:]}")
    expected = steps_of(unmoved.stdout)
    wrong = [step for step in range(1, max(moved) + 1) if moved.get(step) != expected.get(step)]
    if wrong:
        raise Failed(f"steps {wrong[:5]} differ from the unmoved run's, are missing, or were made twice")
    return {"steps": max(moved), "moves": reports}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", type=pathlib.Path)
    parser.add_argument("cases", nargs="*", metavar="CASE", choices=[*CASES, []], help=", ".join(CASES))
    options = parser.parse_args()
    os.environ["GPUMIGRATE_HOME"] = tempfile.mkdtemp(prefix="gm-torch-")
    up = gpumigrate("local", "up", "--nodes", "2")
    if up.returncode != 0:
        sys.exit(up.stderr)
    results = {}
    try:
        for name in options.cases or CASES:
            try:
                results[name] = run_case(name, *CASES[name])
                pauses = [round(report["downtime_ms"]) for report in results[name]["moves"]]
                print(f"{name}: {results[name]['steps']} steps as unmoved, downtime {pauses} ms", flush=True)
            except (Failed, subprocess.TimeoutExpired) as error:
                results[name] = {"failed": str(error)}
                print(f"{name}: failed: {error}", flush=True)
    finally:
        gpumigrate("local", "down")
        if options.json:
            options.json.write_text(json.dumps(results, indent=1))
    return int(any("failed" in result for result in results.values()))


if __name__ == "__main__":
    sys.exit(main())
