# SPDX-License-Identifier: Apache-2.0
"""A cluster over hosts (hosts.py): the coordinator and the command on host `control`, each node on a host of
its own name. A host sees of the cluster's folder only what is its own: daemons talk over the network alone.
It stands in for support/cluster.py's Cluster, so suites of tests/integration run over hosts as well
(GPUMIGRATE_TEST_HOSTS=1)."""
import contextlib
import os
import pathlib
import re
import shutil
import subprocess
import tempfile

import cluster
import hosts
from waiting import eventually

CONTROL = "control"
API_PORT, AGENT_PORT, PEER_PORT = 7060, 7070, 7071
DEVICES = pathlib.Path("/tmp/gpu")
ROOT = pathlib.Path(__file__).resolve().parents[2]


class HostProcess(subprocess.Popen):
    """A command on a host. Signals go to itself, not to the nsenter that waits for it."""

    def there(self):
        return hosts.first_child(self.pid)

    def send_signal(self, sig):
        with contextlib.suppress(OSError, IndexError):
            os.kill(self.there(), sig)
            return
        super().send_signal(sig)

    def kill(self):
        self.send_signal(9)


class ShellsProcess(HostProcess):
    """A command whose parent is a shell on the host."""

    def there(self):
        return hosts.first_child(super().there())


