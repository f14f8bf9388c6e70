// SPDX-License-Identifier: Apache-2.0
// A small world for the gang commit: a coordinator and the agents of all ranks, each on its own node. The
// world runs the real machines. It has journals that survive crashes, keepers that hold ranks and enforce
// leases, a network and one clock. Events are discrete and run on one thread; a seed determines them. The
// checks are the checks of tests/model/gang.pml.
//
// Mutant names a deliberate mistake of the world's driver; the tests show that the checks find this mistake.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "libckpt/protocol/gang/gang_bystander.h"
#include "libckpt/protocol/gang/gang_coordinator.h"
#include "libckpt/protocol/gang/gang_parties.h"
#include "libckpt/protocol/gang/gang_source.h"
#include "libckpt/protocol/gang/gang_target.h"

namespace ckpt::gang::test {

enum class Mutant {
  kNone,
  kReadyNotDurable,     // a restarted target does not know its READY
  kHeldNotDurable,      // a restarted bystander does not know its HELD
  kStillNotDurable,     // a restarted bystander does not know its HELD_STILL
  kReturnNotDurable,    // a restarted coordinator does not know that it granted n+2
  kNoFence,             // the keeper does not stop a target at the end of its lease
  kGoEarly,             // a target is treated as inside its gate as soon as it has promised
  kSwapAtCommitted,     // a bystander treats COMMITTED as GO
  kReleaseAtGo,         // a source frees its memory when its target has passed its gate
  kRelinquishedIsVeto,  // applies SW-14 rank by rank: any target that dies lets the sources continue
  kRestoreUnfenced,     // the image runs before the bystanders have answered
  kOldAbortedEarly,     // a bystander aborts its old communicators at COMMITTED
  kNotMadeYet,          // communicators count as created as soon as creation has begun
  kLeaseForgotten,      // a restarted coordinator does not wait for leases that it had granted
  kFinishedIsDead,      // a finished program is treated as an instance that died
  kEndsLate,            // an instance that is given up runs on until its lease ends
  kStatedBeforeEnd,     // an instance counts as ended as soon as it is ordered to end
};

// Returns the reason of a failure that the world causes.
[[nodiscard]] inline Reason reason_of(const char* text) {
  return {ErrorCode::kAborted, text};
}

class World {
 public:
  struct Options {
    std::uint64_t seed = 1;
    bool chance = false;  // true: delays, losses, repeats and crashes occur at random
    Mutant mutant = Mutant::kNone;
    std::uint32_t moved = 2;
    std::uint32_t staying = 1;
    bool overlaps = true;
    std::uint32_t communicators_ms = 1'500;
    Timing timing;
  };
  explicit World(Options options);

  // ---- commands ----
  void migrate();
  void abort_migration();
  void crash(const Party& party);  // ends the party's agent, or the coordinator
  void restart(const Party& party);
  void lose_records();            // ends the coordinator and deletes its journal
  void lose(const Party& party);  // permanently removes the party's node, with its journal and its instance
  void prove_lost(const Party& party);     // informs the coordinator of the loss
  void kill_instance(const Party& party);  // kills the instance of a target
  void finish(const Party& party);         // ends the program of a target that has passed its gate
  void cut(const Party& a, const Party& b, bool is_cut);
  void cut_off(const Party& party, bool is_cut);  // disconnects the party from all other parties
  void fail_record(const Party& party) { failing_.insert(party); }
  void take_long_for_last_copy(std::uint32_t rank, std::int64_t ms) { last_copies_ms_[rank] = ms; }
  void take_long_to_hold(const Party& party, std::int64_t ms) { holds_ms_[party] = ms; }
  void take_long_to_end(const Party& party, std::int64_t ms) { ends_ms_[party] = ms; }
  void make_no_communicators() { makes_communicators_ = false; }
  void fail_next_resume() { fails_resume_ = true; }
  // Drops all messages with this name. With `to`, only messages to this party are dropped.
  void hold(std::string_view body_name) { held_names_.emplace(body_name); }
  void hold(std::string_view body_name, const Party& to) { held_names_.emplace(name_to(body_name, to)); }
  void release() { held_names_.clear(); }
  bool step();  // runs one event; false when no event is left
  void run_for(std::int64_t ms);
  void faults_end();  // repairs all links, starts all processes, stops random faults, and proves all losses

  // ---- state ----
  [[nodiscard]] const GangInfo& info() const { return info_; }
  [[nodiscard]] std::vector<Party> everyone() const;
  [[nodiscard]] bool is_up(const Party& party) const { return hosts_.at(party).up; }
  [[nodiscard]] bool is_lost(const Party& party) const { return hosts_.at(party).lost; }
  [[nodiscard]] std::string first_violation() const { return violation_; }
  [[nodiscard]] bool runs_old() const;  // all ranks run in the old epoch
  [[nodiscard]] bool runs_new() const;
  [[nodiscard]] bool is_restored() const { return restored_; }
  [[nodiscard]] bool goal() const;
  [[nodiscard]] bool is_settled() const;
  [[nodiscard]] std::string summary() const;
  [[nodiscard]] std::string last_record(const Party& party) const;
  [[nodiscard]] const std::map<Party, std::vector<Record>>& journals() const { return journals_; }
  std::mt19937_64& random() { return random_; }
  void trace_on(bool on) { tracing_ = on; }
  std::vector<std::string> take_trace() { return std::exchange(trace_, {}); }

