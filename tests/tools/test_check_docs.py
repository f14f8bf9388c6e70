# SPDX-License-Identifier: Apache-2.0
"""tools/check-docs on a copy of the tree: it passes as it is, and finds each mistake that is planted."""
import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
CHECKER = ROOT / "tools/check-docs"
RULE = "ENG" + "-99"  # in two pieces, since this file must not cite a rule that does not exist
TWICE = "SW" + "-4"
SECTION = "design.md " + "§99"
PAGE = "docs/" + "no-such-page.md"
RECORD = "adr/" + "9999"
GONE = "libckpt/" + "base/gone.h"
NO_TEST = "GangScenario." + "NothingOfTheKind"
NO_SUITE = "NoSuchTest." + "AnyName"
OLD_NAME = "an_" + "old_name"
MOST = "kMost" + "Words"
# a sentence of 26 words
LONG = "This sentence has " + "one word more and " * 4 + "does not end here at all now."

# The mistakes as tuples (file, line to append, reported text about that line).
MISTAKES = [
    ("docs/operations.md", "[gone](no-such-file.md)", "link to no-such-file.md: there is no such file"),
    ("docs/operations.md", "[gone](../../README.md)", "link to ../../README.md: there is no such file"),
    ("docs/operations.md", "[gone](testing.md#no-such-heading)",
     "link to testing.md#no-such-heading: there is no such heading"),
    ("docs/operations.md", "[gone]: no-such-definition.md",
     "link to no-such-definition.md: there is no such file"),
    ("docs/operations.md", "[gone][nowhere]", "a link's reference is not defined"),
    ("libckpt/base/clock.h", f"// {RULE}", f"{RULE} is not defined in docs/design.md"),
    ("libckpt/base/clock.h", f"// docs/{SECTION}", "docs/design.md has no section 99"),
    ("libckpt/base/clock.h", f"// {PAGE}", f"there is no {PAGE}"),
    ("libckpt/base/clock.h", f"// {RECORD}", f"there is no docs/{RECORD}"),
    ("libckpt/base/clock.h", "// DESIGN" + " §5",
     "cites a page that is not in the tree; docs/design.md has its sections"),
    ("libckpt/base/clock.h", f"// {GONE}", f"there is no {GONE}"),
    ("docs/operations.md", f"`{GONE}`", f"there is no {GONE}"),
    ("docs/operations.md", f"`{NO_TEST}`", f"there is no test {NO_TEST}"),
    ("docs/operations.md", f"`{NO_TEST}*`", f"there is no test {NO_TEST}*"),
    ("libckpt/base/clock.h", f"// {NO_SUITE}", f"there is no test {NO_SUITE}"),
    ("libckpt/base/clock.h", f"int {OLD_NAME};", f"{OLD_NAME} is an old name (tools/old-names.txt)"),
    ("tools/check-layers", f"# {OLD_NAME}", f"{OLD_NAME} is an old name (tools/old-names.txt)"),
    ("docs/design.md", f"| {TWICE} | again |", f"{TWICE} is defined twice"),
    ("README.md", "x" * 111, "111 columns; at most 110"),
    ("README.md", LONG.replace("word more", "word\nmore"),
     "a sentence of 26 words, at most 25: This sentence has one word more ..."),
    ("docs/glossary.md", f"| a | {LONG} |",
     "a sentence of 26 words, at most 25: This sentence has one word more ..."),
    ("docs/glossary.md", LONG, "a sentence of 26 words, at most 25: This sentence has one word more ..."),
]
WORD = "is no word for prose or comments (docs/glossary.md)"
for name, text, found in [
        ("docs/operations.md", "The table says why.", "says"),
        ("libckpt/base/clock.h", "int a;  // by whoever stops", "whoever"),
        ("libckpt/base/clock.h", "/* no room\n * here */", "room"),
        ("libckpt/base/clock.h", "// at most " + MOST, MOST),
        ("coordinator/README.md", "A message is heard.", "heard"),
        ("tests/integration/run", "# mended", "mended"),
        ("tools/setup", "x=1 # somebody", "somebody"),
        ("tests/integration/support/adopting.py", '\"\"\"It hears.\"\"\"', "hears")]:
    MISTAKES.append((name, text, f"{found} {WORD}"))
for name, text, opening, quoted in [
        ("libckpt/base/clock.h", "// Of the pipe's only end.", "Of", "Of the pipe's only end."),
        ("libckpt/base/clock.h", "int b;  // Those of a rank.", "Those", "Those of a rank."),
        ("libckpt/base/clock.h", "/* What moves. */", "What", "What moves."),
        ("libckpt/base/clock.h", 'const char* text = "Which node it is";', "Which", "Which node it is"),
        ("tools/check-layers", "# Who waits.", "Who", "Who waits."),
        ("tests/integration/support/adopting.py", '\"\"\"That which moves.\"\"\"', "That which", "That which moves."),
        ("tests/integration/support/adopting.py", "TEXT = 'What is wrong'", "What", "What is wrong"),
        ("docs/operations.md", "- Of each job.", "Of", "Of each job."),
        ("docs/operations.md", "| a | Whose it is |", "Whose", "Whose it is")]:
    MISTAKES.append((name, text, f'"{opening}" begins a text without its subject: {quoted}'))
