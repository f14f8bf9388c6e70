# SPDX-License-Identifier: Apache-2.0
"""Makes hosts on one machine, for `tools/hosts` and for the tests of this folder.

  tools/hosts up --hosts 3 [--networks 2]     makes host-1 to host-3, joined by bridges
  tools/hosts exec HOST -- CMD...             runs a command there and exits with its status
  tools/hosts list                            lists the hosts' addresses, cuts and limits
  tools/hosts cut HOST [HOST2] [--network K]  drops all packets of HOST, or those between the two
  tools/hosts restore HOST [HOST2] [--network K]  withdraws the same `cut`
  tools/hosts limit HOST RATE                 limits its rate to 1gbit, 100mbit ...; `none` removes the limit
  tools/hosts lose HOST PERCENT               drops this share of its packets; 0 ends that
  tools/hosts down                            ends every process of the hosts and removes them

--folder D (before the verb) names the folder of all its files. Several sets of hosts can run side by side.

A host is a network, mount, PID, IPC and UTS namespace with an init process. It has its own addresses, host name,
/dev/shm, /tmp, home folder and /etc/gpumigrate. The bridges are in a network namespace of their own, so
nothing of the machine's network changes. Network K gives host N the addresses 10.77.K.N and fd77:K::N on its
device netK. The script needs root, iproute2, nftables and util-linux. tbf limits links, and nftables on the bridge cuts
them and makes them lossy. The hosts see no lost carrier, as with a switch that fails.

Hosts share the kernel, the clock, /proc/sys and the rest of the file system. tools/hosts is for trying networks, not for
keeping users apart."""
import argparse
import contextlib
import ctypes
import fcntl
import json
import os
import pathlib
import select
import shutil
import signal
import subprocess
import sys

DEFAULT_FOLDER = pathlib.Path("/var/tmp/gpumigrate-hosts")
START_LIMIT_S = 30


class HostsError(Exception):
    pass


def call(*command, text=None):
    """Runs one of the machine's tools. Its own message is the error."""
    result = subprocess.run([str(part) for part in command], capture_output=True, text=True, input=text,
                            timeout=START_LIMIT_S)
    if result.returncode != 0:
        raise HostsError(f"{' '.join(map(str, command))}: {(result.stderr or result.stdout).strip()}")
    return result.stdout


def first_child(pid):
    return int(pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()[0])


