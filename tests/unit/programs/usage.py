#!/usr/bin/env python3
"""Bad arguments end an example with exit code 64 and one line. usage: usage.py BIN_FOLDER"""
import subprocess
import sys

CASES = [
    ["hotset", "--bytes", "1000"], ["hotset", "--bytes", "2Gib"], ["hotset", "--hot", "2"],
    ["hotset", "--hot", "101%"],
    ["hotset", "--pattern", "none"], ["hotset", "--pattern", "append", "--drift", "1%"],
    ["hotset", "--steps", "-1"],
    ["hotset", "--step-ms", "-5"], ["hotset", "--append-bytes", "1GiB", "--bytes", "1MiB"],
    ["hotset", "extra"],
    ["serve", "--weights", "0"], ["serve", "--cache", "1KiB"], ["serve", "--requests", "x"],
    ["charlm", "--params", "3"], ["charlm", "--steps", "x"], ["charlm", "--frobnicate"],
    ["stress", "--threads", "0"], ["stress", "--most-bytes", "0"],
    ["stress", "--steps", "1", "--seconds", "1"],
    ["stress", "--most-bytes", "1GiB", "--memory", "1GiB"], ["stress", "--seconds", "-1"],
    ["stress", "extra"],
]


def main():
    for case in CASES:
        done = subprocess.run([f"{sys.argv[1]}/{case[0]}"] + case[1:], capture_output=True, text=True,
                              timeout=60)
        if done.returncode != 64 or done.stderr.count("\n") != 1 or not done.stderr.startswith(case[0]
                                                                                               + ": "):
            sys.exit(f"{case}: exit {done.returncode}, {done.stderr!r}")


main()
