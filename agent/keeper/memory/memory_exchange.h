// SPDX-License-Identifier: Apache-2.0
// A transparent rank's device memory during a move: the agent's requests and the rank's answers. From Release
// to Mapped, the sets here are the job's only memory, so they are not dropped during that time. One request
// about the rank's memory (Release, Map, Make, PrepareDump, Reattach) is in progress at a time. If its agent
// disconnects, the request continues, and a later agent with the same request gets the answer.
// Threads: one. Ownership: the sets. The constructor's arguments outlive the object. Errors: answered as
// Failed.
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
    bool is_transparent = false;  // false: the rank keeps its memory, and exports are only forwarded
  };
  explicit MemoryExchange(Parts parts) : parts_(parts) {}

  // ---- from the agent ----
  void handle_request(local::Received received);
  // Begins an export, which is forwarded to the rank if the rank has a session.
  void begin_export(std::uint64_t request);
  void stop_export();
  void release(std::uint64_t request);
  void on_agent_gone();

  // ---- from the rank ----
  void handle_answer(local::Received received);
  // Returns true if the message answers the request in progress.
  bool on_failed(const local::Message& message);
  // Returns false if the export was stopped.
  bool on_export(local::Received& received);
  // Handles any refusal. A refused export is over.
  void on_export_failed(const local::Message& message);
  // Handles the loss of the connection. Returns true if the connection was closed for a prepared dump, and
  // the process is stopped.
  bool on_dumped();
  // Handles the loss of the connection and fails its open request.
  void on_rank_gone(const std::string& reason);
  // Handles the exit of the program.
  void on_exited();
  // Handles a program that was restored from an image, which has no device memory yet.
  void accept_restored() { memory_ = local::MemoryState::kReleased; }
  void on_called_back();  // called when the rank has reconnected after Reattach

  [[nodiscard]] bool is_idle() const { return pending_.type == local::MessageType{}; }
  [[nodiscard]] bool is_mapped() const { return memory_ == local::MemoryState::kMapped; }
  [[nodiscard]] local::MemoryState memory() const { return memory_; }
  [[nodiscard]] bool is_exporting() const { return export_request_ != 0; }
  [[nodiscard]] const MemorySets& sets() const { return sets_; }
  // Returns the listener to which a dumped process connects when it is called back. Returns null if no
  // process is called back.
  [[nodiscard]] local::Listener* reattach_listener() { return reattach_ ? &*reattach_ : nullptr; }
  [[nodiscard]] bool is_called_back() const { return reattach_.has_value(); }

 private:
  struct Pending {
    local::MessageType type{};  // type of the pending request; 0 if there is none
    std::uint64_t request = 0;  // request number that the rank received
    std::uint64_t asker = 0;    // number of the request to answer; 0 if its connection was closed
  };
  struct Mapping {
    local::Map map;
    std::uint64_t last_id = 0;
    std::uint64_t sequence = 0;
  };

  bool handle_set_request(local::Received& received);
  [[nodiscard]] bool admit_request(std::uint64_t request, local::MessageType type);
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
  void store_exported(const local::Received& received);
  void drop_exported();

  Parts parts_;
  MemorySets sets_;
  std::uint64_t export_request_ = 0;
  local::MemoryState memory_ = local::MemoryState::kMapped;
  local::MemoryState memory_before_ = local::MemoryState::kMapped;  // state before the Release in progress
  Pending pending_;
  Mapping mapping_;
  bool dump_ready_ = false;
  std::optional<local::Listener> reattach_;
  Nanos released_ns_ = 0;
  Nanos mapped_ns_ = 0;
};

}  // namespace ckpt::keeper