class Hosts:
    """One set of hosts. Its state is in FOLDER/hosts.json, so any process can continue with it."""

    def __init__(self, folder=DEFAULT_FOLDER):
        self.folder = pathlib.Path(folder)
        self.state = {"switch": 0, "networks": 0, "hosts": {}, "cuts": [], "losses": {}, "limits": {}}
        with contextlib.suppress(FileNotFoundError):
            self.state = json.loads((self.folder / "hosts.json").read_text())

    def save(self):
        new = self.folder / "hosts.json.new"
        new.write_text(json.dumps(self.state, indent=1))
        new.rename(self.folder / "hosts.json")

    # Paths of hosts

    def pid(self, host):
        """Returns the id of the host's init process, in this process's PID namespace."""
        if host not in self.state["hosts"]:
            known = ", ".join(self.state["hosts"]) or "none is up"
            raise HostsError(f"no host '{host}': {known}")
        return self.state["hosts"][host]["pid"]

    def number(self, host):
        self.pid(host)
        return self.state["hosts"][host]["number"]

    def address(self, host, network=0):
        return f"10.77.{network}.{self.number(host)}"

    def address6(self, host, network=0):
        return f"fd77:{network}::{self.number(host)}"

    def port(self, host, network):
        """Returns the host's device on the bridge's side."""
        return f"h{self.number(host)}n{network}"

    def enter(self, host, folder="/"):
        """Returns the words that precede a command to run it on the host."""
        return ["nsenter", "--target", str(self.pid(host)), "--all", f"--wd={folder}", "--"]

    def switch(self, *command, text=None):
        return call("nsenter", "--target", self.state["switch"], "--net", "--", *command, text=text)

    # Creating hosts

    def up(self, names, networks=1, hidden=(), shown=()):
        """Makes the hosts. `hidden` has folders that are empty on every host. `shown`, or `shown(name)`, has folders of the
        machine that stay visible even where others are hidden or private. A pair is a folder and its place on the host."""
        if self.state["hosts"]:
            raise HostsError(f"hosts are up already in {self.folder}: end them with `tools/hosts down`")
        if os.geteuid() != 0:
            raise HostsError("making network namespaces needs root")
        for program in ("ip", "tc", "nft", "nsenter", "unshare"):
            if shutil.which(program) is None:
                raise HostsError(f"no program '{program}' here: install iproute2, nftables and util-linux")
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            self.make_switch(networks)
            for number, name in enumerate(names, 1):
                self.make_host(name, number, hidden, shown(name) if callable(shown) else shown)
        except BaseException:
            self.down()
            raise

    def make_switch(self, networks):
        holder = self.start(["unshare", "--net", "--fork", "--kill-child", sys.executable, __file__, "init"])
        self.state.update(switch=holder["pid"], holder=holder["holder"], networks=networks)
        self.save()
        self.switch("ip", "link", "set", "lo", "up")
        for network in range(networks):
            self.switch("ip", "link", "add", f"net{network}", "type", "bridge")
            self.switch("ip", "link", "set", f"net{network}", "up")

    def make_host(self, name, number, hidden, shown):
        private = self.folder / name
        for folder in ("tmp", "home", "etc"):
            (private / folder).mkdir(parents=True, exist_ok=True)
        pairs = [entry if isinstance(entry, tuple) else (entry, entry) for entry in shown]
        order = {"name": name, "private": str(private), "home": os.path.expanduser("~"),
                 "hidden": [str(path) for path in hidden],
                 "shown": [[str(path), str(at)] for path, at in pairs]}
        flags = ["--net", "--mount", "--uts", "--ipc", "--pid", "--mount-proc"]
        started = self.start(["unshare", *flags, "--fork", "--kill-child", sys.executable, __file__, "init",
                              json.dumps(order)])
        self.state["hosts"][name] = {"number": number, **started}
        self.save()
        for network in range(self.state["networks"]):
            self.connect(name, network)

    def connect(self, name, network):
        port, pid = self.port(name, network), self.pid(name)
        device = f"net{network}"
        # The peer gets its name after it has moved, since a bridge here has the same name.
        self.switch("ip", "link", "add", port, "type", "veth", "peer", "name", f"p{port}", "netns", pid)
        self.switch("ip", "link", "set", port, "master", device)
        self.switch("ip", "link", "set", port, "up")
        inside = ["nsenter", "--target", pid, "--net", "--"]
        call(*inside, "ip", "link", "set", f"p{port}", "name", device)
        call(*inside, "ip", "addr", "add", f"{self.address(name, network)}/24", "dev", device)
        call(*inside, "ip", "addr", "add", f"{self.address6(name, network)}/64", "dev", device, "nodad")
        call(*inside, "ip", "link", "set", device, "up")

    def start(self, command):
        """Starts an init process and waits until it has mounted its files."""
        ready, theirs = os.pipe()
        log = open(self.folder / "init.log", "ab")
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=theirs, stderr=log,
                                   start_new_session=True)
        os.close(theirs)
        log.close()
        with os.fdopen(ready) as answer:
            if answer.readline() != "ready\n":
                words = (self.folder / "init.log").read_text()[-500:]
                raise HostsError(f"a host could not be made: {words}")
        return {"pid": first_child(process.pid), "holder": process.pid}

    # Using hosts

    def run(self, host, *command, folder="/", **options):
        return subprocess.run([*self.enter(host, folder), *map(str, command)], check=False, **options)

    def cut(self, host, other=None, network=None):
        """Drops all packets of the host, or those between the two, on all networks or on one."""
        self.pid(host)
        if other is not None:
            self.pid(other)
        cut = [*sorted([host, other or ""]), network]
        if cut not in self.state["cuts"]:
            self.state["cuts"].append(cut)
        self.write_rules()

    def restore(self, host, other=None, network=None):
        gone = [*sorted([host, other or ""]), network]
        self.state["cuts"] = [cut for cut in self.state["cuts"] if cut != gone]
        self.write_rules()

    def lose(self, host, percent):
        self.pid(host)
        self.state["losses"][host] = percent
        self.write_rules()

    def limit(self, host, rate):
        """Limits both directions: the packets that the bridge sends to the host, and those that it sends."""
        self.state["limits"][host] = rate
        self.save()
        for network in range(self.state["networks"]):
            ends = [(self.switch, self.port(host, network)),
                    (lambda *words: call("nsenter", "--target", self.pid(host), "--net", "--", *words),
                     f"net{network}")]
            for at, device in ends:
                with contextlib.suppress(HostsError):  # the device had no queueing discipline
                    at("tc", "qdisc", "del", "dev", device, "root")
                if rate != "none":
                    at("tc", "qdisc", "add", "dev", device, "root", "tbf", "rate", rate, "burst", "1mb",
                       "latency", "50ms")

    def ports(self, host, network=None):
        """Returns the host's devices as a set of nftables."""
        networks = range(self.state["networks"]) if network is None else [network]
        return "{ " + ", ".join(f'"{self.port(host, number)}"' for number in networks) + " }"

    def write_rules(self):
        """Replaces all rules, in one step."""
        self.save()
        rules = []
        for one, other, network in self.state["cuts"]:
            ends = self.ports(other, network)
            if one == "":
                rules += [f"iifname {ends} drop", f"oifname {ends} drop"]
            else:
                others = self.ports(one, network)
                rules += [f"iifname {a} oifname {b} drop" for a, b in ((ends, others), (others, ends))]
        for host, percent in self.state["losses"].items():
            if percent > 0:
                rules += [f"{side} {self.ports(host)} numgen random mod 1000 < {round(percent * 10)} drop"
                          for side in ("iifname", "oifname")]
        lines = ["add table bridge hosts", "delete table bridge hosts", "table bridge hosts {",
                 "chain through { type filter hook forward priority 0; policy accept;", *rules, "}", "}"]
        self.switch("nft", "-f", "-", text="\n".join(lines) + "\n")

    def down(self):
        """Every process of a host ends with its init process."""
        holders = [entry["holder"] for entry in self.state["hosts"].values()]
        if self.state.get("holder"):
            holders.append(self.state["holder"])
        for holder in holders:
            with contextlib.suppress(OSError):
                end = os.pidfd_open(holder)
                os.kill(holder, signal.SIGKILL)
                select.select([end], [], [], START_LIMIT_S)
                os.close(end)
            with contextlib.suppress(ChildProcessError):
                os.waitpid(holder, 0)
        shutil.rmtree(self.folder, ignore_errors=True)
        self.state = {"switch": 0, "networks": 0, "hosts": {}, "cuts": [], "losses": {}, "limits": {}}


