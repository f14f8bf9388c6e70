# SPDX-License-Identifier: Apache-2.0
"""Every command with every kind of bad value, read from docs/command/cli.md: one line, exit code 64 or 5, and
nothing has changed in the cluster."""
import collections
import os
import pathlib
import re
import unittest

from cluster import BIN, ClusterTest
from drawing import drawn

PAGE = pathlib.Path(__file__).resolve().parents[3] / "docs/command/cli.md"
UNKNOWN = "nosuch"
BAD = ("", UNKNOWN, "-1", "9" * 30, "\u00fc\u2603", "12parsecs", "x" * 5000)
# Options that accept any text: filters that match nothing, notes for the records, and options that a dry run
# ignores.
ANY_TEXT = {"--reason", "--name", "--node", "--state", "--type", "--env", "--cwd", "--line", "--gpu-model"}
VALID = {("--priority", "-1")}
# These commands have an effect even with an unknown word. A backup's file and a certificate's folder are
# created by their names, and an authority signs for any name.
LEFT_OUT = {"backup", "cluster certificate", "cluster init", "local up", "help", "node certificate", "node token"}

Taken = collections.namedtuple("Taken", "path positionals options")


def commands():
    """[(path without `gpumigrate`, positionals, [(option, takes a value)])], as the page has them."""
    found = []
    for section in re.split(r"^### gpumigrate ", PAGE.read_text(), flags=re.M)[1:]:
        path = section.split("\n", 1)[0].strip()
        names = [re.sub(r"\\", "", row) for row in re.findall(r"^\| `([^`]+)` \|", section, re.M)]
        options = [name for name in names if name.startswith("-")]
        found.append(Taken(path, [name for name in names if not name.startswith("-")],
                           [(re.split(r"[ ,]+", name.split(", ")[-1])[0], " " in name.split(", ")[-1])
                            for name in options]))
    return found


def required_of(taken):
    """The options that the usage line demands beside the positionals."""
    text = PAGE.read_text().split(f"### gpumigrate {taken.path}\n", 1)[1]
    usage = re.search(r"^`gpumigrate ([^`]+)`", text, re.M).group(1)
    return [word for word in re.findall(r"(?<!\[)(--[a-z-]+)", usage)]


class BadArguments(ClusterTest):
    nodes = 1
    maxDiff = None

    def state(self):
        kinds = ("nodes", "jobs", "migrations", "drains", "images")
        found = {kind: self.cluster.json(kind) for kind in kinds}
        for node in found["nodes"]:
            node.pop("last_seen")
        return found

    def refuse(self, words, may_pass):
        result = self.cluster.run(*words)
        lines = result.stderr.strip().split("\n")
        allowed = (0, 5, 64) if may_pass else (5, 64)
        shown = [word[:20] for word in words]
        if result.returncode not in allowed:
            return [f"{shown} exits with {result.returncode}: {result.stdout[:200]} {result.stderr[:300]}"]
        if result.returncode != 0 and len(lines) != 1:
            return [f"{shown} prints {len(lines)} lines: {result.stderr[:300]}"]
        return []

    def cases(self):
        for taken in commands():
            if taken.path in LEFT_OUT:
                continue
            need = required_of(taken)
            base = [*taken.path.split(), *[UNKNOWN for _ in taken.positionals]]
            rest = ["--dry-run", "--", "/bin/true"] if taken.path == "run" else []
            given = [word for option in need for word in (option, "1m")]
            for option, has_value in taken.options:
                if not has_value:
                    continue
                others = [word for name in need if name != option for word in (name, "1m")]
                for value in BAD:
                    yield [*base, *others, option, value, *rest], (option in ANY_TEXT and value != "") or (option, value) in VALID
                yield [*base, *others, option], False
            for at in range(len(taken.positionals)):
                for value in BAD:
                    words = list(base)
                    words[len(taken.path.split()) + at] = value
                    yield [*words, *given, *rest], False
            if taken.positionals:
                yield [*base, *given, "--nonsense", *rest], False
                yield [*base[:-1], *given, *rest], taken.path in ("drains", "completion")

    def test_invalid_values_are_refused_on_one_line_and_change_nothing(self):
        before = self.state()
        wrong, count = [], 0
        for words, may_pass in drawn(self.cases()):
            count += 1
            wrong += self.refuse(words, may_pass)
        self.assertGreaterEqual(count, min(300, int(os.environ.get("GPUMIGRATE_TEST_DRAWN", 300))))
        self.assertEqual(self.state(), before)
        self.assertEqual("\n".join(wrong), "")


if __name__ == "__main__":
    unittest.main()
