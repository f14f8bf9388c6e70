// SPDX-License-Identifier: Apache-2.0
// Replays the handover of a job of one rank from files (replay.h), and prints the actions of the parties.
// Nodes: A and B (agents), C (coordinator). Every step takes 1 ms, and nothing happens by chance. Commands:
//   migrate A B · run MS · until TEXT (a line that contains it, at most 60 s) · state
//   crash N · crash-after N ACTION · restart N · lose N · lose-store all|RECORDS · kill N (its instance) ·
//   finish N (its instance) · cut N N · heal N N · full N COUNT refuse N (its next preparation) · abort ·
//   timeout · resolve source|target · hold MESSAGE · release · quiet (no trace for the rest of this block)
//   say FROM TO MESSAGE [K] [MIGRATION]   a late message: coordinator|source|target, of the newest migration
//                                         by default
#include <algorithm>
#include <sstream>

#include "tests/scenario/replay.h"
#include "tests/unit/libckpt/protocol/handover/switch_world.h"

namespace ckpt::migration::test {
namespace {

Timing plain() {
  Timing t;
  t.lease_term_ms = 2'000;
  t.lease_drift_ms = 100;
  t.lease_renew_ms = 600;
  t.lend_term_ms = 2'000;
  t.poll_ms = 200;
  t.silence_ms = 1'000;
  t.pause_timeout_ms = 3'000;
  t.handover_timeout_ms = 1'500;
  t.migration_timeout_ms = 60'000;
  return t;
}

int node(const std::string& name) {
  return name == "A" ? 0 : name == "B" ? 1 : kCoordinatorNode;
}
Role party(const std::string& name) {
  return name == "source" ? Role::kSource : name == "target" ? Role::kTarget : Role::kCoordinator;
}

std::optional<wire::Body> body_of(const std::string& name, Incarnation k) {
  if (name == "Prepare") return wire::Prepare{};
  if (name == "Start") return wire::Start{};
  if (name == "Commit") return wire::Commit(k);
  if (name == "Committed") return wire::Committed(k);
  if (name == "Ran") return wire::Ran(k);
  if (name == "Released") return wire::Released{};
  if (name == "Relinquished") return wire::Relinquished{};
  if (name == "Aborted") return wire::Aborted{};
  if (name == "GiveUp") return wire::GiveUp{};
  if (name == "ClosedSource") return wire::Closed(Side::kSource);
  if (name == "ClosedTarget") return wire::Closed(Side::kTarget);
  if (name == "Query") return wire::Query{};
  if (name == "GiveUpQuery") return wire::Query(wire::Reason(ErrorCode::kTimedOut, "it takes too long"));
  return std::nullopt;
}

class Player {
 public:
  Player() : world_({.seed = 1, .chance = false, .mutant = Mutant::kNone, .timing = plain()}) {
    world_.trace_on(true);
  }

  // Plays a block of commands; returns the events that they cause, one per line.
  std::string play(const std::vector<std::string>& commands) {
    out_.clear();
    quiet_ = false;
    for (const std::string& command : commands) {
      if (!play_one(command)) out_ += "unknown command: " + command + "\n";
      collect();
    }
    if (!world_.first_violation().empty()) out_ += "VIOLATION " + world_.first_violation() + "\n";
    return out_;
  }

 private:
  void collect() {
    for (const std::string& line : world_.take_trace()) {
      const std::string text = line.substr(line.find(' ') + 1);
      seen_ += text + "\n";
      const bool noise =
          text.find(": arm ") != std::string::npos || text.find(": disarm ") != std::string::npos;
      if (!noise && !quiet_) out_ += text + "\n";
    }
  }
  void until(const std::string& text) {
    const Nanos give_up = world_.now() + 60'000 * kNanosPerMs;
    seen_.clear();
    collect();
    while (seen_.find(text) == std::string::npos && world_.now() < give_up && world_.step()) collect();
    if (seen_.find(text) == std::string::npos) out_ += "never happened: " + text + "\n";
  }
  bool play_one(const std::string& line) {
    std::istringstream words(line);
    std::string verb, a, b;
    words >> verb;
    if (verb == "until" || verb == "crash-after") {
      if (verb == "crash-after") words >> a;
      std::string rest;
      std::getline(words >> std::ws, rest);
      verb == "until" ? until(rest) : world_.crash_after(node(a), rest);
      return true;
    }
    if (verb == "say") return say(words);
    words >> a >> b;
    if (verb == "migrate") {
      if (world_.migrate(node(a), node(b)) == 0) out_ += "refused\n";
    } else if (verb == "run") {
      world_.run_for(std::stoll(a));
    } else if (verb == "state") {
      out_ += world_.summary() + "\n";
    } else if (verb == "crash") {
      world_.crash(node(a));
    } else if (verb == "restart") {
      world_.restart(node(a));
    } else if (verb == "lose-store") {
      world_.lose_store(a == "all" ? SIZE_MAX : std::stoul(a));
    } else if (verb == "lose") {
      world_.lose(node(a));
    } else if (verb == "kill") {
      world_.kill_instance(node(a));
    } else if (verb == "finish") {
      world_.finish_instance(node(a));
    } else if (verb == "cut" || verb == "heal") {
      world_.cut(node(a), node(b), verb == "cut");
    } else if (verb == "full") {
      world_.fail_records(node(a), std::stoi(b));
    } else if (verb == "abort" || verb == "timeout") {
      world_.abort_migration(world_.last_migration(), verb == "timeout");
    } else if (verb == "resolve") {
      world_.resolve(world_.last_migration(), a == "source" ? Side::kSource : Side::kTarget);
    } else if (verb == "hold") {
      world_.hold(a);
    } else if (verb == "release") {
      world_.release_held();
    } else if (verb == "refuse") {
      world_.refuse_next(node(a));
    } else if (verb == "quiet") {
      quiet_ = true;
    } else {
      return false;
    }
    return true;
  }
  bool say(std::istringstream& words) {
    std::string from, to, name;
    Incarnation k = 0;
    words >> from >> to >> name;
    words >> k;
    words.clear();
    MigrationId id = 0;
    if (!(words >> id)) id = world_.last_migration();
    const auto body = body_of(name, k);
    if (!body) return false;
    const auto* state = world_.coordinator() ? world_.coordinator()->find(id) : nullptr;
    const Incarnation base = state ? state->info.base : 1;
    world_.inject(wire::CommitMessage(id, kJob, base, party(from), party(to), *body));
    return true;
  }

  World world_;
  std::string out_;
  std::string seen_;
  bool quiet_ = false;
};

}  // namespace
}  // namespace ckpt::migration::test

int main(int argc, char** argv) {
  return ckpt::scenario::replay_all<ckpt::migration::test::Player>(argc, argv);
}
