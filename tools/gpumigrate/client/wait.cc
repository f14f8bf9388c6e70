// SPDX-License-Identifier: Apache-2.0
#include "tools/gpumigrate/client/wait.h"

#include <algorithm>

#include "tools/common/units.h"
#include "tools/gpumigrate/client/table.h"

namespace ckpt::cli {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLongestPoll{30'000};
// The extra time for an answer that was sent at the limit.
constexpr milliseconds kAnswerGrace{2'000};
constexpr std::chrono::hours kLongestLimit{10'000};
constexpr std::size_t kShownColumns = 59;  // the maximum length of the line; a longer line could wrap, and a
                                           // wrapped line cannot be rewritten

}  // namespace

Result<std::unique_ptr<Wait>> Wait::begin(Context& context, WaitSubject subject, const std::string& limit,
                                          WaitKind kind) {
  if (limit.empty()) return std::make_unique<Wait>(context, std::move(subject), std::nullopt, kind);
  auto time = tools::parse_duration_ns(limit);
  if (!time) return Error(ErrorCode::kInvalidArgument, "--timeout: " + time.error().message());
  return std::make_unique<Wait>(context, std::move(subject), std::chrono::nanoseconds(*time), kind);
}

Wait::Wait(Context& context, WaitSubject subject, std::optional<std::chrono::nanoseconds> limit,
           WaitKind kind)
    : context_(context), subject_(std::move(subject)) {
  HttpClient& http = context_.coordinator.http();
  http.catch_interrupts();
  if (kind != WaitKind::kFollow) http.set_ticker(context_.shown_after, [this] { show(); });
  if (!limit) return;
  limit_ = since_ + std::min<std::chrono::nanoseconds>(*limit, kLongestLimit);
  http.set_deadline(kind == WaitKind::kAnswer ? *limit_ : *limit_ + kAnswerGrace);
}

Wait::~Wait() {
  clear();
  context_.coordinator.http().set_ticker({}, {});
  context_.coordinator.http().on_interrupt({});
  context_.coordinator.http().set_deadline(std::nullopt);
}

std::optional<Error> Wait::end() {
  const bool is_interrupted = context_.coordinator.http().consume_interrupts() > 0;
  if (!is_interrupted && !is_over_time()) return std::nullopt;
  clear();
  if (!is_interrupted) return timed_out();
  return Error(ErrorCode::kAborted,
               "Interrupted while waiting for " + subject_.what + "; " + subject_.goes_on);
}

Error Wait::timed_out() const {
  return {ErrorCode::kAborted, "Timed out waiting for " + subject_.what + "; " + subject_.goes_on};
}

bool Wait::is_limit(const Error& error) const {
  return is_over_time() && (error.code() == ErrorCode::kAborted || error.code() == ErrorCode::kTimedOut);
}

bool Wait::is_over_time() const {
  return limit_ && Clock::now() >= *limit_;
}

milliseconds Wait::next_call() const {
  if (!limit_) return kLongestPoll;
  const auto left = std::chrono::duration_cast<milliseconds>(*limit_ - Clock::now());
  return std::clamp(left, milliseconds(0), kLongestPoll);
}

void Wait::note_first_interrupt(const std::string& line) {
  context_.coordinator.http().on_interrupt([this, line] {
    clear();
    context_.note(line);
    context_.coordinator.http().on_interrupt({});
  });
}

void Wait::show() {
  const std::string what = "waiting for " + printable(subject_.what);
  if (!context_.terminal) {
    if (what != last_line_) context_.note(what);
    last_line_ = what;
    return;
  }
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(Clock::now() - since_).count();
  const std::string line = std::to_string(seconds) + " s: " + what;
  context_.err << "\r" << line.substr(0, kShownColumns) << "\x1b[K" << std::flush;
  is_shown_ = true;
}

void Wait::clear() {
  if (is_shown_) context_.err << "\r\x1b[K" << std::flush;
  is_shown_ = false;
}

int report_wait(Context& context, Wait& wait, const Error& error) {
  wait.clear();
  return wait.is_limit(error) ? report(context, wait.timed_out(), kTimedOutWaiting) : report(context, error);
}

}  // namespace ckpt::cli
