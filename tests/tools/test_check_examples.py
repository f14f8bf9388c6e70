# SPDX-License-Identifier: Apache-2.0
"""tools/check-examples on a small tree: each form of an example compiles, and each planted mistake is found."""
import json
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
CHECKER = ROOT / "tools/check-examples"
FRAME = "tests/tools/header_examples.cc"
C_FRAME = "tests/tools/header_examples.c"
HEADER = "libckpt/box.h"

DECLARATIONS = """#pragma once
#include <shelves.h>
struct Box {
  [[nodiscard]] int weigh(int times) const;
};
Box open_box();
void use(int weight);
"""
FUNCTION = f"""#include <{HEADER}>
void example() {{
  // example: {HEADER}
}}
"""
# The lines of a comment that compile in the body of a function.
RIGHT = [
    "//   const Box box = open_box();\n//   use(box.weigh(1));",
    "//   const Box box = open_box();     prose; and it goes on\n//                                   in its column",
    "//   const Box box = open_box();  use(box.weigh(2));   prose",
    "//   const Box box = open_box();  // prose (of any kind);",
    "//   if (open_box().weigh(3) > 0) ...   // prose\n//   use(1);",
    "//   static_assert(__cplusplus >= 202002L);\n//   use(kShelves);",
    "//   const Box box = open_box();\n//   ... the box is closed ...\n//   use(box.weigh(1));",
    "//   use(1); ...; use(2);\n//   use(3);  ...  use(4);\n//   ...",
    "//   use(1); ...the rest...; use(2);",
    "//   const Box box = ...a box from elsewhere...;\n//   use(box.weigh(1));",
    "//   auto grow = [](int weight) -> int { ... };\n//   use(grow(1));",
    '//   const char* text = "...; // is no remark";\n//   use(text[0]);',
    "/* A box.\n *\n *   use(open_box().weigh(1));\n */",
    "//   use(1);\n//\n// Prose between two.\n//\n//   use(2);",
    "struct Shelf {\n  //   use(1);\n  Box box;\n};",
]
# A comment, and the line and the text of the compiler's error.
WRONG = [
    ("//   const Box box = open_boxes();", 1, "open_boxes"),
    ("// Opens.\n//   const Box box = open_box();\n//   use(box.weigh());", 3, "no matching function"),
    ("//   use(1);\n//   then close the box", 2, "then"),
    ("//   open_box().weigh(1);", 1, "nodiscard"),
    ("//   use(1 << 40);", 1, "shift"),
    ("//   use(...);", 1, "expected"),
    ("//   use(1);\n//\n//   use(nothing);", 3, "nothing"),
]
# Indented lines that must not be treated as an example.
PROSE = [
    "//   S>T kPlan (blob), T>S kAnswer;  S>T kPing, T>S kPong",
    "//   * a name is on the disk once sync() of its file has returned;",
    "//   open -> closed (by its owner; then it rests) -> open",
    "//   ask() -> the boxes that are there; what is not there is left out",
    "//   A>T   StartTarget                      T>A Listening{addresses}",
    "//       h = 1;  for each block in order: h = h * point;",
    "//     use(nothing);",
    "//  use(nothing);",
]


