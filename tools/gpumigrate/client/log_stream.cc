// SPDX-License-Identifier: Apache-2.0
#include "tools/gpumigrate/client/log_stream.h"

#include <algorithm>
#include <utility>

#include "tools/common/units.h"
#include "tools/gpumigrate/client/table.h"

namespace ckpt::cli {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kLongestCall{30'000};
constexpr milliseconds kBeforeRedial{500};
constexpr std::size_t kShortPiece = 32 << 10;
constexpr unsigned kShortPieces = 8;
constexpr std::uint64_t kFirstWindow = 64 << 10;  // the first window at the end of a log; later windows are
                                                  // larger
constexpr std::uint64_t kGrowth = 8;
constexpr std::uint64_t kMaxWindow = 256ull << 20;  // the limit of a window, which is held in memory

// Returns the last `lines` lines of the text.
std::string_view tail_of(std::string_view text, std::uint64_t lines) {
  std::size_t begin = text.size();
  if (text.ends_with('\n')) --begin;
  for (std::uint64_t seen = 0; begin > 0; --begin) {
    if (text[begin - 1] == '\n' && ++seen == lines) break;
  }
  return lines == 0 ? std::string_view() : text.substr(begin);
}

}  // namespace

std::string LogStream::mark_of(const LogPiece& piece) const {
  if (piece.bytes.empty() || piece.restored_from.empty() || piece.incarnation == incarnation_) return "";
  const bool is_middle = incarnation_.empty() && offset_ != 0;  // true if reading began within the output of
                                                                // an instance
  if (is_middle) return "";
  const std::string lost = piece.lost_ms > 0
                               ? "it repeats " + tools::format_milliseconds(piece.lost_ms) + " of work"
                               : std::string("it repeats no work");
  return std::string(begins_line_ ? "" : "\n") + "[gpumigrate: restored from " +
         printable(piece.restored_from) + " as incarnation " + printable(piece.incarnation) + "; " + lost +
         "]\n";
}

Result<std::string> LogStream::read(milliseconds follow) {
  CKPT_TRY(piece,
           context_.coordinator.logs(job_, {offset_, follow, wish_.timestamps, wish_.since_ms, wish_.rank}));
  if (!piece.missing.empty() && std::exchange(missing_, piece.missing) != piece.missing)
    context_.note("Output of job " + job_ + " on " + printable(piece.missing) +
                  " is missing: the node is unreachable, and the coordinator has at most a copy of the last "
                  "part of that output");
  if (piece.skipped > 0)
    context_.note(tools::format_bytes(piece.skipped) + " of older output of job " + job_ +
                  " is deleted: its node keeps only the newest output (job_log_limit_mib)");
  std::string text = mark_of(piece) + piece.bytes;
  const bool is_short = piece.bytes.size() < kShortPiece && piece.incarnation == incarnation_;
  short_pieces_ = is_short ? short_pieces_ + 1 : 0;
  if (!piece.bytes.empty()) {
    begins_line_ = piece.bytes.ends_with('\n');
    incarnation_ = piece.incarnation;
  }
  copied_ = (piece.next_offset > offset_ || !piece.bytes.empty()) && short_pieces_ < kShortPieces;
  offset_ = piece.next_offset;
  ended_ = piece.ended;
  return text;
}

Result<bool> LogStream::next(milliseconds follow) {
  CKPT_TRY(text, read(follow));
  context_.out.write(text.data(), static_cast<std::streamsize>(text.size())) << std::flush;
  return !ended_;
}

Result<std::string> LogStream::read_to_end(std::uint64_t from) {
  offset_ = from;
  short_pieces_ = 0;
  std::string all;
  do {
    CKPT_TRY(text, read(milliseconds(0)));
    all += text;
  } while (copied_ && !ended_);
  return all;
}

Result<void> LogStream::copy_tail(std::uint64_t lines) {
  CKPT_TRY(probe, context_.coordinator.logs(job_, {0, milliseconds(0), false, 0, wish_.rank}));
  const std::uint64_t length = wish_.since_ms > 0 ? 0 : probe.length;
  for (std::uint64_t window = kFirstWindow;; window *= kGrowth) {
    const std::uint64_t from = length > window ? length - window : 0;
    incarnation_.clear();
    begins_line_ = true;
    CKPT_TRY(text, read_to_end(from));
    const auto seen = static_cast<std::uint64_t>(std::count(text.begin(), text.end(), '\n'));
    const bool is_short = from != 0 && seen <= lines;
    if (is_short && window < kMaxWindow) continue;
    if (is_short)
      context_.note("Only the last " + std::to_string(seen) +
                    " lines are shown: older parts of the log are not searched");
    const std::string_view tail = tail_of(text, lines);
    context_.out.write(tail.data(), static_cast<std::streamsize>(tail.size())) << std::flush;
    return ok();
  }
}

Result<void> LogStream::follow(const std::function<Result<void>()>& on_interrupt) {
  bool away = false;
  while (true) {
    if (context_.coordinator.http().consume_interrupts() > 0) {
      CKPT_TRYV(on_interrupt());
    }
    auto more = next(kLongestCall);
    if (more) {
      away = false;
      if (!*more) return ok();
      continue;
    }
    const ErrorCode code = more.error().code();
    if (code == ErrorCode::kAborted) continue;
    if (code != ErrorCode::kUnavailable && code != ErrorCode::kTimedOut) return std::move(more).error();
    if (!away) context_.note(more.error().message() + "; retrying. The job is not affected");
    away = true;
    context_.coordinator.http().pause(kBeforeRedial);
  }
}

}  // namespace ckpt::cli
