// SPDX-License-Identifier: Apache-2.0
// Findings of agents about their GPUs (wire/health_messages.h): every finding is stored before it is
// acknowledged, once, and added to the event log. Evacuations decides what to do, and marks it as acted on in
// the same transaction as its decision.
//
// A finding is known by node, number and time: a node that was installed again counts from one again.
// Threads: one io_context on one thread. Ownership: the coordinator's. Errors: a report that does not decode
// ends the node's connection; one that cannot be stored is not acknowledged, so that it comes again.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "coordinator/fleet/node_calls.h"
#include "coordinator/fleet/nodes.h"
#include "coordinator/health/policy.h"
#include "coordinator/policies/evacuation/findings.h"
#include "coordinator/state/retention.h"
#include "libckpt/protocol/wire/health_messages.h"

namespace ckpt::coordinator {

class HealthTable {
 public:
  struct Dependencies {
    Store& store;
    EventLog& events;
    NodeCalls& calls;
    NodeFrames& frames;
    PolicyTable& policy;
    control::asio::any_io_executor executor;
  };
  explicit HealthTable(Dependencies deps);

  Result<void> load();
  void on_node_ready(const Node& node);

  [[nodiscard]] const std::vector<Finding>& all() const { return findings_; }
  // The newest of the GPU that is about it, and not only about a program; null: there is none.
  [[nodiscard]] const Finding* newest_suspicion(const Place& place) const;
  // The findings that are not decided on, the oldest first.
  [[nodiscard]] std::vector<Finding> fresh() const;
  // Removes those that were acted on and need not stay; the newest of every node does.
  void prune(const Retention& keep);
  // Within the caller's transaction; acted() once that is committed.
  Result<void> store_acted(const Finding& finding, bool paused);
  void acted(std::int64_t row, bool paused);
  [[nodiscard]] Signal& changed() { return changed_; }

 private:
  // The number of a node's findings that were taken lately.
  struct Taken {
    std::chrono::steady_clock::time_point since;
    std::size_t count = 0;
    std::size_t bytes = 0;
  };
  void on_report(const Node& node, const wire::HealthReport& report);
  // False: the node has had enough taken for now.
  bool has_room(const std::string& node, const wire::HealthFinding& finding);
  Result<bool> store(const std::string& node, wire::HealthFinding finding);
  [[nodiscard]] bool is_known(const std::string& node, const wire::HealthFinding& finding) const;
  [[nodiscard]] std::uint64_t known_number(const std::string& node) const;
  void send_settings(const std::string& node, std::uint64_t known_number);
  // The store is not durable yet.
  void send_later(const std::string& node);
  void index(const Finding& finding);
  Result<void> remove(const std::set<std::int64_t>& rows);

  Dependencies deps_;
  Signal changed_;
  using Key = std::tuple<std::string, std::uint64_t, std::int64_t>;  // node, number, time
  std::vector<Finding> findings_;                                    // by row
  std::set<Key> known_;
  std::map<std::string, std::pair<std::int64_t, std::uint64_t>> newest_;      // of a node: row, number
  std::map<std::pair<std::string, std::uint32_t>, std::int64_t> suspicions_;  // of a GPU: row
  std::set<std::int64_t> fresh_;                                              // rows
  std::map<std::string, Taken> taken_;                                        // by node
  std::set<std::string> pending_settings_;                                    // nodes that still get theirs
  control::asio::steady_timer resend_;
};

}  // namespace ckpt::coordinator