# Inside a host


def mount(*words):
    call("mount", *words)


def bind_descriptor(folder, place):
    """Binds an open folder, whose path may be covered by now. mount(8) would look for the path."""
    bind_with_all_below = 0x1000 | 0x4000  # MS_BIND | MS_REC
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.mount(f"/proc/self/fd/{folder}".encode(), str(place).encode(), None, bind_with_all_below, None):
        raise HostsError(f"binding {place}: {os.strerror(ctypes.get_errno())}")
    os.close(folder)


def make_place(order):
    """Mounts the host's own files, in its mount namespace."""
    private = pathlib.Path(order["private"])
    mount("--make-rprivate", "/")
    covers = [("/tmp", private / "tmp"), (order["home"], private / "home"),
              ("/etc/gpumigrate", private / "etc")]
    hidden = [(path, private / "hidden" / str(index)) for index, path in enumerate(order["hidden"])]
    # Visible paths are bound into the covers first, since the paths themselves are covered afterwards.
    for path, at in order["shown"]:
        for place, cover in [*covers, *hidden]:
            if pathlib.Path(at).is_relative_to(place):
                inside = pathlib.Path(cover) / pathlib.Path(at).relative_to(place)
                inside.mkdir(parents=True, exist_ok=True)
                mount("--bind", path, inside)
    for place, cover in [*covers, *hidden]:
        pathlib.Path(cover).mkdir(parents=True, exist_ok=True)
        pathlib.Path(place).mkdir(parents=True, exist_ok=True)
    # The deepest path is bound last. The folder of the covers itself may be among the hidden paths.
    kept = [(place, os.open(cover, os.O_PATH | os.O_DIRECTORY)) for place, cover in [*covers, *hidden]]
    for place, cover in kept:
        bind_descriptor(cover, place)
    os.chmod("/tmp", 0o1777)
    mount("-t", "tmpfs", "-o", "mode=1777", "tmpfs", "/dev/shm")
    mount("-t", "sysfs", "sysfs", "/sys")
    call("hostname", order["name"])
    call("ip", "link", "set", "lo", "up")


