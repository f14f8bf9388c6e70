// SPDX-License-Identifier: Apache-2.0
// Tests that processes which a program had stopped itself are found in their CRIU image.
#include "agent/host_process/criu_image/stopped_processes.h"

#include <gtest/gtest.h>

#include <fstream>

#include "agent/host_process/criu_image/criu_records.h"
#include "tests/unit/agent/support/temporary_folder.h"

namespace ckpt::agent::host {
namespace {

void write_image(const std::string& path, std::uint32_t magic, const std::string& record) {
  std::string image;
  put_word(image, kImageMagic);
  put_word(image, magic);
  put_record(image, record);
  std::ofstream(path, std::ios::binary) << image;
}

// Writes a core image. The fields are those of images/core.proto of CRIU 4.2.1: mtype, then `tc` (3) with its
// task_state (1).
void write_core(const TemporaryFolder& folder, int pid, char state) {
  write_image(folder / ("core-" + std::to_string(pid) + ".img"), 0x55053847,
              std::string("\x08\x01\x1a\x02\x08", 5) + state);
}

// Writes the process tree's image. The fields are those of images/pstree.proto: pid, ppid, pgid, sid.
void write_first(const TemporaryFolder& folder, char pid) {
  write_image(folder / "pstree.img", 0x50273030,
              std::string("\x08", 1) + pid + std::string("\x10\x00\x18\x01\x20\x01", 6));
}

TEST(StoppedProcesses, StoppedProcessIdsAreFound) {
  const TemporaryFolder folder;
  write_first(folder, 1);
  write_core(folder, 1, 1);
  write_core(folder, 2, 3);
  write_core(folder, 17, 3);
  write_core(folder, 18, 2);
  std::ofstream(folder / "core-19.img") << "short";
  std::ofstream(folder / "core-x.img") << "none";
  EXPECT_EQ(stopped_in(folder.path()), (std::set<pid_t>{2, 17}));
}

TEST(StoppedProcesses, JobStoppedFromOutsideHasNoStoppedProcesses) {
  const TemporaryFolder folder;
  write_first(folder, 5);
  write_core(folder, 5, 3);
  write_core(folder, 6, 3);
  EXPECT_TRUE(stopped_in(folder.path()).empty());
}

TEST(StoppedProcesses, StoredProcessIdsAreReadOnlyOnce) {
  const TemporaryFolder folder;
  store_stopped(folder.path(), {});
  EXPECT_TRUE(pop_stopped(folder.path()).empty());
  store_stopped(folder.path(), {3, 4});
  EXPECT_EQ(pop_stopped(folder.path()), (std::set<pid_t>{3, 4}));
  EXPECT_TRUE(pop_stopped(folder.path()).empty());
}

}  // namespace
}  // namespace ckpt::agent::host
