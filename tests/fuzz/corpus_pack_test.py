# SPDX-License-Identifier: Apache-2.0
"""Packed corpora: those of the tree are as corpus_pack.py writes them, and damaged ones are refused by it and
by the replay.

    corpus_pack_test.py REPLAY PACK     REPLAY: a fuzz target that replays what it is given; PACK: its
                                        corpus"""
import pathlib
import struct
import subprocess
import sys
import tempfile
import unittest

import corpus_pack

HERE = pathlib.Path(__file__).resolve().parent
REPLAY, PACK = sys.argv[1:3]


def run(*command):
    return subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                          text=True, check=False)


def packed(*inputs):
    """A pack of (name, bytes), whatever they are."""
    each = [struct.pack("<H", len(name)) + name.encode() + struct.pack("<I", len(data)) + data
            for name, data in inputs]
    return corpus_pack.MAGIC + struct.pack("<I", len(inputs)) + b"".join(each)


class CorpusPack(unittest.TestCase):
    def setUp(self):
        kept = tempfile.TemporaryDirectory()
        self.addCleanup(kept.cleanup)
        self.folder = pathlib.Path(kept.name)
        self.pack = self.folder / "damaged.pack"

    def refused(self, data, words):
        self.pack.write_bytes(data)
        with self.assertRaises(corpus_pack.PackError) as raised:
            corpus_pack.read_pack(self.pack)
        done = run(REPLAY, self.pack)
        self.assertEqual(done.returncode, 1, done.stderr)
        for message in (str(raised.exception), done.stderr):
            self.assertIn(str(self.pack), message)
            self.assertIn(words, message)

    def test_committed_packs_match_the_corpus(self):
        packs = sorted(HERE.glob("targets/*/*.pack"))
        self.assertEqual([path.with_suffix(".cc") for path in packs], sorted(HERE.glob("targets/*/*.cc")))
        for path in packs:
            inputs = corpus_pack.read_pack(path)
            self.assertGreater(len(inputs), 0, path)
            corpus_pack.write_pack(self.pack, inputs)
            self.assertEqual(self.pack.read_bytes(), path.read_bytes(), path)

    def test_every_input_is_replayed(self):
        names = list(corpus_pack.read_pack(pathlib.Path(PACK)))
        done = run(REPLAY, PACK)
        self.assertEqual(done.stdout.splitlines(),
                         [f"{PACK}: {name}" for name in names] + [f"{len(names)} inputs"])
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_pack_is_unpacked_and_packed_unchanged(self):
        there, back = self.folder / "there", self.folder / "back"
        corpus_pack.unpack(pathlib.Path(PACK), there)
        (there / "more").write_bytes(b"")
        corpus_pack.add(self.pack, sorted(there.iterdir()))
        corpus_pack.unpack(self.pack, back)
        self.assertEqual({path.name: path.read_bytes() for path in back.iterdir()},
                         {path.name: path.read_bytes() for path in there.iterdir()})
        with self.assertRaises(corpus_pack.PackError):
            corpus_pack.unpack(self.pack, back)

    def test_pack_truncated_anywhere_is_refused(self):
        whole = packed(("a", b"first"), ("b", b""), ("c", b"third"))
        for length in range(len(whole)):
            self.refused(whole[:length], f"cut off at byte {length}:")

    def test_missing_pack_is_an_error(self):
        done = run(REPLAY, self.folder / "missing.pack")
        self.assertEqual(done.returncode, 1)
        self.assertIn(f"{self.folder}/missing.pack: cannot be read: No such file", done.stderr)

    def test_damaged_pack_is_refused(self):
        self.refused(b"GMCORP\0\2" + bytes(4), "packed corpus of version 1")
        self.refused(packed(("a", b"x")) + b"y", "the last input")
        self.refused(packed(("b", b"x"), ("a", b"y")), "input 2 of 2")
        self.refused(packed(("a", b"x"), ("a", b"y")), "input 2 of 2")
        self.refused(packed(("../a", b"x")), "input 1 of 1")
        self.refused(packed(("", b"x")), "input 1 of 1")
        self.refused(packed(("a", b"x"))[:-5] + struct.pack("<I", (1 << 20) + 1),
                     "at most 1048576 are allowed")

    def test_empty_pack_is_refused(self):
        self.pack.write_bytes(packed())
        done = run(REPLAY, self.pack)
        self.assertEqual(done.returncode, 1)
        self.assertIn("there is no input to replay", done.stderr)


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
