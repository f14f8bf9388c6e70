# SPDX-License-Identifier: Apache-2.0
"""A site made as docs/site/install.md describes it: every command is one of the page's, or one that the command before it
has printed. Firewalls let through only the ports that the page lists."""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

import cluster
from hosts import Hosts
from waiting import eventually

ROOT = pathlib.Path(__file__).resolve().parents[2]
# The system's Python is used: a host has no home folder that contains another Python.
PYTHON = "/usr/bin/python3" if os.access("/usr/bin/python3", os.X_OK) else sys.executable
NODES = ("node-a", "node-b")
PORTS = {"control": "7060, 7070", "node-a": "7071, 7072, 9402, 7100-7199", "node-b": "7071, 7072, 9402, 7100-7199"}
# The software driver's variables replace a real driver's files and environment.
SOFTWARE = {"LD_LIBRARY_PATH": f"{cluster.BUILD}/lib/cudasim", "CUDASIM_DIR": "/tmp/gpu", "CUDASIM_DEVICES": "1",
            "CUDASIM_MEMORY": "1GiB"}
READ_METRICS = """
import socket, ssl, sys
address, folder = sys.argv[1:]
context = ssl.create_default_context(cafile=folder + "/ca.pem")
context.load_cert_chain(folder + "/client.pem", folder + "/client.key")
with context.wrap_socket(socket.create_connection((address, 9402)), server_hostname=address) as stream:
    stream.sendall(b"GET /metrics HTTP/1.0\\r\\nHost: x\\r\\n\\r\\n")
    print(stream.makefile().read())
"""


class Site:
    def __init__(self):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="gm-site-", dir="/var/tmp"))
        self.hosts = Hosts(self.folder / "hosts")
        self.hosts.up(["control", *NODES], 2, [self.folder],
                      [ROOT, cluster.BUILD, pathlib.Path("~/.cache/gpumigrate").expanduser()])
        self.environment = {"PATH": f"{cluster.BIN}:{os.environ['PATH']}", "HOME": os.path.expanduser("~")}

    def down(self):
        self.hosts.down()
        shutil.rmtree(self.folder, ignore_errors=True)

    def run(self, host, line, **more):
        """A line in root's home folder on the host."""
        return subprocess.run([*self.hosts.enter(host), "sh", "-c", f"cd {self.environment['HOME']} && {line}"],
                              env=self.environment | more, capture_output=True, text=True,
                              timeout=cluster.COMMAND_LIMIT_S)

    def call(self, host, line, **more):
        result = self.run(host, line, **more)
        if result.returncode != 0:
            raise cluster.CommandError(result)
        return result.stdout

    def start(self, host, line, **more):
        self.call(host, f"setsid --fork {line} > daemon.log 2>&1 < /dev/null", **more)

    def file(self, host, path):
        """A file of the host's own /etc/gpumigrate."""
        return self.folder / "hosts" / host / "etc" / path

    def close(self, host):
        rules = (f"table inet site {{ chain input {{ type filter hook input priority 0; policy accept; iif lo accept\n"
                 f"tcp flags & (syn | ack) == syn tcp dport != {{ {PORTS[host]} }} counter reject with tcp reset\n}}\n}}\n")
        subprocess.run([*self.hosts.enter(host), "nft", "-f", "-"], input=rules, text=True, check=True, timeout=60)

    def refused(self, host):
        """Connections that the firewall has refused."""
        return int(re.search(r"counter packets (\d+)", self.call(host, "nft list table inet site")).group(1))

    def ready(self):
        result = self.run("control", "gpumigrate nodes -o json")
        return result.returncode == 0 and [node["state"] for node in cluster.json.loads(result.stdout)] == ["ready"] * 2

    def make(self):
        printed = self.call("control", f"gpumigrate cluster init --host {self.hosts.address('control')} --out /etc/gpumigrate")
        self.start("control", next_line(printed))
        eventually(lambda: self.run("control", "gpumigrate nodes").returncode == 0, "the coordinator answers")
        for node in NODES:
            token = self.call("control", re.search(r"(gpumigrate node token )NODE > token", printed).group(1) + node)
            self.file(node, "").mkdir(exist_ok=True)
            self.file(node, "token").write_text(token)
            line = re.search(r"gpumigrate node join token --address ADDRESS --out /etc/gpumigrate", printed).group()
            joined = self.call(node, "cd /etc/gpumigrate && " + line.replace("ADDRESS", self.hosts.address(node)))
            self.add_software_gpu(node)
            self.close(node)
            self.start(node, next_line(joined), **SOFTWARE)
        self.close("control")
        eventually(self.ready, "both nodes are ready")

    def add_software_gpu(self, node):
        settings = self.file(node, "agent.toml")
        self.call(node, "mkdir -p /tmp/gpu && touch /tmp/gpu/kernel.log")
        environment = ", ".join(f'"{name}={value}"' for name, value in SOFTWARE.items())
        settings.write_text(f'job_environment = [{environment}]\nkernel_log = "/tmp/gpu/kernel.log"\n'
                            f'driver_processes = ["cudasim-device"]\ndriver_files = ["/secretmem", "locks:/tmp/gpu/"]\nrehearsal = false\n'
                            + settings.read_text()
                            + f'\n[[network]]\nname = "fast"\naddress = "{self.hosts.address(node, 1)}"\n'
                              'transport = "ucx-trusted"\n')


def next_line(printed):
    return re.search(r"(?m)^Next: (.*?) \(or ", printed).group(1)


class SiteOfThreeMachines(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.site = Site()
        cls.addClassCleanup(cls.site.down)
        try:
            cls.site.make()
        except BaseException:
            for host in ("control", *NODES):
                print(host, cls.site.run(host, "tail -n 20 daemon.log").stdout, file=sys.stderr)
            raise

    def test_moves_and_images_use_only_the_listed_ports(self):
        self.site.call("control", "gpumigrate run --detach --cooperative --name job --node node-a -- "
                                  f"{cluster.EXAMPLES}/charlm --params 200000 --seed 3 --print-every 1 --steps 1000000")
        eventually(lambda: "step" in self.site.run("control", "gpumigrate logs job").stdout, "the job works")
        for target, network in (("node-b", "data"), ("node-a", "fast"), ("node-b", "fast"), ("node-a", "data")):
            report = cluster.json.loads(self.site.call(
                "control", f"gpumigrate migrate job --to {target} --network {network} --live -o json"))
            self.assertEqual((report["result"], report["network"]), ("done", network), report)
        self.site.call("control", "gpumigrate snapshot job --to node-b")
        self.assertEqual([self.site.refused(host) for host in ("control", *NODES)], [0, 0, 0])

    def test_certificate_of_a_joined_node_has_its_address(self):
        self.site.call("control", "gpumigrate cluster certificate --role viewer --out viewer")
        read = self.site.run("control", f"{PYTHON} -c '{READ_METRICS}' "
                                        f"{self.site.hosts.address('node-a')} viewer")
        self.assertEqual(read.returncode, 0, read.stderr)
        self.assertIn("gpumigrate_", read.stdout)


if __name__ == "__main__":
    unittest.main()
