# SPDX-License-Identifier: Apache-2.0
"""Runs a small virtual machine with a soft-RoCE device, for `tools/vm` and for the tests of this folder.

  tools/vm setup                 installs the Debian packages it needs, and fetches Debian's kernel
  tools/vm run -- COMMAND...     runs a command in a fresh machine, prints its output, exits with its status

The virtual machine sees all files of this machine, and keeps its writes in memory. Its device rxe0 is an RDMA device in
software (rdma_rxe) on eth0, 10.9.0.1. QEMU computes every instruction (TCG), so KVM is not needed, and times mean
nothing. It boots in about ten seconds.

The exit status is 124 if the deadline ended the command, and 125 if no machine could run it."""
import argparse
import contextlib
import os
import pathlib
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
CACHE = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "gpumigrate" / "vm"
PACKAGES = {"qemu-system-x86_64": "qemu-system-x86", "busybox": "busybox-static", "rdma": "iproute2",
            "dpkg-deb": "dpkg", "apt-get": "apt"}
MODULES = ["virtio_pci", "9pnet_virtio", "9p", "overlay", "virtio_net", "crc32_generic", "rdma_rxe",
           "ib_uverbs", "rdma_ucm"]
TOOL_LIMIT_S = 600
BOOT_LIMIT_S = 300


class VmError(Exception):
    pass


def call(*command, **options):
    """Runs one of this machine's tools. Its own message is the error."""
    result = subprocess.run([str(part) for part in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                            timeout=TOOL_LIMIT_S, check=False, **options)
    if result.returncode != 0:
        words = result.stderr.decode(errors="replace").strip()[-500:]
        raise VmError(f"{' '.join(map(str, command))}: {words}")
    return result.stdout


def missing():
    """Returns the Debian packages that are needed and missing."""
    return [package for program, package in PACKAGES.items() if shutil.which(program) is None]


# The kernel


def kernel():
    """Returns the folder of Debian's kernel, which is fetched and unpacked once."""
    with contextlib.suppress(FileNotFoundError):
        folder = CACHE / (CACHE / "kernel").read_text()
        if folder.is_dir():
            return folder
    return fetch_kernel()


def fetch_kernel():
    depends = call("apt-cache", "depends", "linux-image-amd64").decode()
    found = re.search(r"Depends: (linux-image-\S+)", depends)
    if found is None:
        raise VmError("apt knows no kernel package: run `apt-get update`")
    package = found.group(1)
    CACHE.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=CACHE) as folder:
        call("apt-get", "download", package, cwd=folder)
        (archive,) = pathlib.Path(folder).glob("*.deb")
        call("dpkg-deb", "-x", archive, f"{folder}/{package}")
        shutil.rmtree(CACHE / package, ignore_errors=True)
        os.rename(f"{folder}/{package}", CACHE / package)
    new = CACHE / "kernel.new"
    new.write_text(package)
    new.rename(CACHE / "kernel")
    return CACHE / package


def modules_in_order(folder):
    """Returns the files of MODULES and of their dependencies, each after its own. A module without a file is built in."""
    files = {path.stem.replace("-", "_"): path for path in folder.rglob("*.ko")}
    order = []

    def add(name):
        path = files.get(name.replace("-", "_"))
        if path is None or path in order:
            return
        needs = re.search(rb"\0depends=([^\0]*)\0", path.read_bytes())
        for needed in filter(None, needs.group(1).decode().split(",") if needs else []):
            add(needed)
        order.append(path)

    for name in MODULES:
        add(name)
    return order


def write_initramfs(folder, to):
    """Makes the first file system: busybox, the modules, init and the script that follows it."""
    with tempfile.TemporaryDirectory() as place:
        root = pathlib.Path(place)
        for name in ("bin", "modules"):
            (root / name).mkdir()
        shutil.copy(shutil.which("busybox"), root / "bin" / "busybox")
        modules = modules_in_order(folder)
        for path in modules:
            shutil.copy(path, root / "modules" / path.name)
        (root / "modules" / "order").write_text("".join(path.name + "\n" for path in modules))
        shutil.copy(HERE / "init", root / "init")
        (root / "init").chmod(0o755)
        shutil.copy(HERE / "second", root / "second")
        names = "\n".join(str(path.relative_to(root)) for path in sorted(root.rglob("*")))
        to.write_bytes(call("busybox", "cpio", "-o", "-H", "newc", cwd=root, input=names.encode()))


