// SPDX-License-Identifier: Apache-2.0
// Findings of agents about their GPUs (wire/health_messages.h). Every finding is stored once before it is
// acknowledged, and added to the event log. Evacuations decides what to do. It marks the finding as acted on
// in the same transaction as its decision.
//
// A finding is identified by node, number and time, because a reinstalled node restarts its count at one.
// Threads: one io_context on one thread. Ownership: the coordinator's. Errors: a report that does not decode
// closes the node's connection. A report that cannot be stored is not acknowledged, so that it is sent again.
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
  // Returns the newest finding about the GPU itself, and not only about a program, or null if there is none.
  [[nodiscard]] const Finding* newest_suspicion(const Place& place) const;
  // Returns the findings that are not decided on, the oldest first.
  [[nodiscard]] std::vector<Finding> fresh() const;
  // Removes findings that were acted on and that `retention` does not keep. The newest finding of every node
  // is kept.
  void prune(const Retention& retention);
  // Stores the decision within the caller's transaction. Call acted() once that transaction is committed.
  Result<void> store_acted(const Finding& finding, bool paused);
  void acted(std::int64_t row, bool paused);
  [[nodiscard]] Signal& changed() { return changed_; }

 private:
  // The number of findings that were recently accepted from a node.
  struct Accepted {
    std::chrono::steady_clock::time_point since;
    std::size_t count = 0;
    std::size_t bytes = 0;
  };
  void on_report(const Node& node, const wire::HealthReport& report);
  // Counts another finding of the node. Returns false if the node has reached a limit within kAcceptanceSpan.
  bool consume_quota(const std::string& node, const wire::HealthFinding& finding);
  Result<bool> store(const std::string& node, wire::HealthFinding finding);
  [[nodiscard]] bool is_known(const std::string& node, const wire::HealthFinding& finding) const;
  [[nodiscard]] std::uint64_t known_number(const std::string& node) const;
  void send_settings(const std::string& node, std::uint64_t known_number);
  // Sends the settings to the node after a delay, because the store is not durable yet.
  void send_later(const std::string& node);
  void index(const Finding& finding);
  Result<void> remove(const std::set<std::int64_t>& rows);

  Dependencies deps_;
  Signal changed_;
  using Key = std::tuple<std::string, std::uint64_t, std::int64_t>;  // the node, the number and the time of a
                                                                     // finding
  std::vector<Finding> findings_;                                    // findings, ordered by row
  std::set<Key> known_;
  // by node: the row and the number of its newest finding
  std::map<std::string, std::pair<std::int64_t, std::uint64_t>> newest_;
  // row of each GPU's newest finding about the GPU itself
  std::map<std::pair<std::string, std::uint32_t>, std::int64_t> suspicions_;
  std::set<std::int64_t> fresh_;              // rows of findings without a decision
  std::map<std::string, Accepted> accepted_;  // by node: the number of recently accepted findings
  std::set<std::string> pending_settings_;    // nodes whose settings are still to be sent
  control::asio::steady_timer resend_;
};

}  // namespace ckpt::coordinator
