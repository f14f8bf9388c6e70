// SPDX-License-Identifier: Apache-2.0
// Checks of the properties that hold at each moment and in the end (the properties of tests/model/gang.pml).
#include <algorithm>

#include "tests/unit/libckpt/protocol/gang/gang_world.h"

namespace ckpt::gang::test {
namespace {

bool is_role(const Party& party, Role role) {
  return party.role == role;
}

}  // namespace

bool World::is_on(const Party& party) const {
  const Instance& instance = instances_.at(party);
  return instance.alive && instance.running;
}

std::string World::last_record(const Party& party) const {
  const auto& journal = journals_.at(party);
  return journal.empty() ? "-" : name_of(journal.back());
}

bool World::waits_at_n(const Party& bystander) const {
  const std::string record = last_record(bystander);
  return !is_lost(bystander) && (record == "HELD" || record == "HELD_STILL" || record == "LIFTED");
}

// Returns whether all sources are at n and the bystanders can continue with them.
bool World::old_set() const {
  const auto whole = [this](const Party& party) {
    const Instance& instance = instances_.at(party);
    if (is_role(party, Role::kTarget)) return true;
    if (is_role(party, Role::kBystander)) return instance.has_old_communicators;
    const std::string record = last_record(party);
    return !is_lost(party) && instance.held && (record == "BARRIER" || record == "HELD_STILL");
  };
  const std::vector<Party> ranks = info_.ranks();
  return std::all_of(ranks.begin(), ranks.end(), whole);
}

bool World::new_set() const {
  const std::vector<Party> ranks = info_.ranks();
  return std::all_of(ranks.begin(), ranks.end(), [this](const Party& party) {
    if (!is_role(party, Role::kTarget)) return true;
    const std::string record = last_record(party);
    return !is_lost(party) && instances_.at(party).image && (record == "READY" || record == "COMMITTED");
  });
}

void World::check() {
  if (const auto* state = std::get_if<CoordinatorState>(&hosts_.at(Party()).machine))
    was_settled_ |= gang::is_settled(*state);
  bool any_old = false;
  bool any_source = false;
  bool any_target = false;
  bool any_gone = false;
  for (const Party& party : info_.ranks()) {
    any_source |= is_role(party, Role::kSource) && is_on(party);
    any_target |= is_role(party, Role::kTarget) && is_on(party);
    any_gone |= last_record(party) == "GONE";
    any_old |= !is_role(party, Role::kTarget) && is_on(party) && !instances_.at(party).in_new;
  }
  if (any_target && any_source) violate("a source runs beside a target");
  if (any_target && any_old) violate("ranks of both epochs run");
  if (any_gone && old_passed_)
    violate("a rank has passed the step in the old epoch, and a bystander in the new one");
  const bool any_on = std::any_of(hosts_.begin(), hosts_.end(), [this](const auto& host) {
    return host.first != Party() && is_on(host.first);
  });
  if (restored_ && any_on) violate("a rank runs beside the restored gang");
  const std::vector<Party> ranks = info_.ranks();
  const bool waits = std::all_of(ranks.begin(), ranks.end(), [this](const Party& party) {
    return !is_role(party, Role::kBystander) || waits_at_n(party);
  });
  const bool ran = ran_.size() == info_.moved.size();
  const std::string decision = last_record(Party());
  const bool open = decision == "GRANTED(n+1)" || decision == "KEPT(n+1)";
  const bool undecided =
      open && last_record(info_.lead()) == "COMMITTED" && waits && !(info_.staying.empty() && ran);
  // The coordinator decides again about a return whose record is lost. The return's targets have left by
  // then.
  const int broken = faults_ + failed_resumes_ + static_cast<int>(lost_records_);
  if (!undecided || broken > 1) return;
  const bool old_whole = decision == "GRANTED(n+1)" && old_set();
  if (broken == 0 && !(old_whole && new_set())) violate("undecided, and one set of ranks is not whole");
  if (broken == 1 && !old_whole && !new_set()) violate("undecided, and no set of ranks is whole");
}

// Checks that work is lost only through a fault, and only if no set of ranks is whole.
void World::check_restore(const Record& record) {
  const std::string before = last_record(record.party);
  const bool open = before == "GRANTED(n+1)" || before == "KEPT(n+1)";
  const std::vector<Party> ranks = info_.ranks();
  const bool all_new = std::all_of(ranks.begin(), ranks.end(), [this](const Party& party) {
    return !is_role(party, Role::kBystander) || waits_at_n(party) ||
           (last_record(party) == "GONE" && !is_lost(party));
  });
  const bool all_wait = std::all_of(ranks.begin(), ranks.end(), [this](const Party& party) {
    return !is_role(party, Role::kBystander) || waits_at_n(party);
  });
  if (faults_ == 0) violate("restored without a fault");
  if (open && last_record(info_.lead()) == "COMMITTED" && new_set() && all_new)
    violate("restored beside a whole new set");
  if (open && old_set() && all_wait) violate("restored beside a whole old set");
}

bool World::runs_old() const {
  const std::vector<Party> ranks = info_.ranks();
  return std::all_of(ranks.begin(), ranks.end(), [this](const Party& party) {
    return is_role(party, Role::kTarget) || (is_on(party) && !instances_.at(party).in_new);
  });
}

bool World::runs_new() const {
  const std::vector<Party> ranks = info_.ranks();
  return std::all_of(ranks.begin(), ranks.end(), [this](const Party& party) {
    const bool is_there = is_on(party) || instances_.at(party).finished;
    return is_role(party, Role::kSource) || (is_there && instances_.at(party).in_new);
  });
}

bool World::goal() const {
  const bool never_began = journals_.at(Party()).empty();
  return runs_old() || runs_new() || restored_ || lost_later_ || never_began;
}

bool World::is_settled() const {
  const auto* state = std::get_if<CoordinatorState>(&hosts_.at(Party()).machine);
  return was_settled_ || state == nullptr || gang::is_settled(*state);
}

void World::violate(const std::string& what) {
  if (violation_.empty())
    violation_ = what + " at " + std::to_string(now_ / kNanosPerMs) + " ms: " + summary();
  note(Party(), "VIOLATION " + what);
}

std::string World::summary() const {
  std::string text;
  for (const Party& party : everyone()) {
    const Host& host = hosts_.at(party);
    const Instance& instance = instances_.at(party);
    text += (text.empty() ? "" : ", ") + to_text(party) + " " + last_record(party);
    const auto phase = std::visit(
        [](const auto& state) -> std::string_view {
          if constexpr (std::is_same_v<std::decay_t<decltype(state)>, std::monostate>)
            return "";
          else
            return phase_name(state);
        },
        host.machine);
    text += "/" + std::string(host.lost ? "lost" : host.up ? phase : "down");
    if (instance.finished)
      text += " finished";
    else if (instance.alive)
      text += is_on(party) ? (instance.in_new ? " new" : " old") : " stands";
  }
  return text + (restored_ ? "; restored" : "");
}

void World::note(const Party& party, const std::string& what) {
  if (tracing_) trace_.push_back(std::to_string(now_ / kNanosPerMs) + " " + to_text(party) + ": " + what);
}

}  // namespace ckpt::gang::test
