// SPDX-License-Identifier: Apache-2.0
// Moves of ranks, by files (replay.h): the records of the parties, and in the end who runs. Parties: C
// (coordinator), S0 and T0 (source and target of rank 0), U2 (rank 2, which stays). Nothing happens by
// chance. Commands:
//   gang MOVED+STAYING [in-pause]  first, once      migrate · abort · run MS · state
//   until P RECORD (of that party, at most 60 s)    crash P · restart P (its agent, or the coordinator)
//   lose P (its node, for good; the coordinator learns of it)      lose-journal (the coordinator's, with it)
//   kill P (a target's instance)                    finish P (a target's program, past its gate)
//   refuse P (its next record)                      slow-end P MS (its instance takes so long to end)
//   cut P P · heal P P · cut-off P · reach P        hold MESSAGE [P] (is lost, to P) · release
//   no-communicators (none are made)
#include <memory>
#include <sstream>

#include "tests/scenario/replay.h"
#include "tests/unit/libckpt/protocol/gang/gang_world.h"

namespace ckpt::gang::test {
namespace {

constexpr std::int64_t kMaxUntilMs = 60'000;

Timing plain() {
  Timing t;
  t.lease_term_ms = 2'000;
  t.lease_drift_ms = 100;
  t.lease_renew_ms = 600;
  t.poll_ms = 200;
  t.silence_ms = 1'000;
  t.pause_timeout_ms = 3'000;
  t.handover_timeout_ms = 1'500;
  t.migration_timeout_ms = 60'000;
  return t;
}

class Player {
 public:
  std::string play(const std::vector<std::string>& commands) {
    out_.clear();
    for (const std::string& command : commands) {
      if (!play_one(command)) out_ += "unknown command: " + command + "\n";
      collect();
    }
    if (world_ && !world_->first_violation().empty()) out_ += "VIOLATION " + world_->first_violation() + "\n";
    return out_;
  }

 private:
  void collect() {
    if (!world_) return;
    for (const std::string& line : world_->take_trace()) {
      const bool is_message = line.find(" of ") != std::string::npos;
      if (!is_message) out_ += line.substr(line.find(' ') + 1) + "\n";
    }
  }
  bool begin(std::istringstream& words) {
    World::Options options;
    options.timing = plain();
    char plus = 0;
    std::string mode;
    words >> options.moved >> plus >> options.staying >> mode;
    if (options.moved == 0 || plus != '+') return false;
    options.overlaps = mode != "in-pause";
    world_ = std::make_unique<World>(options);
    world_->trace_on(true);
    return true;
  }
  std::optional<Party> party(const std::string& name) const {
    for (const Party& known : world_->everyone())
      if (to_text(known) == name) return known;
    return std::nullopt;
  }
  void until(const Party& party, const std::string& record) {
    for (std::int64_t ms = 0; ms < kMaxUntilMs && world_->last_record(party) != record; ++ms)
      world_->run_for(1);
    collect();
    if (world_->last_record(party) != record)
      out_ += "never happened: " + to_text(party) + " " + record + "\n";
  }
  bool play_one(const std::string& line) {
    std::istringstream words(line);
    std::string verb, a, b;
    words >> verb;
    if (verb == "gang") return begin(words);
    if (!world_) return false;
    words >> a >> b;
    return a.empty() ? play_plain(verb) : play_of(verb, a, b);
  }
  bool play_plain(const std::string& verb) {
    if (verb == "migrate")
      world_->migrate();
    else if (verb == "abort")
      world_->abort_migration();
    else if (verb == "release")
      world_->release();
    else if (verb == "lose-journal")
      world_->lose_records();
    else if (verb == "no-communicators")
      world_->make_no_communicators();
    else if (verb == "state")
      out_ += world_->summary() + (world_->is_settled() ? "; settled" : "; open") + "\n";
    else
      return false;
    return true;
  }
  bool play_of(const std::string& verb, const std::string& a, const std::string& b) {
    if (verb == "run") {
      world_->run_for(std::stoll(a));
      return true;
    }
    const auto other = b.empty() ? std::nullopt : party(b);
    if (verb == "hold") {
      if (other)
        world_->hold(a, *other);
      else
        world_->hold(a);
      return true;
    }
    const auto one = party(a);
    if (!one) return false;
    if (verb == "slow-end") {
      world_->take_long_to_end(*one, std::stoll(b));
      return true;
    }
    if (verb == "until")
      until(*one, b);
    else if (verb == "crash")
      world_->crash(*one);
    else if (verb == "restart")
      world_->restart(*one);
    else if (verb == "kill")
      world_->kill_instance(*one);
    else if (verb == "finish")
      world_->finish(*one);
    else if (verb == "refuse")
      world_->fail_record(*one);
    else if (verb == "cut-off" || verb == "reach")
      world_->cut_off(*one, verb == "cut-off");
    else if (verb == "lose")
      lose(*one);
    else if ((verb == "cut" || verb == "heal") && other)
      world_->cut(*one, *other, verb == "cut");
    else
      return false;
    return true;
  }
  void lose(const Party& party) {
    world_->lose(party);
    world_->prove_lost(party);
  }

  std::unique_ptr<World> world_;
  std::string out_;
};

}  // namespace
}  // namespace ckpt::gang::test

int main(int argc, char** argv) {
  return ckpt::scenario::replay_all<ckpt::gang::test::Player>(argc, argv);
}
