// SPDX-License-Identifier: Apache-2.0
// A command that waits. After a second it shows what it waits for: in one line that is rewritten on a
// terminal, once elsewhere. The first SIGINT or SIGTERM ends the waiting, and so does a time limit. What was
// asked for goes on, and the error tells so.
// Threads: one. Ownership: borrows the context; one Wait at a time. Errors: end() returns kAborted.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "tools/gpumigrate/client/context.h"

namespace ckpt::cli {

enum class WaitKind {
  kPolls,   // calls that may be left unanswered for next_call(); an answer that has left at the limit arrives
  kAnswer,  // one call, which ends at the limit
  kFollow,  // as kPolls, by something that shows how far it is and takes the signals by itself
};

struct WaitSubject {
  std::string what;     // behind "waiting for", like "job train to end"
  std::string goes_on;  // like "it runs on; `gpumigrate wait train` waits again"
};

class Wait {
 public:
  // `limit`: a duration as given to --timeout; empty: none.
  static Result<std::unique_ptr<Wait>> begin(Context& context, WaitSubject subject, const std::string& limit,
                                             WaitKind kind = WaitKind::kPolls);
  Wait(Context& context, WaitSubject subject, std::optional<std::chrono::nanoseconds> limit = std::nullopt,
       WaitKind kind = WaitKind::kPolls);
  ~Wait();
  Wait(const Wait&) = delete;
  Wait& operator=(const Wait&) = delete;

  // Why the waiting is over, if it is. To be asked before each call to the coordinator.
  [[nodiscard]] std::optional<Error> end();
  [[nodiscard]] bool is_over_time() const;
  // The error at the limit, and whether an error that came is one of a call that the limit ended.
  [[nodiscard]] Error timed_out() const;
  [[nodiscard]] bool is_limit(const Error& error) const;
  // For how long the next call may be left unanswered: 30 s, or less where less is left.
  [[nodiscard]] std::chrono::milliseconds next_call() const;
  // Shows `line` at once when the first SIGINT or SIGTERM comes, which does not end the call.
  void note_first_interrupt(const std::string& line);
  // It waits for something else now.
  void now_for(std::string what) { subject_.what = std::move(what); }
  // Takes the line from the terminal, before other output.
  void clear();

 private:
  using Clock = std::chrono::steady_clock;
  void show();

  Context& context_;
  WaitSubject subject_;
  Clock::time_point since_ = Clock::now();
  std::optional<Clock::time_point> limit_;
  bool is_shown_ = false;  // on the terminal
  std::string last_line_;  // elsewhere
};

// As report(); at the limit it tells what goes on, and the exit code is 124.
int report_wait(Context& context, Wait& wait, const Error& error);

}  // namespace ckpt::cli
