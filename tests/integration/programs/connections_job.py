# SPDX-License-Identifier: Apache-2.0
"""A program like python_job.py with TCP connections to other programs: `connections_job.py KIND STEPS`."""
import errno
import os
import socket
import threading

import python_job


def how_it_ended(connection):
    """Reads until the end: `data`, the name of an error, or `eof`."""
    try:
        return "data" if connection.recv(4) else "eof"
    except OSError as error:
        return errno.errorcode[error.errno]


class Server(python_job.Plain):
    """Answers each word on each connection, over IPv4 and IPv6, and reports how a connection ended."""

    def __init__(self):
        self.listener = socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True)
        print(f"listening at {self.listener.getsockname()[1]}", flush=True)
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            connection, _ = self.listener.accept()
            threading.Thread(target=self.answer, args=(connection,), daemon=True).start()

    @staticmethod
    def answer(connection):
        try:
            while word := connection.recv(4):
                connection.sendall(word[::-1])
            print("a client closed\n", end="", flush=True)
        except OSError as error:
            print(f"a client was lost: {errno.errorcode[error.errno]}\n", end="", flush=True)


def peer():
    host, port = os.environ["GPUMIGRATE_TEST_PEER"].split(":")
    return socket.create_connection((host, int(port)))


class Pool(python_job.Plain):
    """A connection that the peer has closed and the program has not (CLOSE_WAIT), and one that is not open yet."""

    def __init__(self):
        self.closed = peer()
        if self.closed.recv(4):
            raise RuntimeError("the peer has not closed the connection")
        self.connecting = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        self.connecting.setblocking(False)
        self.connecting.connect_ex(("192.0.2.1", 9))  # no host answers at this address
        self.udp = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.udp.bind(("127.0.0.1", 0))
        self.udp.connect(self.udp.getsockname())
        print("connected", flush=True)

    def end(self):
        print(f"closed: {how_it_ended(self.closed)}", flush=True)
        self.udp.send(b"to itself")
        if self.udp.recv(9) != b"to itself":
            raise RuntimeError("nothing came over UDP")


class Mixed(python_job.Connected):
    """Connections to itself and to its worker, and one to a peer."""

    def __init__(self):
        super().__init__()
        self.ends.append(self.over_both_families())
        self.outer = peer()
        print("connected", flush=True)

    @staticmethod
    def over_both_families():
        """The server's end has an IPv4 address of an IPv6 socket."""
        with socket.create_server(("::", 0), family=socket.AF_INET6, dualstack_ipv6=True) as listener:
            client = socket.create_connection(("127.0.0.1", listener.getsockname()[1]))
            return client, listener.accept()[0]

    def end(self):
        print(f"outer: {how_it_ended(self.outer)}", flush=True)
        super().end()


python_job.KINDS.update(server=Server, pool=Pool, mixed=Mixed)

if __name__ == "__main__":
    python_job.main()
