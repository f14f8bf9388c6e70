// SPDX-License-Identifier: Apache-2.0
// All parties of moves of ranks on one node: one machine for each (migration, party). It routes messages and events to
// them. Pure like the machines: it returns actions, the driver executes them in order.
//
// A party that is not known here is made by Prepare. Any other message is not understood without the description of the
// move. With it the party is that of a restarted agent without a record: it leaves, and states that.
// Only the newest move of a rank decides what runs: after a restart the closed ones before it stay silent.
// Threads: one. Ownership: values only. Errors: kProtocol and kInvalidArgument for what cannot be, with nothing changed.
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
// The actions of one step of one machine. If a WriteRecord in it fails cleanly: drop the rest of it, and call
// record_failed(key).
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

  // The coordinator's lease term, as last reported: leases are renewed three times in it.
  void set_lease_term(std::uint32_t term_ms);
  // At start, once: all records of this agent's journal, oldest first.
  Result<std::vector<Batch>> restore(std::span<const Record> records, Nanos now);
  // Nothing: the party is not known here, and the message does not describe it.
  Result<std::optional<std::vector<Batch>>> on_message(const wire::CommitMessage& message, Nanos now);
  // kNotFound: there is no such party.
  Result<std::vector<Batch>> on_event(const PartyKey& key, const PartyEvent& event, Nanos now);
  Result<std::vector<Batch>> record_failed(const PartyKey& key, const Reason& reason, Nanos now);

  [[nodiscard]] const PartyState* find(const PartyKey& key) const;
  [[nodiscard]] const std::map<PartyKey, PartyState>& all() const noexcept { return parties_; }
  // No party of that rank forbids it: a rank that stands paused may go on by itself. Only those count of which is_of holds:
  // a rank that has come back from its images since is another instance, of which an earlier move knows nothing.
  [[nodiscard]] bool may_run_freely(JobId gang, std::uint32_t rank,
                                    const std::function<bool(const PartyKey&)>& is_of) const;
  [[nodiscard]] bool is_open(JobId gang, std::uint32_t rank) const;
  // Drops the machines of these moves; the driver drops the records, too.
  void forget(const std::function<bool(const GangInfo&)>& which);

 private:
  template <class Event>
  Result<std::vector<Batch>> apply(const PartyKey& key, const Event& event, Nanos now);
  Result<std::vector<Batch>> begin(const wire::CommitMessage& message, Nanos now);
  [[nodiscard]] const PartyState* newest_of(JobId gang, std::uint32_t rank) const;

  Timing timing_;
  std::map<PartyKey, PartyState> parties_;
  std::map<PartyKey, PartyState> before_;  // for record_failed
};

[[nodiscard]] const GangInfo& info_of(const PartyState& state);
[[nodiscard]] bool is_closed(const PartyState& state);
[[nodiscard]] std::string_view phase_name(const PartyState& state);

}  // namespace ckpt::gang
