// SPDX-License-Identifier: Apache-2.0
// A transparent rank's device memory while it moves: the agent's requests and the rank's answers. From
// Release to Mapped the job's only memory is the sets that are held here, so they are not dropped then.
// One request about the rank's memory (Release, Map, Make, PrepareDump, Reattach) is under way at a time. If
// its agent goes away it goes on; a later agent that asks for the same gets the answer.
// Threads: one. Ownership: the sets; arguments at construction outlive it. Errors: answered as Failed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "agent/keeper/io/agent_port.h"
#include "agent/keeper/io/rank_link.h"
#include "agent/keeper/memory/memory_sets.h"
#include "agent/keeper/rank/rank_lease.h"
#include "agent/keeper/rank/rank_process.h"
#include "agent/keeper/rank/rank_state.h"
#include "agent/keeper/rank/thread_hold.h"
#include "libckpt/inprocess/local/socket.h"

namespace ckpt::keeper {

class MemoryExchange {
 public:
  struct Parts {
    RankState& state;
    const RankProcess& process;
    ThreadHold& hold;
    const RankLease& lease;
    RankLink& rank;
    AgentPort& agent;
    bool is_transparent = false;  // false: the rank keeps its memory, and exports are only passed on
  };
  explicit MemoryExchange(Parts parts) : parts_(parts) {}

  // ---- from the agent ----
  void handle_request(local::Received received);
  // Begins an export, which is passed to the rank if it has a session.
  void begin_export(std::uint64_t request);
  void stop_export();
  void release(std::uint64_t request);
  void on_agent_gone();

  // ---- from the rank ----
  void handle_answer(local::Received received);
  // Returns true if it was the answer to the request under way.
  bool on_failed(const local::Message& message);
  // Returns false if the export was stopped.
  bool on_export(local::Received& received);
  // Handles any refusal: an export that is refused is over.
  void on_export_failed(const local::Message& message);
  // Called when the connection has ended. True: it ended for a prepared dump, and the process is stopped.
  bool on_dumped();
  // Called when the connection has ended, with its open request.
  void on_rank_gone(const std::string& why);
  // Called when the program has ended.
  void on_exited();
  // Called for a program that has come from an image: it has no device memory yet.
  void take_restored() { memory_ = local::MemoryState::kReleased; }
  void on_called_back();  // the rank is back after Reattach

  [[nodiscard]] bool is_idle() const { return pending_.type == local::MessageType{}; }
  [[nodiscard]] bool is_mapped() const { return memory_ == local::MemoryState::kMapped; }
  [[nodiscard]] local::MemoryState memory() const { return memory_; }
  [[nodiscard]] bool is_exporting() const { return export_request_ != 0; }
  [[nodiscard]] const MemorySets& sets() const { return sets_; }
  // Returns the listener to which a dumped process connects when it is called back; null: none is called
  // back.
  [[nodiscard]] local::Listener* reattach_listener() { return reattach_ ? &*reattach_ : nullptr; }
  [[nodiscard]] bool is_called_back() const { return reattach_.has_value(); }

 private:
  struct Pending {
    local::MessageType type{};  // none: 0
    std::uint64_t request = 0;  // the number that the rank received
    std::uint64_t asker = 0;    // the request to answer; 0: its connection is gone
  };
  struct Mapping {
    local::Map map;
    std::uint64_t last_id = 0;
    std::uint64_t sequence = 0;
  };

  bool handle_set_request(local::Received& received);
  [[nodiscard]] bool may_begin(std::uint64_t request, local::MessageType type);
  void begin(local::MessageType type, std::uint64_t request) { pending_ = {type, request, request}; }
  void finish(local::Body answer, std::vector<UniqueFd> descriptors = {});
  void deposit(local::Received received);
  void fetch(std::uint64_t request, const local::Fetch& fetch);
  void replace(local::Received received);
  void map(std::uint64_t request, const local::Map& map);
  void send_map_batch();
  void make(local::Received received);
  void prepare_dump(std::uint64_t request);
  void reattach(std::uint64_t request, const local::Reattach& how);
  void keep_exported(const local::Received& received);
  void drop_exported();

  Parts parts_;
  MemorySets sets_;
  std::uint64_t export_request_ = 0;
  local::MemoryState memory_ = local::MemoryState::kMapped;
  local::MemoryState memory_before_ = local::MemoryState::kMapped;  // the Release under way
  Pending pending_;
  Mapping mapping_;
  bool dump_ready_ = false;
  std::optional<local::Listener> reattach_;
  Nanos released_ns_ = 0;
  Nanos mapped_ns_ = 0;
};

}  // namespace ckpt::keeper
