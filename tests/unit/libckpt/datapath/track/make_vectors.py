#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The fingerprint of libckpt/datapath/track/fingerprint_core.h written a second time, from its text alone:
prints the test vectors of fingerprint_test.cc. Key byte i is i; data byte i of a message is (i * 131 + (i >>
8)) mod 256."""
import struct

P = 2**61 - 1
M32, M64 = 2**32 - 1, 2**64 - 1


def rotl(x, n):
    return ((x << n) | (x >> (32 - n))) & M32


def chacha_block(key, counter, nonce):
    state = list(struct.unpack("<4I",
                               b"expand 32-byte k")) + list(struct.unpack("<8I", key)) + [counter] + nonce
    x = state[:]

    def quarter(a, b, c, d):
        x[a] = (x[a] + x[b]) & M32; x[d] = rotl(x[d] ^ x[a], 16)
        x[c] = (x[c] + x[d]) & M32; x[b] = rotl(x[b] ^ x[c], 12)
        x[a] = (x[a] + x[b]) & M32; x[d] = rotl(x[d] ^ x[a], 8)
        x[c] = (x[c] + x[d]) & M32; x[b] = rotl(x[b] ^ x[c], 7)

    for _ in range(10):
        quarter(0, 4, 8, 12); quarter(1, 5, 9, 13); quarter(2, 6, 10, 14); quarter(3, 7, 11, 15)
        quarter(0, 5, 10, 15); quarter(1, 6, 11, 12); quarter(2, 7, 8, 13); quarter(3, 4, 9, 14)
    return struct.pack("<16I", *[(a + b) & M32 for a, b in zip(x, state)])


def expand(key, purpose):
    stream = b"".join(chacha_block(key, i, [purpose, 0, 0]) for i in range(70))
    nh = struct.unpack_from("<1040I", stream, 0)
    field = [w % 2**61 % P for w in struct.unpack_from("<10Q", stream, 1040 * 4)]
    return nh, (field[0:4], field[4:8]), field[8:10]


def fingerprint(tables, data):
    nh, mix, point = tables
    h = [1, 1]
    for at in range(0, len(data), 4096):
        m = struct.unpack("<1024I", data[at:at + 4096].ljust(4096, b"\0"))
        y = [sum(((m[2 * i] + nh[2 * i + 8 * j]) & M32) * ((m[2 * i + 1] + nh[2 * i + 1 + 8 * j]) & M32)
                 for i in range(512)) & M64 for j in range(3)]
        low = 2**48 - 1
        c = [y[0] & low, y[1] & low, y[2] & low, y[0] >> 48 | (y[1] >> 48) << 16 | (y[2] >> 48) << 32]
        for a in (0, 1):
            h[a] = (h[a] * point[a] + sum(p * q for p, q in zip(c, mix[a]))) % P
    return [(h[a] * point[a] + len(data)) % P for a in (0, 1)]


key = bytes(range(32))
for purpose in (0, 1):
    tables = expand(key, purpose)
    for length in (0, 1, 15, 16, 4095, 4096, 4097, 65536, 100003, 1 << 20):
        data = bytes((i * 131 + (i >> 8)) & 255 for i in range(length))
        lo, hi = fingerprint(tables, data)
        print("    {%d, %d, 0x%016x, 0x%016x}," % (purpose, length, lo, hi))
