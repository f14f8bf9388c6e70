// SPDX-License-Identifier: Apache-2.0
// Command: power-cut JOURNAL ROOT BEFORE SEED. It replaces ROOT's content with the content that its disk may
// have if the power failed at the journal's end. BEFORE is the disk's content at the journal's start.
#include <cstdio>
#include <cstdlib>
#include <exception>

#include "tests/fault/write_journal.h"

int main(int argc, char** argv) try {
  if (argc != 5) {
    std::fprintf(stderr, "usage: power-cut JOURNAL ROOT BEFORE SEED\n");
    return 2;
  }
  const auto entries = ckpt::test::read_journal(argv[1]);
  ckpt::checkpoint_store::test::PowerCutFiles disk;
  ckpt::test::load(disk, argv[3]);
  ckpt::test::replay(disk, entries, argv[2]);
  disk.restart(std::strtoull(argv[4], nullptr, 10));
  ckpt::test::store(disk, argv[2]);
  std::printf("%zu operations\n", entries.size());
  return 0;
} catch (const std::exception& failure) {
  std::fprintf(stderr, "power-cut: %s\n", failure.what());
  return 1;
}
