// SPDX-License-Identifier: Apache-2.0
// `gpumigrate policy test`: what gpumigrate would do about a GPU, and why; asks nobody. Threads: one. Errors:
// a table that is wrong, with its line and column (exit code 64).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tools/gpumigrate/commands/command_tree.h"

namespace ckpt::cli {

struct PolicyTestOptions {
  std::vector<std::uint32_t> xids;
  std::optional<std::uint32_t> recovery;
  std::string line;  // of the kernel log, in place of --xid
  bool victim = false;
  bool dead = false;
  bool p2p = false;
  bool lost = false;
  bool silent = false;
  std::string probe;  // ok, failed, hung; empty: there was none
  std::string model;
  std::vector<std::string> tables;
};

int test_policy(Context& context, const PolicyTestOptions& options);

// Adds `policy test`, below a `policy` that is there already or not.
void add_policy_test(CommandTree& tree);

}  // namespace ckpt::cli
