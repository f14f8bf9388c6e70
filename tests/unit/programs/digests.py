#!/usr/bin/env python3
"""Runs an example twice with one seed and once with another: equal digests, then a different one.

usage: digests.py PROGRAM [ARGUMENT...]"""
import json
import subprocess
import sys


def digest(seed):
    command = sys.argv[1:] + ["--seed", str(seed), "--print-every", "0"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}: exit {done.returncode}: {done.stderr}")
    lines = done.stdout.splitlines()
    if len(lines) != 1:
        sys.exit(f"{' '.join(command)}: not one line: {done.stdout}")
    return json.loads(lines[0])["digest"]


def main():
    first, second, other = digest(1), digest(1), digest(2)
    if len(first) != 32 or first != second:
        sys.exit(f"one seed, two digests: {first} {second}")
    if first == other:
        sys.exit(f"two seeds, one digest: {first}")


main()
