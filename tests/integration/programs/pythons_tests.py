# SPDX-License-Identifier: Apache-2.0
"""Tests of Python's own library, which know nothing of moves, in a process with device memory:
`pythons_tests.py MODULE ...`. The last line is a JSON object: how many ran, and the names of those that failed."""
import json
import sys
import unittest

from python_job import BLOCKS, BLOCK_BYTES, Device


def main():
    device = Device(BLOCKS, BLOCK_BYTES)
    for step in range(100):
        device.change(step)
    print("step 1", flush=True)
    runner = unittest.TextTestRunner(stream=sys.stdout, verbosity=2)
    result = unittest.main(module=None, argv=sys.argv, exit=False, testRunner=runner).result
    device.compare()
    failed = sorted(test.id() for test, _ in result.failures + result.errors)
    print(json.dumps({"run": result.testsRun, "failed": failed}), flush=True)


if __name__ == "__main__":
    main()