# The machine


def run(command, memory_mib=2048, limit_s=600, output=None):
    """Runs `command` (words) in a fresh machine, in this process's folder. Its output goes to the file `output`. Returns its
    status, which is 124 if it was ended after `limit_s`. Raises VmError if the machine did not boot within BOOT_LIMIT_S, or
    ended by itself."""
    if missing():
        raise VmError(f"no {', '.join(missing())} here: `tools/vm setup` installs them")
    files = kernel()
    (image,) = (files / "boot").glob("vmlinuz-*")
    with tempfile.TemporaryDirectory(prefix="gm-vm-") as place:
        exchange = pathlib.Path(place) / "exchange"
        exchange.mkdir()
        (exchange / "command").write_text(f"cd {shlex.quote(os.getcwd())} && exec timeout -k 10 {limit_s} "
                                          f"{shlex.join(map(str, command))}\n")
        write_initramfs(files / "lib" / "modules", pathlib.Path(place) / "initramfs")
        console = pathlib.Path(place) / "console"
        share = "local,security_model=none,multidevs=remap"
        machine = subprocess.Popen(
            ["qemu-system-x86_64", "-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2",
             "-m", str(memory_mib), "-nodefaults", "-no-user-config", "-display", "none", "-no-reboot",
             "-kernel", image, "-initrd", f"{place}/initramfs",
             "-append", "console=ttyS0 quiet panic=-1 mitigations=off",
             "-serial", f"file:{console}", "-serial", "stdio",
             "-fsdev", f"{share},id=root,path=/,readonly=on",
             "-device", "virtio-9p-pci,fsdev=root,mount_tag=root",
             "-fsdev", f"{share},id=exchange,path={exchange}",
             "-device", "virtio-9p-pci,fsdev=exchange,mount_tag=exchange",
             "-netdev", "user,id=net,restrict=on", "-device", "virtio-net-pci,netdev=net,romfile="],
            stdin=subprocess.DEVNULL, stdout=output)
        try:
            with contextlib.suppress(subprocess.TimeoutExpired):
                machine.wait(BOOT_LIMIT_S + limit_s + 10)
        finally:
            machine.kill()
            machine.wait()
        with contextlib.suppress(FileNotFoundError, ValueError):
            return int((exchange / "status").read_text())
        words = console.read_text(errors="replace")[-2000:] if console.exists() else ""
        raise VmError(f"the virtual machine ended without the command's status\n{words}")


# The command


def setup():
    lacking = missing()
    if lacking:
        if os.geteuid() != 0:
            raise VmError(f"installing {', '.join(lacking)} needs root")
        environment = dict(os.environ, DEBIAN_FRONTEND="noninteractive")
        call("apt-get", "install", "-y", "--no-install-recommends", *lacking, env=environment)
    print(f"kernel: {kernel()}")


def arguments():
    parser = argparse.ArgumentParser(prog="tools/vm", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("setup")
    run_verb = verbs.add_parser("run")
    run_verb.add_argument("--memory", type=int, default=2048, metavar="MIB")
    run_verb.add_argument("--timeout", type=int, default=600, metavar="S", help="time limit of the command in seconds (600)")
    run_verb.add_argument("command", nargs=argparse.REMAINDER)
    return parser.parse_args()


def main():
    options = arguments()
    if options.verb == "setup":
        setup()
        return 0
    command = options.command[1:] if options.command[:1] == ["--"] else options.command
    if not command:
        raise VmError("no command: tools/vm run -- COMMAND...")
    return run(command, options.memory, options.timeout)


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(125))  # the machine ends with this process
    try:
        sys.exit(main())
    except VmError as error:
        print(f"vm: {error}", file=sys.stderr)
        sys.exit(125)
