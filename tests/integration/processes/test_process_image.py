# SPDX-License-Identifier: Apache-2.0
"""CRIU's image of a moved process holds its host memory and nothing of the GPU's, and the descriptors that it
had before the shim's were closed. CRIU runs behind a script that keeps a copy
of the image. Needs root and CRIU."""
import os
import pathlib
import re
import shutil
import struct
import tempfile
import unittest
import unittest.mock

from cluster import EXAMPLES, ClusterTest
from crashing_processes import find_criu

PARAMETERS = 4_000_000  # each parameter uses 16 bytes of device memory: value, gradient, two moments
OWN_FILE = "/etc/hostname"
SLACK = 4 << 20  # memory that a process maps between its inspection and its dump
REGULAR_FILE = 1  # the value of REG in CRIU's FdTypes
DRIVER_LISTENER = "the driver's listener"

# A wrapper of CRIU that stores a copy of each dump. For other verbs the script must become CRIU. CRIU
# restores a process as its own sibling, which ends with their parent.
WRAPPER = """#!/bin/sh
[ "$1" = dump ] || exec "{criu}" "$@"
"{criu}" "$@"
status=$?
if [ "$status" = 0 ]; then
  while [ "$1" != --images-dir ]; do shift; done
  cp -rL "$2" "{tools}/image"
fi
exit "$status"
"""


def numbers_and_bytes(message):
    """The fields of a protobuf message: {number: [value, ...]}; a value is an int or bytes."""
    fields, at = {}, 0

    def varint():
        nonlocal at
        value, shift = 0, 0
        while True:
            byte = message[at]
            at += 1
            value |= (byte & 127) << shift
            shift += 7
            if byte < 128:
                return value

    while at < len(message):
        key = varint()
        kind = key & 7
        if kind == 0:
            value = varint()
        else:
            size = {1: 8, 5: 4}.get(kind) or varint()
            value, at = message[at:at + size], at + size
        fields.setdefault(key >> 3, []).append(value)
    return fields


def records(path):
    """The records of one of CRIU's files: two magic numbers, then size and message, again and again."""
    content, at = path.read_bytes(), 8
    while at < len(content):
        size, = struct.unpack_from("<I", content, at)
        yield numbers_and_bytes(content[at + 4:at + 4 + size])
        at += 4 + size


class ProcessImage(ClusterTest):
    @classmethod
    def setUpClass(cls):
        cls.criu = find_criu()
        if os.geteuid() != 0:
            raise unittest.SkipTest("moving a process needs root")
        if not cls.criu:
            raise unittest.SkipTest("there is no CRIU: tools/criu install")

    def setUp(self):
        self.tools = pathlib.Path(tempfile.mkdtemp(prefix="gm-criu-"))
        self.addCleanup(shutil.rmtree, self.tools)
        wrapper = self.tools / "criu"
        wrapper.write_text(WRAPPER.format(tools=self.tools, criu=self.criu))
        wrapper.chmod(0o755)
        with unittest.mock.patch.dict(os.environ, GPUMIGRATE_CRIU=str(wrapper)):
            super().setUp()

    def processes_of_the_job(self):
        """[init, program]"""
        program = (EXAMPLES / "charlm-plain").resolve()
        found = [pid for pid in self.cluster.processes()
                 if pathlib.Path(f"/proc/{pid}/exe").resolve() == program]
        self.assertEqual(len(found), 1, self.cluster.processes())
        parent = int(re.search(r"^PPid:\s+(\d+)", pathlib.Path(f"/proc/{found[0]}/status").read_text(),
                               re.M)[1])
        return [parent, found[0]]

    def host_bytes(self, pids):
        total = 0
        for pid in pids:
            status = pathlib.Path(f"/proc/{pid}/status").read_text()
            total += sum(int(kib) << 10 for kib in re.findall(r"^(?:RssAnon|RssShmem|VmSwap):\s+(\d+) kB",
                                                              status, re.M))
        return total

    def own_files(self, pid):
        """Descriptors that are neither sockets nor nameless nor the driver's: {number: path}."""
        links = {int(link.name): os.readlink(link) for link in pathlib.Path(f"/proc/{pid}/fd").iterdir()}
        own = {number: link for number, link in links.items() if link.startswith("/")
               and not link.startswith("/memfd:")}
        # Files that are closed when the driver saves the context.
        drivers = (str(self.cluster.home / "nodes" / "node-a" / "gpu"), "/secretmem")
        return {number: link for number, link in own.items() if not link.startswith(drivers)}

    def test_process_image_contains_no_device_memory_and_no_shim_descriptors(self):
        self.cluster.call("run", "--detach", "--name", "job", "--node", "node-a", "--", "/bin/bash", "-c",
                          f"exec 7<{OWN_FILE}; exec {EXAMPLES / 'charlm-plain'} --params {PARAMETERS} --steps 100000 --print-every 1")
        self.cluster.wait_for_line("job", r"^step \d+")
        plan = self.cluster.run("migrate", "job", "--to", "node-b", "--dry-run")
        if plan.returncode != 0 and "host processes" in plan.stdout + plan.stderr:
            self.skipTest((plan.stdout + plan.stderr).strip())
        processes = self.processes_of_the_job()
        host_bytes = self.host_bytes(processes)
        listed = [self.own_files(pid) for pid in processes]
        self.assertEqual(listed[1][7], OWN_FILE)
        report = self.cluster.migrate("job", "node-b")
        self.cluster.call("stop", "job", "--grace", "0s")
        self.assertEqual(report["result"], "done", report)

        image = self.tools / "image"
        pages = sum(path.stat().st_size for path in image.glob("pages-*.img"))
        everything = sum(path.stat().st_size for path in image.iterdir())
        # Otherwise the comparison of the sizes would prove nothing.
        self.assertGreater(report["state_bytes"], 2 * (host_bytes + SLACK),
                           "the program needs more device memory")
        self.assertGreater(pages, 0)
        self.assertLessEqual(everything, host_bytes + SLACK,
                             "the image holds more than the program's host memory")

        files = {}
        for record in records(image / "files.img"):
            regular = numbers_and_bytes(record[3][0]) if 3 in record else {}
            # The driver's listening socket stays open during the driver's checkpoint.
            listener = 16 in record and numbers_and_bytes(record[16][0])[11][0].startswith(b"\0cuda-uvmfd-")
            name = DRIVER_LISTENER if listener else regular.get(6, [b""])[0].decode()
            files[record[2][0]] = (record[1][0], name)
        dumped = []
        for path in image.glob("fdinfo-*.img"):
            numbers = {}
            for record in records(path):
                kind, name = files[record[1][0]]
                if name == DRIVER_LISTENER:
                    continue
                self.assertEqual(kind, REGULAR_FILE, f"{path.name}: {record}")
                numbers[record[4][0]] = name
            dumped.append(numbers)
        self.assertEqual(sorted(dumped, key=len), sorted(listed, key=len))