class HostCluster(cluster.Cluster):
    def __init__(self, nodes=2, gpus=1, memory="2GiB", agent_settings="", coordinator_settings="",
                 transports=("tls",)):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="gm-hosts-", dir="/var/tmp"))
        self.home = self.folder / "cluster"
        self.faults = self.home / "faults"
        self.faults.mkdir(parents=True)
        self.stopping = set()
        self.nodes, self.gpus, self.memory = nodes, gpus, memory
        self.agent_settings, self.coordinator_settings = agent_settings, coordinator_settings
        self.transports = transports  # the transports of the hosts' networks
        self.environment = dict(os.environ, GPUMIGRATE_HOME=str(self.home), CKPT_FAULT_DIR=str(self.faults),
                                GPUMIGRATE_SOFTWARE_GPU="1")
        self.hosts = hosts.Hosts(self.folder / "hosts")
        (self.home / "coordinator").mkdir()
        self.shared.mkdir()
        for node in [*self.names(), *self.strangers]:
            (self.home / "nodes" / node / "gpu").mkdir(parents=True)
        self.hosts.up([CONTROL, *self.names(), *self.strangers], len(transports), [self.folder], self.shown)
        self.certify()
        self.up()

    strangers = ()  # hosts without a daemon

    def certify(self):
        """As an operator does it, who then copies each node's folder there."""
        authority = self.home / "coordinator" / "tls"
        self.gpumigrate("cluster", "init", "--folder", authority, "--host", self.hosts.address(CONTROL))
        for node in self.names():
            self.gpumigrate("node", "certificate", node, "--folder", authority, "--out", self.tls_folder(node))

    def gpumigrate(self, *arguments):
        """Runs a command on the machine of the hosts, outside of them: it asks no coordinator."""
        subprocess.run([cluster.BIN / "gpumigrate", *map(str, arguments)], env=self.environment, check=True,
                       capture_output=True, timeout=cluster.COMMAND_LIMIT_S)

    def tls_folder(self, host):
        return self.config(host).with_name("tls")

    def security(self, host):
        """The settings of a daemon, which stand last in its file."""
        name = "coordinator" if host == CONTROL else "node"
        folder = self.tls_folder(host)
        return f'[tls]\nca = "{folder}/ca.pem"\ncertificate = "{folder}/{name}.pem"\nkey = "{folder}/{name}.key"\n'

    def names(self):
        return [f"node-{letter}" for letter in "abcdefghijklmnopqrstuvwxyz"[:self.nodes]]

    def shown(self, host):
        own = self.home / "coordinator" if host == CONTROL else self.home / "nodes" / host
        all_have = [ROOT, cluster.BUILD, pathlib.Path("~/.cache/gpumigrate").expanduser(), self.faults, self.shared,
                    own]
        # As with a real driver's devices, the software driver's devices have the same names on every host.
        return all_have if host == CONTROL else [*all_have, (own / "gpu", DEVICES)]

    @property
    def shared(self):
        return self.home / "shared"

    image_place = "node-b"

    @property
    def addresses(self):
        return {"127.0.0.1", *(self.hosts.address(host) for host in [CONTROL, *self.names()])}

    def start_by_hand(self, node, command, output, **options):
        # The command runs in a session of its own, with files that were opened in the host. Files of this
        # process do not belong to the host. The parent is a shell, since nsenter stops when its child is
        # stopped.
        shell = ('cd "$0"; out=$1; shift; setsid "$@" </dev/null >"$out" 2>&1 & wait $!; code=$?; '
                 '[ $code -le 128 ] || kill -$((code - 128)) $$; exit $code')
        process = ShellsProcess([*self.hosts.enter(node), "sh", "-c", shell, str(self.shared), str(output), *command],
                                **options)
        eventually(lambda: self.is_started(process, command[0]), "the process is started")
        return process, (self.pid_there(process.there()), "--node", node)

    @staticmethod
    def pid_there(pid):
        status = pathlib.Path(f"/proc/{pid}/status").read_text()
        return int(re.search(r"^NSpid:.*\s(\d+)$", status, re.M).group(1))

    def pid_here(self, node, pid):
        space = os.readlink(f"/proc/{self.hosts.pid(node)}/ns/pid")
        for own in self.processes():
            with contextlib.suppress(OSError):
                if os.readlink(f"/proc/{own}/ns/pid") == space and self.pid_there(own) == pid:
                    return own
        raise AssertionError(f"Process {pid} of {node} is not there")

    @staticmethod
    def is_started(process, program):
        with contextlib.suppress(OSError, IndexError):
            return os.readlink(f"/proc/{process.there()}/exe") == os.path.realpath(program)
        return False

    # Daemons

    def up(self):
        """Starts what does not run, and waits until all nodes are ready."""
        if not self.daemon("gpumigrate-coordinator", CONTROL):
            self.start_coordinator()
        for node in self.names():
            if not self.daemon("gpumigrate-agent", node):
                self.start_agent(node)
        eventually(self.all_ready, "all nodes are ready")

    def all_ready(self):
        result = self.run("nodes", "-o", "json")
        if result.returncode != 0:
            return False
        ready = [node["name"] for node in cluster.json.loads(result.stdout) if node["state"] == "ready"]
        return sorted(ready) == self.names()

    def daemon(self, program, host):
        config = str(self.config(host))
        return any(command.startswith(str(cluster.BIN / program)) and config in command
                   for command in self.processes().values())

    def config(self, host):
        if host == CONTROL:
            return self.home / "coordinator" / "coordinator.toml"
        return self.home / "nodes" / host / "agent.toml"

    def start_coordinator(self):
        address = self.hosts.address(CONTROL)
        self.config(CONTROL).write_text(f'home = "{self.home}"\n'
                                        f'api_address = "{address}:{API_PORT}"\n'
                                        f'agent_address = "{address}:{AGENT_PORT}"\n'
                                        + self.coordinator_settings + "\n" + self.security(CONTROL))
        self.start_daemon(CONTROL, "gpumigrate-coordinator", {})
        token = self.home / "coordinator" / "agent-token"
        eventually(token.exists, "the coordinator has written its token")
        for node in self.names():
            shutil.copy(token, self.home / "nodes" / node / "agent-token")

    def restart_agent(self, node, without=()):
        """`without`: numbers of networks that it no longer has."""
        self.end_daemon(node)
        self.start_agent(node, without)

    def end_daemon(self, host):
        for pid, command in self.processes().items():
            if str(self.config(host)) in command:
                end = os.pidfd_open(pid)
                os.kill(pid, 9)
                cluster.wait_for_end(end, cluster.COMMAND_LIMIT_S)
                os.close(end)

    def start_agent(self, node, without=()):
        folder = self.home / "nodes" / node
        (folder / "gpu" / "kernel.log").touch(0o600)
        lines = ", ".join(f'"{name}={value}"' for name, value in self.gpu_environment(node).items())
        rehearsal = "" if "rehearsal" in self.agent_settings else "rehearsal = false\n"
        self.config(node).write_text(
            f'node = "{node}"\nhome = "{folder}"\n'
            f'coordinator = "{self.hosts.address(CONTROL)}:{AGENT_PORT}"\n'
            f'token_file = "{folder}/agent-token"\n'
            f'metrics_address = "{self.metrics_address(node)}"\n'
            f'driver_processes = ["cudasim-device"]\ndriver_files = ["/secretmem", "locks:{DEVICES}/"]\nkernel_log = "{folder}/gpu/kernel.log"\n'
            f'peer_listen = "{self.hosts.address(node)}:{PEER_PORT}"\n'
            f'job_environment = [{lines}]\n{rehearsal}{self.agent_settings}\n' + self.network_settings(node, without)
            + self.security(node))
        self.start_daemon(node, "gpumigrate-agent", self.gpu_environment(node))

    def metrics_address(self, node):
        return "127.0.0.1:0"

    def gpu_environment(self, node):
        """The variables of the software driver, for the agent and for its jobs."""
        return {"LD_LIBRARY_PATH": f"{cluster.BUILD}/lib/cudasim:{cluster.BUILD}/lib/ncclsim",
                "CUDASIM_DIR": str(DEVICES), "CUDASIM_DEVICES": str(self.gpus),
                "CUDASIM_MEMORY": self.memory}

    def network_settings(self, node, without):
        """Every network of the hosts that has a transport, the first preferred."""
        return "".join(f'[[network]]\nname = "net{network}"\naddress = "{self.data_address(node, network)}"\n'
                       f'transport = "{self.transports[network]}"\n'
                       for network in range(len(self.transports))
                       if network not in without and self.transports[network])

    def data_address(self, node, network):
        return self.hosts.address(node, network)

    def start_daemon(self, host, program, environment):
        log = self.config(host).with_name(f"{program}.log")
        # The host's init process becomes the parent, so no part of this process remains in the daemon.
        command = [*self.hosts.enter(host), "setsid", "--fork", cluster.BIN / program, "--config",
                   self.config(host)]
        with log.open("ab") as output:
            subprocess.run(list(map(str, command)), env=self.environment | environment, check=True,
                           stdin=subprocess.DEVNULL, stdout=output, stderr=output)

    def down(self):
        self.hosts.down()
        if not os.environ.get("GPUMIGRATE_KEEP"):
            shutil.rmtree(self.folder, ignore_errors=True)

    # The command

    def words(self, *arguments):
        return [*self.hosts.enter(CONTROL, self.home), str(cluster.BIN / "gpumigrate"), *map(str, arguments)]

    def run(self, *arguments, limit=cluster.COMMAND_LIMIT_S):
        if arguments[:2] == ("local", "up"):
            self.up()
            return subprocess.CompletedProcess(arguments, 0, "", "")
        return subprocess.run(self.words(*arguments), env=self.environment, capture_output=True, text=True,
                              timeout=limit)

    def popen(self, *arguments):
        return HostProcess(self.words(*arguments), env=self.environment, stdout=subprocess.PIPE,
                           stderr=subprocess.PIPE, text=True)

    def processes(self):
        return {pid: command for pid, command in super().processes().items()
                if not command.startswith("nsenter ")}


class Ipv6Cluster(HostCluster):
    """Its data networks have IPv6 addresses."""

    def data_address(self, node, network):
        return self.hosts.address6(node, network)


class SpreadCluster(HostCluster):
    """One network, `data`, with an address in each of the hosts' networks."""

    def network_settings(self, node, without):
        own = [self.hosts.address(node, network) for network in range(len(self.transports))
               if network not in without]
        return (f'[[network]]\nname = "data"\naddresses = {cluster.json.dumps(own)}\n'
                f'transport = "{self.transports[0]}"\n')


class HostsTest(cluster.ClusterTest):
    """A test case with its own hosts."""

    kind = HostCluster
    transports = ("tls",)

    def setUp(self):
        self.cluster = self.kind(self.nodes, self.gpus, self.memory, self.agent_settings,
                                 self.coordinator_settings, self.transports)
        self.addCleanup(self.cluster.down)
        self.addCleanup(self.show_logs_of_a_failure)