for name, text in [
        ("libckpt/base/clock.h", "TEST(Clock, WhatIsLate) {}"),
        ("tests/integration/support/adopting.py", "def test_of_each(): pass")]:
    MISTAKES.append((name, text, "a test's name has no subject"))
# Texts that resemble mistakes but must not be reported.
RIGHT = [
    ("docs/operations.md", "`GangScenario.AllRanksChange*` and `libckpt/base/clock.h`"),
    ("libckpt/base/clock.h", "// The pipe\n// Of which one end is open.\nint c;  // of a rank"),
    ("libckpt/base/clock.h", 'const char* text = "Which node is it?";  // "Offered"'),
    ("docs/operations.md", "## What moves\n\nWhat moves?\n\nOffers are\nOf one kind."),
    ("docs/operations.md", "`says` he essays\n```\nsays\n```"),
    ("libckpt/base/clock.h", 'const char* text = "http://says/whoever";  // essays\nint room;'),
    ("tests/integration/support/adopting.py", 'TEXT = \"\"\"\n# it says\n\"\"\"\nROOM = "# room"'),
    ("docs/operations.md",
     "`[gone](no-such-file.md)` [there](https://example.org/x) [here](#where-images-lie) [up](../README.md)"),
    ("docs/operations.md", "```\n[gone](no-such-file.md)\n```"),
    ("docs/operations.md", OLD_NAME),
    ("libckpt/base/clock.h", f"int {OLD_NAME}_too, not_{OLD_NAME};"),
    ("docs/glossary.md", "A word, e.g. this one. " + "A short sentence. " * 20),
    ("docs/glossary.md", LONG.replace(" at all", " here")),
    ("README.md", "x" * 110),
]
# The comment at the top of a header, and the line of its long sentence, or None.
HEADERS = [
    (f"// SPDX-License-Identifier: Apache-2.0\n// Short.\n// {LONG}\n#pragma once\n", 2),
    (f"// First.\n//\n// {LONG.replace('word more', 'word' + chr(10) + '// more')}\n#pragma once\n", 3),
    (f"/* Short.\n *\n * {LONG} */\n#pragma once\n", 3),
    (f"// - {LONG}\n#pragma once\n", 1),
    (f"//   {LONG}\n#pragma once\n", None),  # an indented example, which is not checked
    (f"// name   {LONG}\n#pragma once\n", None),  # a row of a table, which is not checked
    (f"// {LONG.replace('and does', 'and. kRefused does')}\n#pragma once\n", None),
    (f"// Short.\n#pragma once\n// {LONG}\n", None),
]


class CheckDocs(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        self.tree = pathlib.Path(tempfile.mkdtemp(prefix="check-docs-"))
        self.addCleanup(shutil.rmtree, self.tree)
        names = subprocess.run(["git", "ls-files", "-co", "-z", "--exclude-standard"], cwd=ROOT,
                               capture_output=True,
                               text=True, check=True).stdout.split("\0")
        for name in names:
            if not name or name.startswith("tests/fuzz/corpus/") or not (ROOT / name).is_file():
                continue
            (self.tree / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, self.tree / name)
        subprocess.run(["git", "init", "-q"], cwd=self.tree, check=True)

    def append(self, name, text):
        """The number of the first line of `text`, a paragraph of its own at the end of the file."""
        path = self.tree / name
        lines = path.read_text().rstrip("\n").split("\n")
        path.write_text("\n".join([*lines, "", text]) + "\n")
        return len(lines) + 2

    def check(self):
        result = subprocess.run([sys.executable, CHECKER, "--root", self.tree], capture_output=True,
                                text=True)
        self.assertEqual(result.stderr, "")
        return result.returncode, result.stdout.splitlines()

    def fill_readme(self, count):
        """Lengthens README to so many lines."""
        path = self.tree / "README.md"
        lines = path.read_text().splitlines()
        path.write_text("\n".join(lines + ["- x"] * (count - len(lines))) + "\n")

    def test_check_accepts_the_tree(self):
        readme = self.tree / "README.md"
        readme.write_text("\n".join(readme.read_text().splitlines()[:100]) + "\n")
        for name, text in RIGHT:
            self.append(name, text)
        self.fill_readme(150)
        with (self.tree / "tools/old-names.txt").open("a") as names:
            names.write(OLD_NAME + "\n")
        self.assertEqual(self.check(), (0, []))

    def test_each_mistake_is_found(self):
        with (self.tree / "tools/old-names.txt").open("a") as names:
            names.write(OLD_NAME + "\n")
        expected = [f"{name}:{self.append(name, text)}: {problem}" for name, text, problem in MISTAKES]
        self.fill_readme(160)
        expected.append("README.md:160: 160 lines; at most 150")
        status, found = self.check()
        self.assertEqual(sorted(found), sorted(expected))
        self.assertEqual(status, 1)

    def test_long_sentence_at_the_top_of_a_header_is_found(self):
        expected = []
        for number, (text, line) in enumerate(HEADERS):
            name = f"libckpt/base/planted_{number}.h"
            (self.tree / name).write_text(text)
            if line:
                expected.append(f"{name}:{line}: a sentence of 26 words, at most 25: "
                                "This sentence has one word more ...")
        self.assertEqual(self.check(), (1, expected))


if __name__ == "__main__":
    unittest.main()
