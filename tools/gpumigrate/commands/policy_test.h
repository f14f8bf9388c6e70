// SPDX-License-Identifier: Apache-2.0
// `gpumigrate policy test` shows the decision about a GPU and its reason. It needs no coordinator.
// Threads: one. Errors: an invalid table, with its line and column (exit code 64).
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
  std::string line;  // a line of the kernel log, instead of --xid
  bool victim = false;
  bool dead = false;
  bool p2p = false;
  bool lost = false;
  bool silent = false;
  std::string probe;  // the probe's result: ok, failed or hung; empty: there was no probe
  std::string model;
  std::vector<std::string> tables;
};

int test_policy(Context& context, const PolicyTestOptions& options);

// Adds `policy test`, and its parent `policy` if that is missing.
void add_policy_test(CommandTree& tree);

}  // namespace ckpt::cli
