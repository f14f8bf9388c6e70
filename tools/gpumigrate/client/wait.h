// SPDX-License-Identifier: Apache-2.0
// The wait of a command. After a second it shows the subject of the wait: on a terminal in one line that is
// rewritten, elsewhere once. The first SIGINT or SIGTERM ends the wait, and so does a time limit. The
// operation continues, and the error names it.
// Threads: one. Ownership: borrows the context; one Wait at a time. Errors: end() returns kAborted.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>

#include "tools/gpumigrate/client/context.h"

namespace ckpt::cli {

enum class WaitKind {
  kPolls,   // calls that may stay unanswered for next_call(); these calls end shortly after the limit
  kAnswer,  // one call, which ends at the limit
  kFollow,  // calls like those of kPolls, for a follower that shows its own progress and handles the signals
};

struct WaitSubject {
  std::string what;     // the text after "waiting for", like "job train to end"
  std::string goes_on;  // what continues, like "it keeps running; `gpumigrate wait train` waits again"
};

class Wait {
 public:
  // Begins a wait. `limit` is the value of --timeout; empty: no limit.
  static Result<std::unique_ptr<Wait>> begin(Context& context, WaitSubject subject, const std::string& limit,
                                             WaitKind kind = WaitKind::kPolls);
  Wait(Context& context, WaitSubject subject, std::optional<std::chrono::nanoseconds> limit = std::nullopt,
       WaitKind kind = WaitKind::kPolls);
  ~Wait();
  Wait(const Wait&) = delete;
  Wait& operator=(const Wait&) = delete;

  // Returns the reason if the wait is over, otherwise nullopt. Callers must check it before each call to the
  // coordinator.
  [[nodiscard]] std::optional<Error> end();
  [[nodiscard]] bool is_over_time() const;
  // Returns the error at the limit. is_limit() returns whether the limit ended the call that returned
  // `error`.
  [[nodiscard]] Error timed_out() const;
  [[nodiscard]] bool is_limit(const Error& error) const;
  // Returns how long the next call may stay unanswered: 30 s, or the remaining time.
  [[nodiscard]] std::chrono::milliseconds next_call() const;
  // Shows `line` at once at the first SIGINT or SIGTERM. That signal does not end the call.
  void note_first_interrupt(const std::string& line);
  // Changes the subject of the wait.
  void now_for(std::string what) { subject_.what = std::move(what); }
  // Removes the line from the terminal, before other output.
  void clear();

 private:
  using Clock = std::chrono::steady_clock;
  void show();

  Context& context_;
  WaitSubject subject_;
  Clock::time_point since_ = Clock::now();
  std::optional<Clock::time_point> limit_;
  bool is_shown_ = false;  // true while the line is shown on the terminal
  std::string last_line_;  // the last line, if `err` is not a terminal
};

// Reports the error like report(). At the limit the message names what continues, and the exit code is 124.
int report_wait(Context& context, Wait& wait, const Error& error);

}  // namespace ckpt::cli
