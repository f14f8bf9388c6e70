// SPDX-License-Identifier: Apache-2.0
// All parties of rank moves on one node: one machine for each (migration, party). It routes messages and
// events to them. It is pure like the machines: it returns actions, and the driver executes the actions in
// order.
//
// Prepare creates a party that is not known here. Any other message for an unknown party must include the
// description of the move. The party is then that of a restarted agent without a record: it leaves the move
// and reports that. Only the newest move of a rank decides what runs: after a restart, earlier closed moves
// cause no actions.
// Threads: one. Ownership: plain values. Errors: kProtocol and kInvalidArgument for impossible input; nothing
// is changed then.
#pragma once

#include <functional>
#include <map>
#include <optional>
#include <span>
#include <variant>
#include <vector>

#include "libckpt/protocol/gang/gang_bystander.h"
#include "libckpt/protocol/gang/gang_records.h"
#include "libckpt/protocol/gang/gang_source.h"
#include "libckpt/protocol/gang/gang_target.h"

namespace ckpt::gang {

struct PartyKey {
  PartyKey() = default;
  PartyKey(MigrationId of, Party which) : migration(of), party(which) {}
  friend auto operator<=>(const PartyKey&, const PartyKey&) = default;
  MigrationId migration = 0;
  Party party;
};
// The actions of one step of one machine. If a WriteRecord in the batch fails cleanly, drop the rest of the
// batch and call record_failed(key).
struct Batch {
  PartyKey key;
  GangInfo info;
  std::vector<Action> actions;
};
using PartyEvent = std::variant<SourceEvent, TargetEvent, BystanderEvent>;
using PartyState = std::variant<SourceState, TargetState, BystanderState>;

class GangParties {
 public:
  explicit GangParties(Timing timing) : timing_(timing) {}

  // Sets the coordinator's lease term, as last reported. Leases are renewed three times per term.
  void set_lease_term(std::uint32_t term_ms);
  // Restores all parties from the records of this agent's journal, oldest first. Call this once, at start.
  Result<std::vector<Batch>> restore(std::span<const Record> records, Nanos now);
  // Delivers a message. Returns nullopt if the party is not known here and the message does not describe the
  // move.
  Result<std::optional<std::vector<Batch>>> on_message(const wire::CommitMessage& message, Nanos now);
  // Delivers an event. Returns kNotFound if there is no such party.
  Result<std::vector<Batch>> on_event(const PartyKey& key, const PartyEvent& event, Nanos now);
  Result<std::vector<Batch>> record_failed(const PartyKey& key, const Reason& reason, Nanos now);

  [[nodiscard]] const PartyState* find(const PartyKey& key) const;
  [[nodiscard]] const std::map<PartyKey, PartyState>& all() const noexcept { return parties_; }
  // Returns whether no party of the rank forbids running: a paused rank may then continue without a party's
  // action. Only parties for which is_of returns true count. A rank that was restored from an image since
  // then is a different instance, which an earlier move does not know.
  [[nodiscard]] bool may_run_freely(JobId gang, std::uint32_t rank,
                                    const std::function<bool(const PartyKey&)>& is_of) const;
  [[nodiscard]] bool is_open(JobId gang, std::uint32_t rank) const;
  // Drops the machines of the moves for which `which` returns true. The driver drops the records, too.
  void forget(const std::function<bool(const GangInfo&)>& which);

 private:
  template <class Event>
  Result<std::vector<Batch>> apply(const PartyKey& key, const Event& event, Nanos now);
  Result<std::vector<Batch>> begin(const wire::CommitMessage& message, Nanos now);
  [[nodiscard]] const PartyState* newest_of(JobId gang, std::uint32_t rank) const;

  Timing timing_;
  std::map<PartyKey, PartyState> parties_;
  std::map<PartyKey, PartyState> before_;  // the state of each machine before its last step, for
                                           // record_failed
};

[[nodiscard]] const GangInfo& info_of(const PartyState& state);
[[nodiscard]] bool is_closed(const PartyState& state);
// Returns whether the party has recorded the end of its instance, and waits until the instance has exited. It
// states nothing until then.
[[nodiscard]] bool is_ending(const PartyState& state);
[[nodiscard]] std::string_view phase_name(const PartyState& state);

}  // namespace ckpt::gang
