# SPDX-License-Identifier: Apache-2.0
"""Attacks by a user of another host. Runs there: `intruder.py TRY [ARGUMENT ...]`, and prints what came of it.

  hello ADDRESS PORT TOKEN NAME [FOLDER]   claims to be node NAME; FOLDER: the certificate that it shows, else none
  http ADDRESS PORT TOKEN [FOLDER [PATH [tell]]]   asks for all jobs, or for PATH; `tell`: prints that it has asked
  take PORT COUNT FILE                     listens, answers so many connections with nothing, and writes what it
                                           was sent to FILE
  bother ADDRESS FILE PORTS [MOST [FOLDER]]   sends what does not belong there to every port of ADDRESS that listens
                                           by FILE (a host's /proc/PID/net/tcp), but to these; until its input ends. Prints that it has found one, and how many connections it had.
                                           Holds the newest MOST connections, with a byte more now and then; FOLDER:
                                           a certificate that it shows on others
  shown ADDRESS PORT FOLDER                a digest of the certificate that is shown there"""
import collections
import contextlib
import hashlib
import os
import pathlib
import select
import socket
import ssl
import struct
import sys
import zlib

HELLO, HELLO_REPLY = 16, 17
CONTROL_VERSION = 2  # kControlVersion of libckpt/protocol/wire/control_messages.h
HEADER = "<IHHIIQ"
LIMIT_S = 10


def connection(address, port, folder):
    plain = socket.create_connection((address, int(port)), LIMIT_S)
    if folder is None:
        return plain
    context = ssl.create_default_context(cafile=f"{folder}/ca.pem")
    context.check_hostname = False
    own = "node" if pathlib.Path(folder, "node.pem").exists() else "client"
    context.load_cert_chain(f"{folder}/{own}.pem", f"{folder}/{own}.key")
    return context.wrap_socket(plain)


def hello_frame(name, token):
    """As libckpt/protocol/wire/codec.h lays it out."""
    texts = b"".join(struct.pack("<Q", len(text)) + text.encode() for text in (name, token))
    fields = struct.pack("<I", CONTROL_VERSION) + texts
    body = b"\x01" + struct.pack("<BBI", 1, 1, len(fields)) + fields
    return struct.pack(HEADER, 0x4d475047, 1, HELLO, len(body), zlib.crc32(body), 1) + body


def read_all(stream):
    heard = b""
    with contextlib.suppress(OSError):
        while part := stream.recv(65536):
            heard += part
    return heard


def hello(address, port, token, name, folder=None):
    with connection(address, port, folder) as stream:
        stream.sendall(hello_frame(name, token))
        heard = read_all(stream)
    if len(heard) < struct.calcsize(HEADER):
        return "closed"
    # The fields of the body are endianness, envelope, version, accepted.
    return "accepted" if heard[struct.calcsize(HEADER) + 1 + 6 + 4] else "refused"


def http(address, port, token, folder=None, path="/v1/jobs", tell=None):
    with connection(address, port, folder) as stream:
        authorization = f"Authorization: Bearer {token}\r\n" if token else ""
        if tell:
            stream.settimeout(None)
        stream.sendall(f"GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
                       f"{authorization}\r\n".encode())
        if tell:
            print("sent", flush=True)
        heard = read_all(stream)
    return "answered" if b"200 OK" in heard else "closed"


def take(port, count, file):
    with socket.create_server(("0.0.0.0", int(port))) as server, open(file, "wb") as heard:
        server.settimeout(LIMIT_S)
        for _ in range(int(count)):
            stream, _ = server.accept()
            stream.settimeout(0.5)  # the peer waits for an answer
            heard.write(read_all(stream))
            heard.flush()
            stream.close()
    return f"{pathlib.Path(file).stat().st_size} bytes"


def shown(address, port, folder):
    with connection(address, port, folder) as stream:
        return hashlib.sha256(stream.getpeercert(binary_form=True)).hexdigest()


def bothers():
    """Bytes that a stranger may send: none, random ones, half a TLS handshake, and UCX's requests to connect and
    to write memory at an address (its TCP transport, below any handshake of the program)."""
    magic = struct.pack("<Q", 0xCAFEBABE12345678)
    connect_request = struct.pack("<BI", 31, 64) + bytes(64)
    put = struct.pack("<BI", 30, 24) + struct.pack("<QQII", 0x7F0000000000, 4096, 1, 0) + b"\xee" * 4096
    half_handshake = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(64)
    return [b"", os.urandom(65536), half_handshake, magic + connect_request + put]


def listening(file, known):
    """Ports of a host's /proc/PID/net/tcp."""
    ports = set()
    for line in pathlib.Path(file).read_text().split("\n")[1:]:
        fields = line.split()
        if len(fields) > 3 and fields[3] == "0A":
            ports.add(int(fields[1].split(":")[1], 16))
    return ports - known


def bother(address, file, ports, most=100, folder=None):
    known, held, count = set(map(int, filter(None, ports.split(",")))), collections.deque(), 0
    what = bothers()
    while not select.select([sys.stdin], [], [], 0.01)[0]:
        for port in listening(file, known):
            for content in what:
                with contextlib.suppress(OSError):
                    stream = socket.create_connection((address, port), 0.5)
                    held.append(stream)
                    if count == 0:
                        print("found", flush=True)
                    count += 1
                    stream.settimeout(0.5)
                    stream.sendall(content)
            if folder:
                with contextlib.suppress(OSError):
                    held.append(connection(address, port, folder))
        for stream in held:
            with contextlib.suppress(OSError):
                stream.setblocking(False)
                stream.send(b"\x16")
        while len(held) > int(most):
            held.popleft().close()
    return count


if __name__ == "__main__":
    try:
        print({"hello": hello, "http": http, "take": take, "shown": shown, "bother": bother}[sys.argv[1]](*sys.argv[2:]))
    except OSError as error:
        print("closed", error)
