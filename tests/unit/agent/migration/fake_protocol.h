// SPDX-License-Identifier: Apache-2.0
// A commit protocol of the agent, played by a test.
#pragma once

#include <set>
#include <utility>
#include <vector>

#include "agent/migration/move_protocol.h"

namespace ckpt::agent {

class FakeProtocol : public MoveProtocol {
 public:
  Task<Result<void>> restore() override { co_return ok(); }
  void on_message(wire::CommitMessage message) override { heard.push_back(std::move(message)); }
  bool take_of_peer(const PeerNode& /*node*/, const wire::CommitMessage& message) override {
    heard.push_back(message);
    return true;
  }
  void set_lease_term(std::uint32_t /*term_ms*/) override {}
  void restate() override {}
  Result<void> set_limits(const wire::SetLimits& /*limits*/) override {
    ++limits_set;
    return limits_answer;
  }
  void forget(wire::JobId /*job*/) override {}
  void release_closed() override {}
  [[nodiscard]] bool sends(wire::MigrationId migration) const override { return sent.contains(migration); }
  [[nodiscard]] bool is_open(wire::JobId job) const override { return open.contains(job); }
  [[nodiscard]] bool may_run_freely(const Job& job) const override { return !held.contains(job.id()); }
  [[nodiscard]] bool has_promised(wire::MigrationId migration) const override {
    return promised.contains(migration);
  }
  void on_standby_ended(wire::MigrationId migration) override { ended_standbys.push_back(migration); }
  [[nodiscard]] std::vector<wire::OpenHandover> open_handovers() const override { return {}; }
  [[nodiscard]] wire::MigrationId newest() const override { return 0; }
  [[nodiscard]] std::optional<wire::HandoverFacts> describe(
      const wire::DescribeHandover& /*request*/) const override {
    return facts;
  }

  std::vector<wire::CommitMessage> heard;
  Result<void> limits_answer = ok();
  int limits_set = 0;
  std::set<wire::MigrationId> sent;
  std::set<wire::JobId> open;
  std::set<wire::JobId> held;
  std::set<wire::MigrationId> promised;
  std::vector<wire::MigrationId> ended_standbys;
  std::optional<wire::HandoverFacts> facts;
};

}  // namespace ckpt::agent