class CheckExamples(unittest.TestCase):
    maxDiff = None

    def setUp(self):
        self.tree = pathlib.Path(tempfile.mkdtemp(prefix="check-examples-"))
        self.addCleanup(shutil.rmtree, self.tree)
        subprocess.run(["git", "init", "-q"], cwd=self.tree, check=True)
        flags = f"-I{self.tree} -Wall -Wextra"
        self.write("shelves/shelves.h", "constexpr int kShelves = 3;\n")
        self.write("build/compile_commands.json", json.dumps([
            {"file": "box.cc", "command": f"ccache /usr/bin/c++ -std=c++20 {flags} -Winvalid-pch -include none.h"
                                          " -isystem shelves -o libckpt/box.cc.o -c box.cc"},
            {"file": "box.c", "command": f"/usr/bin/cc -std=c11 {flags} -Duse=1 -o tests/box.c.o -c box.c"}]))
        self.write(".gitignore", "build/\n")

    def write(self, name, text):
        (self.tree / name).parent.mkdir(parents=True, exist_ok=True)
        (self.tree / name).write_text(text)

    def plant(self, comment, frame=FUNCTION, header=HEADER):
        """A header with the comment from its first line on, and the frame."""
        self.write(header, f"{comment}\n{DECLARATIONS}")
        self.write(FRAME, frame)

    def check(self):
        done = subprocess.run([sys.executable, CHECKER, "--root", self.tree], capture_output=True, text=True)
        self.assertEqual(done.stderr, "")
        return done.returncode, done.stdout

    def errors(self):
        """(file, line, text) of what the checker and the compiler find; each example has one error at most."""
        status, out = self.check()
        found = re.findall(r"^(\S+?):(\d+):(?:\d+: (?:fatal )?error:)? (.*)$", out, re.M)
        self.assertEqual(status, 1 if out else 0, out)
        return [(name, int(line), text) for name, line, text in found if "note:" not in text]

    def test_each_form_of_an_example_compiles(self):
        for comment in RIGHT:
            with self.subTest(comment):
                self.plant(comment)
                if comment.startswith("struct"):
                    self.write(HEADER, DECLARATIONS + comment + "\n")
                self.assertEqual(self.check(), (0, ""))

    def test_each_broken_example_is_found_at_its_line(self):
        for comment, line, text in WRONG:
            with self.subTest(comment):
                self.plant(comment)
                name, found_line, found = self.errors()[0]
                self.assertEqual((name, found_line), (HEADER, line))
                self.assertIn(text, found)

    def test_prose_is_not_treated_as_an_example(self):
        for comment in PROSE:
            with self.subTest(comment):
                self.plant(comment, frame=f'#include "{HEADER}"\n')
                self.assertEqual(self.check(), (0, ""))

    def test_mistake_in_a_frame_is_found_at_its_line(self):
        self.plant("//   use(1);\n//   use(2);", frame=FUNCTION + "int wrong = nothing;\n")
        name, line, text = self.errors()[0]
        self.assertEqual((name, line), (FRAME, 5))
        self.assertIn("nothing", text)

    def test_example_without_a_slot_is_found(self):
        self.plant("// A box.\n//   use(1);", frame=f'#include "{HEADER}"\n')
        self.assertEqual(self.errors(), [(HEADER, 2, f"an example without a slot in {FRAME} (tools/check-examples)")])

    def test_slot_without_an_example_is_found(self):
        self.plant("// A box.")
        self.assertEqual(self.errors(), [(FRAME, 3, f"{HEADER} has no example")])

    def test_slots_share_the_lines_of_a_header(self):
        two = FUNCTION + f"void other(int other) {{\n  // example: {HEADER} from const int weight = 2\n}}\n"
        self.plant("//   const int weight = 1;\n//   use(weight);\n//   const int weight = 2;\n//   use(other);", frame=two)
        self.assertEqual(self.check(), (0, ""))
        first, second = (part + "}\n" for part in two.split("}\n")[:2])
        self.write(FRAME, f'#include "{HEADER}"\n{second}{first}')
        self.assertEqual(self.check(), (0, ""))
        self.plant("//   const int weight = 1;\n//   use(other);\n//   const int weight = 2;", frame=two)
        self.assertEqual([error[:2] for error in self.errors()], [(HEADER, 2)])

    def test_slot_whose_first_line_is_missing_is_found(self):
        self.plant("//   use(1);", frame=FUNCTION + f"// example: {HEADER} from use(2)\n")
        self.assertEqual(self.errors(),
                         [(FRAME, 5, f"{HEADER} has no example with a line that begins with use(2)")])

    def test_lines_before_the_first_slot_are_found(self):
        self.plant("//   use(1);\n//   use(2);", frame=FUNCTION.replace(f"{HEADER}\n}}", f"{HEADER} from use(2)\n}}"))
        self.assertEqual([error[:2] for error in self.errors()], [(HEADER, 1)])

    def test_examples_in_c_are_compiled_as_c(self):
        frame = f'void take(const int* all);\nvoid example(void) {{\n  // example: {HEADER}\n}}\n'
        self.write(C_FRAME, frame)
        self.write(HEADER, "/* A box.\n *\n *   take((const int[]){1, 2});\n */\n")
        self.assertEqual(self.check(), (0, ""))
        self.write(HEADER, "/* A box.\n *\n *   int class = 1;\n *   take(nothing);\n */\n")
        self.assertEqual([error[:2] for error in self.errors()], [(HEADER, 4)])

    def test_build_that_is_not_configured_is_an_error(self):
        self.plant("//   use(1);")
        (self.tree / "build/compile_commands.json").unlink()
        done = subprocess.run([sys.executable, CHECKER, "--root", self.tree], capture_output=True, text=True)
        self.assertEqual(done.returncode, 1)
        self.assertIn("configure first", done.stderr)


if __name__ == "__main__":
    unittest.main()
