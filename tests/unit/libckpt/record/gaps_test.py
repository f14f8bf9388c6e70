#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Lists that have a gap do not compile: gaps_test.py COMPILER INCLUDE_FOLDER..."""
import subprocess
import sys
import unittest

COMPILER, FOLDERS = sys.argv[1], sys.argv[2:]

LISTS = """
#include <string>
#include "libckpt/record/names.h"
using namespace ckpt::record;
struct Three { std::string a; int b = 0; bool c = false; };
struct Made { Made() = default; explicit Made(int x) : a(x) {} int a = 0; bool b = false; };
enum class Two { kOne = 1, kTwo };
"""
MESSAGES = """
#include "libckpt/protocol/wire/codec.h"
struct Message {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  std::uint32_t a = 0; bool b = false;
  template <class A> decltype(auto) fields(A& x) { return x(%s); }
};
auto bytes() { return ckpt::wire::encode(Message()); }
"""


def compiled(source):
    command = [COMPILER, "-std=c++20", "-fsyntax-only", "-D_GNU_SOURCE", "-x", "c++", "-"]
    for folder in FOLDERS:
        command += ["-I", folder]
    return subprocess.run(command, input=source, capture_output=True, text=True)


class Gaps(unittest.TestCase):

    def check_compiles(self, source):
        done = compiled(source)
        self.assertEqual(done.returncode, 0, done.stderr)

    def check_refused(self, source, why):
        done = compiled(source)
        self.assertNotEqual(done.returncode, 0, "it compiles")
        self.assertIn(why, done.stderr)

    def list_of(self, type_name, entries):
        return LISTS + f"constexpr auto fields_of(Of<{type_name}>) {{ return fields({entries}); }}\n" \
                       f"constexpr auto list = fields_of(Of<{type_name}>{{}});\n"

    def test_complete_field_lists_compile(self):
        self.check_compiles(self.list_of("Three", 'field("a", &Three::a), later("b", &Three::b), not_kept(&Three::c)'))
        self.check_compiles(self.list_of("Made", 'field("a", &Made::a), field("b", &Made::b)'))

    def test_field_list_that_lacks_a_member_is_refused(self):
        self.check_refused(self.list_of("Three", 'field("a", &Three::a), field("b", &Three::b)'), "as many entries")

    def test_field_list_that_lacks_a_member_of_a_struct_with_a_constructor_is_refused(self):
        self.check_refused(self.list_of("Made", 'field("a", &Made::a)'), "decomposes into 2")

    def test_field_list_with_a_repeated_member_is_refused(self):
        self.check_refused(
            self.list_of("Three", 'field("a", &Three::a), field("b", &Three::b), field("c", &Three::b)'), "twice")

    def test_field_list_with_a_repeated_name_is_refused(self):
        self.check_refused(
            self.list_of("Three", 'field("a", &Three::a), field("b", &Three::b), field("b", &Three::c)'), "twice")

    def test_table_of_names_with_a_repeated_text_is_refused(self):
        table = 'constexpr auto table = names<Two>({{{{Two::kOne, "x"}}, {{Two::kTwo, "{}"}}}});\n'
        self.check_compiles(LISTS + table.format("y"))
        self.check_refused(LISTS + table.format("x"), "twice")

    def test_message_that_lists_too_few_or_too_many_fields_is_refused(self):
        self.check_compiles(MESSAGES % "a, b")
        self.check_refused(MESSAGES % "a", "as many entries")
        self.check_refused(MESSAGES % "a, b, a", "as many entries")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1], verbosity=2)