 private:
  using Machine = std::variant<std::monostate, CoordinatorState, SourceState, TargetState, BystanderState>;
  // The node of a party: its agent's machine and its keeper's state.
  struct Host {
    bool up = true;
    bool lost = false;
    std::uint64_t life = 0;
    Machine machine;
  };
  // The process of a rank. A source or bystander runs in the old epoch at first.
  struct Instance {
    bool alive = false;
    bool image = false;     // true if a target has the rank's memory
    bool running = false;   // true if a target has passed its gate
    bool finished = false;  // true if a target's program has ended, and its work is done
    bool in_new = false;    // true if the process runs, or will run, in the new epoch
    bool hold_wanted = false;
    bool held = false;
    bool in_gate = false;
    bool has_old_communicators = false;
    bool joins = false;  // true while the process waits for the other members of new communicators
    bool has_new_communicators = false;
    std::optional<Nanos> deadline;
  };

  static std::string name_to(std::string_view body_name, const Party& to) {
    return std::string(body_name) + " to " + to_text(to);
  }
  void at(Nanos when, std::function<void()> what);
  void after_ms(std::int64_t ms, std::function<void()> what) { at(now_ + ms * kNanosPerMs, std::move(what)); }
  [[nodiscard]] std::int64_t delay_ms(std::int64_t plain);
  [[nodiscard]] bool chance(double probability);

  template <class Event>
  void feed(const Party& party, const Event& event);
  // Delivers the event later, if the agent has not restarted by then.
  template <class Event>
  void feed_later(const Party& party, Event event, std::int64_t ms);
  void execute(const Party& party, const std::vector<Action>& actions);
  bool execute_one(const Party& party, const Action& action);
  bool write(const Party& party, const Record& record);
  bool is_forgotten(const Record& record) const;
  void check_restore(const Record& record);
  [[nodiscard]] std::uint64_t memory_of(const Party& from) const;
  void transmit(const Party& from, const Party& to, const Body& body);
  void deliver(const Party& from, const Party& to, const Body& body);
  [[nodiscard]] bool reaches(const Party& from, const Party& to) const;
  void arm(const Party& party, Timer timer, std::uint32_t ms);
  void create(const Party& party, bool is_new);
  void revive(const Party& party);
  void recover_coordinator_by_ranks();
  void answer_in_one_piece(const Party& party);
  [[nodiscard]] bool has_more_to_state(const Party& party) const;
  void resume_rank(const Party& party);
  void end_instance(const Party& party, bool by_fault);
  void end_as_ordered(const Party& party);  // ends the instance, then states RankEnded to its machine
  void feed_ended(const Party& party);
  TargetEvent end_of(const Party& party);  // returns the event of a target whose program has exited
  void join(const Party& party);
  void make_communicators();
  void give_up_communicators(const Party& party);
  template <class Event>
  void feed_of_communicators(const Party& party, Event event, std::int64_t ms);
  void enter_gate(const Party& party, Incarnation k);
  void open_gate(const Party& party, const OpenGate& action);
  void hold_rank(const Party& party);
  void run_rounds(const Party& source);
  void release_manifest(const Party& source);
  void break_session(std::uint32_t rank);

  void check();
  [[nodiscard]] bool is_on(const Party& party) const;
  [[nodiscard]] bool old_set() const;
  [[nodiscard]] bool new_set() const;
  [[nodiscard]] bool waits_at_n(const Party& bystander) const;
  void violate(const std::string& what);
  void note(const Party& party, const std::string& what);

  Options options_;
  GangInfo info_;
  std::mt19937_64 random_;
  Nanos now_ = 1'000'000'000;
  std::uint64_t order_ = 0;
  std::map<std::pair<Nanos, std::uint64_t>, std::function<void()>> events_;
  std::map<Party, Host> hosts_;
  std::map<Party, Instance> instances_;
  std::map<Party, std::vector<Record>> journals_;
  std::map<std::pair<Party, Timer>, std::uint64_t> timers_;
  std::uint64_t next_timer_ = 1;
  std::map<std::uint32_t, std::uint64_t> sessions_;  // mover sessions by rank; a new number ends the previous
                                                     // session
  std::set<std::pair<Party, Party>> cuts_;
  std::set<std::string, std::less<>> held_names_;
  std::set<std::uint32_t> ran_;  // ranks whose targets have passed their gates
  std::set<Party> failing_;
  bool fails_resume_ = false;
  std::map<std::uint32_t, std::int64_t> last_copies_ms_;  // durations of slow last copies by rank; other
                                                          // copies take a short random time
  std::map<Party, std::int64_t> holds_ms_;                // durations of slow holds by party; other holds
                                                          // take a short random time
  std::map<Party, std::int64_t> ends_ms_;  // durations of slow ends by party; other instances end at once
  bool makes_communicators_ = true;
  std::uint64_t lost_records_ = 0;               // number of journals that the coordinator has lost
  std::vector<Body>* to_coordinator_ = nullptr;  // collects the messages to the coordinator
  bool old_passed_ = false;                      // true once a rank has passed n in the old epoch
  bool restored_ = false;
  int faults_ = 0;          // number of lost nodes and failed instances
  int failed_resumes_ = 0;  // failed resumes into a gate; they are not faults and must never lose work
  bool was_settled_ = false;
  bool lost_later_ = false;  // true if a rank was lost after the migration was over; another recovery handles
                             // this loss
  bool chance_ = false;
  bool tracing_ = false;
  std::string violation_;
  std::vector<std::string> trace_;
};

}  // namespace ckpt::gang::test
