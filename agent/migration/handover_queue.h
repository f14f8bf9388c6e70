// SPDX-License-Identifier: Apache-2.0
// What waits for the switch machines of an agent, in order. What this agent has to tell them is kept whatever
// happens. Messages of others are bounded, for each migration and in all. When all places are taken, the
// migration with the most messages loses its newest. So a node that talks about its own migrations takes no
// place from others. A message that was dropped is sent again (driver.md).
// Threads: one. Ownership: owns what waits. Errors: none.
#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <variant>

#include "libckpt/protocol/handover/agent_switches.h"

namespace ckpt::agent {

class HandoverQueue {
 public:
  struct SourceItem {
    migration::SwitchKey key;
    migration::SourceEvent event;
  };
  struct TargetItem {
    migration::SwitchKey key;
    migration::TargetEvent event;
  };
  struct ForgetItem {
    wire::JobId job;
  };
  using Item = std::variant<wire::SwitchMessage, SourceItem, TargetItem, ForgetItem>;

  static constexpr std::size_t kMaxOfMigration = 32;
  static constexpr std::size_t kMaxHeard = 512;

  void put_own(Item item) { entries_.push_back({std::move(item), false}); }
  // False: this message, or another one, was dropped.
  bool put_heard(wire::SwitchMessage message);
  Item take();

  [[nodiscard]] bool empty() const noexcept { return entries_.empty(); }
  [[nodiscard]] std::size_t size() const noexcept { return entries_.size(); }

 private:
  struct Entry {
    Item item;
    bool heard;
  };
  void drop_newest_of(wire::MigrationId migration);
  void uncount(wire::MigrationId migration);

  std::deque<Entry> entries_;
  std::map<wire::MigrationId, std::size_t> heard_of_;  // no zeros
  std::size_t heard_ = 0;
};

}  // namespace ckpt::agent