def init(order):
    """Runs as the first process of a host. It mounts the host's files, then reaps orphans until it is killed."""
    if order:
        make_place(json.loads(order))
    print("ready", flush=True)
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])
    while True:
        signal.sigwait([signal.SIGCHLD])
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG) != (0, 0):
                pass


# The command


def listing(hosts):
    for host in hosts.state["hosts"]:
        addresses = [text for network in range(hosts.state["networks"])
                     for text in (hosts.address(host, network), hosts.address6(host, network))]
        notes = [f"limit {hosts.state['limits'][host]}" if host in hosts.state["limits"] else "",
                 f"loses {hosts.state['losses'][host]} %" if hosts.state["losses"].get(host) else ""]
        for one, other, network in hosts.state["cuts"]:
            if host in (one, other):
                partner = one if host == other else other
                notes.append("cut" + (f" from {partner}" if partner else "")
                             + ("" if network is None else f" on network {network}"))
        print("  ".join([host, *addresses, *filter(None, notes)]))


def arguments():
    parser = argparse.ArgumentParser(prog="tools/hosts", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", default=DEFAULT_FOLDER, type=pathlib.Path)
    verbs = parser.add_subparsers(dest="verb", required=True)
    up = verbs.add_parser("up")
    up.add_argument("--hosts", type=int, default=3)
    up.add_argument("--networks", type=int, default=1)
    run = verbs.add_parser("exec")
    run.add_argument("host")
    run.add_argument("command", nargs=argparse.REMAINDER)
    for verb in ("cut", "restore"):
        command = verbs.add_parser(verb)
        command.add_argument("host")
        command.add_argument("other", nargs="?")
        command.add_argument("--network", type=int)
    limit = verbs.add_parser("limit")
    limit.add_argument("host")
    limit.add_argument("rate")
    lose = verbs.add_parser("lose")
    lose.add_argument("host")
    lose.add_argument("percent", type=float)
    verbs.add_parser("list")
    verbs.add_parser("down")
    return parser.parse_args()


def tree():
    """Returns the paths of the machine that every host must see: this tree and CRIU. They may lie in covered folders."""
    return [path for path in (pathlib.Path(__file__).resolve().parents[2],
                              pathlib.Path("~/.cache/gpumigrate").expanduser()) if path.exists()]


def main():
    options = arguments()
    options.folder.parent.mkdir(parents=True, exist_ok=True)
    with open(options.folder.with_name(options.folder.name + ".lock"), "w") as lock:
        if options.verb != "exec":
            fcntl.flock(lock, fcntl.LOCK_EX)
        hosts = Hosts(options.folder)
        if options.verb == "up":
            hosts.up([f"host-{number}" for number in range(1, options.hosts + 1)], options.networks,
                     shown=tree())
            listing(hosts)
        elif options.verb == "exec":
            command = options.command[1:] if options.command[:1] == ["--"] else options.command
            words = [*hosts.enter(options.host), *(command or ["bash"])]
            os.execvp(words[0], words)
        elif options.verb == "list":
            listing(hosts)
        elif options.verb == "down":
            hosts.down()
        elif options.verb == "limit":
            hosts.limit(options.host, options.rate)
        elif options.verb == "lose":
            hosts.lose(options.host, options.percent)
        else:
            getattr(hosts, options.verb)(options.host, options.other, options.network)


if __name__ == "__main__":
    if sys.argv[1:2] == ["init"]:
        init(sys.argv[2] if len(sys.argv) > 2 else "")
    try:
        main()
    except HostsError as error:
        sys.exit(f"hosts: {error}")
