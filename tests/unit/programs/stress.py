#!/usr/bin/env python3
"""stress finds no error and prints the same line, results of failing calls included, with and without the
shim before the driver; a byte that was changed is found in both cases.

usage: stress.py PROGRAM SHIM"""
import json
import os
import subprocess
import sys

PROGRAM, SHIM = sys.argv[1:3]
SIZES = ["--most-bytes", "1MiB", "--memory", "128MiB"]


def run(arguments, shim):
    environment = dict(os.environ)
    if shim:
        environment["LD_PRELOAD"] = SHIM
    command = [PROGRAM] + arguments + SIZES
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, env=environment)
    where = f"{' '.join(command)} {'with' if shim else 'without'} the shim"
    # The loader reports a library that it cannot preload.
    if done.stderr or len(done.stdout.splitlines()) != 1:
        sys.exit(f"{where}: exit {done.returncode}: {done.stdout}{done.stderr}")
    return done.returncode, json.loads(done.stdout), where


def main():
    for seed in (1, 2):
        lines = []
        for shim in (False, True):
            code, line, where = run(["--steps", "100", "--seed", str(seed)], shim)
            if code != 0 or line["errors"] != 0:
                sys.exit(f"{where}: exit {code}: {line}")
            if line["checks"] < 800 or line["allocations"] < 400 or line["modules"] == 0:
                sys.exit(f"{where}: does too little: {line}")
            lines.append(line)
        if lines[0] != lines[1]:
            sys.exit(f"without the shim {lines[0]}\nwith it         {lines[1]}")
    for shim in (False, True):
        code, line, where = run(["--steps", "40", "--break-at", "20"], shim)
        if code != 1 or not 8 <= line["errors_found_by"]["kernel"]:
            sys.exit(f"{where}: changed bytes are not found: exit {code}: {line}")


main()
