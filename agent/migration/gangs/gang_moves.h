// SPDX-License-Identifier: Apache-2.0
// The effects of all moves of ranks on this node: the session for each action, and the route of each message.
// The class also handles the coordinator's orders to ranks, which concern their stops and their groups.
//
// A moved rank has the sessions of a job of one rank, with its own migration id and plan (gang::MovedRank).
// The events of these sessions arrive here by that id. Numbers: n+i in the machines means the rank's own
// incarnation plus i.
// Threads: the event loop. Ownership: owns the machines' driver and the sessions of open moves. Errors: none
// leave this class. A failure becomes an event of the machine that it concerns.
#pragma once

#include <map>
#include <memory>
#include <optional>

#include "agent/links/peer_links.h"
#include "agent/migration/gangs/bystander_session.h"
#include "agent/migration/gangs/gang_driver.h"
#include "agent/migration/gangs/gang_port.h"
#include "agent/migration/gangs/rank_stop.h"
#include "agent/migration/move_protocol.h"
#include "agent/migration/ports/session_port.h"
#include "agent/migration/source_session.h"
#include "agent/migration/target_session.h"

namespace ckpt::agent {

class GangMoves : public GangEffects, public MoveProtocol, public SessionPort {
 public:
  GangMoves(MigrationContext& context, GangPort& link, PeerLinks& peers, GangDriver::Machines machines);

  [[nodiscard]] GangDriver& driver() noexcept { return driver_; }
  // Executes an order to a rank that takes part in a move.
  Task<> gather(wire::GatherRank order);
  Task<> answer_groups(gang::AskGroups request);

  // Implements GangEffects.
  void send(const gang::PartyKey& key, const gang::GangInfo& info, const gang::Send& what) override;
  void ask_for_info(const wire::CommitMessage& message) override;
  void has_stated_all(const gang::PartyKey& key, const gang::GangInfo& info) override;
  void perform(const gang::PartyKey& key, const gang::GangInfo& info, const gang::Action& action) override;

  // Implements MoveProtocol.
  Task<Result<void>> restore() override { return driver_.restore(); }
  void on_message(wire::CommitMessage message) override { driver_.on_message(std::move(message)); }
  bool take_of_peer(const PeerNode& node, const wire::CommitMessage& message) override;
  void set_lease_term(std::uint32_t term_ms) override { driver_.set_lease_term(term_ms); }
  void restate() override;
  Result<void> set_limits(const wire::SetLimits& limits) override;
  void forget(wire::JobId job) override;
  void release_closed() override;
  [[nodiscard]] bool sends(wire::MigrationId migration) const override;
  [[nodiscard]] bool is_open(wire::JobId job) const override;
  [[nodiscard]] bool may_run_freely(const Job& job) const override;
  [[nodiscard]] bool has_promised(wire::MigrationId migration) const override;
  // Does nothing, because the rank's party detects the exit by its next order.
  void on_standby_ended(wire::MigrationId /*migration*/) override {}
  [[nodiscard]] std::vector<wire::OpenHandover> open_handovers() const override;
  [[nodiscard]] wire::MigrationId newest() const override;
  [[nodiscard]] std::optional<wire::HandoverFacts> describe(
      const wire::DescribeHandover& request) const override;

 private:
  // One party on this node, with its session.
  struct Member {
    std::shared_ptr<const gang::GangPlan> plan;
    std::uint64_t epoch = 0;
    bool overlaps = true;  // value of gang::GangInfo::overlaps
    wire::Incarnation gang_base = 0;
    wire::JobId gang = 0;
    std::uint32_t rank = 0;
    wire::JobId job = 0;
    migration::HandoverInfo info;  // handover facts of a moved rank
    std::shared_ptr<SourceSession> source;
    std::shared_ptr<TargetSession> target;
    std::shared_ptr<BystanderSession> bystander;
    std::shared_ptr<RankStop> stop;
    bool ending = false;    // true while the party waits for the exit of the instance
    Nanos groups_took = 0;  // time to create the communicators of a standby, before the pause
  };
  // Implement SessionPort: handle the events of the sessions of moved ranks.
  void on_event(migration::HandoverKey key, migration::SourceEvent event) override;
  void on_event(migration::HandoverKey key, migration::TargetEvent event) override;
  Member* member(const gang::PartyKey& key, const gang::GangInfo& info);
  Member* find(const gang::PartyKey& key);
  [[nodiscard]] const Member* find(const gang::PartyKey& key) const;
  Result<Member> make(const gang::PartyKey& key, const gang::GangInfo& info);
  void add_sessions(const gang::PartyKey& key, Member& member);
  void emit(const gang::PartyKey& key, gang::PartyEvent event) { driver_.on_event(key, std::move(event)); }
  [[nodiscard]] wire::Incarnation own(const Member& member, wire::Incarnation k) const;
  // Returns the incarnation about which a party decides. A later incarnation has since been restored from
  // images.
  [[nodiscard]] wire::Incarnation last_incarnation(const Member& member, gang::Role role) const;

  void perform_source(const gang::PartyKey& key, Member& member, const gang::Action& action);
  void perform_target(const gang::PartyKey& key, Member& member, const gang::Action& action);
  void perform_bystander(Member& member, const gang::Action& action);
  Task<Result<void>> make_communicators(gang::PartyKey key, std::shared_ptr<TargetSession> session,
                                        Milliseconds beside);
  Task<> join_standby(gang::PartyKey key, std::shared_ptr<TargetSession> session, wire::Bytes payload);
  Task<> join_in_pause(gang::PartyKey key, std::shared_ptr<TargetSession> session);
  Task<> enter_gate(gang::PartyKey key, std::shared_ptr<TargetSession> session, wire::Incarnation k);
  Task<> open_gate(gang::PartyKey key, std::shared_ptr<TargetSession> session, gang::OpenGate order);
  [[nodiscard]] std::shared_ptr<Job> instance_of(const Member& member) const;
  Task<> end_source(gang::PartyKey key, std::shared_ptr<Job> job);
  Task<> end_target(gang::PartyKey key, std::shared_ptr<TargetSession> session);
  void send_report_before(const gang::PartyKey& key, const gang::Body& body);
  void send_source_report(const Member& member);
  void send_target_report(const Member& member);
  [[nodiscard]] std::string node_of(const gang::GangPlan& plan, const gang::Party& party) const;
  void add_peers(const gang::PartyKey& key, const gang::GangPlan& plan);
  Task<Result<gang::RankGroups>> groups_of(const gang::AskGroups& request);

  MigrationContext& context_;
  GangPort& link_;
  PeerLinks& peers_;
  const Milliseconds hold_timeout_;
  std::map<gang::PartyKey, Member> members_;
  std::map<wire::MigrationId, std::shared_ptr<const gang::GangPlan>> plans_;  // plans by the move's id
  GangDriver driver_;
};

}  // namespace ckpt::agent
