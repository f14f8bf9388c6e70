// SPDX-License-Identifier: Apache-2.0
#include "agent/migration/modes/memory_rounds.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <limits>

#include "agent/migration/modes/latest_growth.h"

namespace ckpt::agent {
namespace {

constexpr int kMaxRounds = 12;
constexpr std::uint64_t kFew = std::uint64_t{4}
                               << 20;  // amount of memory that takes no longer in the pause than a dump's
                                       // other work
constexpr double kHelps = 0.7;  // a round is useful if it reads less than this share of the previous round
// The bytes that may be unsent when a round counts as sent. Some pieces wait until the log grows, and other
// pieces take less time than a report about them.
constexpr std::uint64_t kUnsent = std::uint64_t{16} << 20;
constexpr Nanos kFresh = 300 * kNanosPerMs;
constexpr Milliseconds kPollInterval{1000};

}  // namespace

MemoryRounds::MemoryRounds(MigrationContext& context, std::unique_ptr<host::EarlyPages> pages)
    : context_(context), pages_(std::move(pages)), turn_(context.executor), changed_(context.executor) {}

void MemoryRounds::start(HostGrowth grew) {
  grew_ = std::move(grew);
  control::spawn(context_.executor, "host memory rounds", settle());
}

void MemoryRounds::sent(std::uint64_t bytes) {
  sent_ = bytes;
  changed_.notify();
}

HostProgress MemoryRounds::progress() const {
  const std::uint64_t filled = pages_->log().filled();
  HostProgress progress;
  if (has_read_all_ || is_over_) {
    progress.total_bytes = filled - std::min(filled, sent_);
  } else {
    progress.total_bytes = std::max(filled, pages_->followed_bytes());
    progress.done_bytes = std::min(sent_, progress.total_bytes);
  }
  return progress;
}

host::EarlyPages::Growth MemoryRounds::growth() const {
  return latest_growth(context_.executor,
                       [report_growth = grew_](std::uint64_t filled) { report_growth(filled, false); });
}

Task<> MemoryRounds::settle() {
  auto self = shared_from_this();
  const AsyncMutex::Held turn = co_await turn_.acquire();
  if (is_over_ || (settled_ns_ != 0 && now_ns() - settled_ns_ < kFresh)) co_return;
  std::uint64_t before = std::numeric_limits<std::uint64_t>::max();
  for (int round = 1; round <= kMaxRounds; ++round) {
    const bool more = co_await run_round();
    if (!more) co_return;
    if (last_read_ <= kFew || static_cast<double>(last_read_) > kHelps * static_cast<double>(before)) break;
    before = last_read_;
  }
  settled_ns_ = now_ns();
}

Task<bool> MemoryRounds::run_round() {
  const Nanos began = now_ns();
  const auto run = [this] { return pages_->run_round(growth()); };
  auto round = co_await offload(context_.images, run);
  if (!round) {
    spdlog::warn("host memory is no longer copied ahead: reason {}", round.error().to_string());
    is_over_ = true;
    co_return false;
  }
  last_read_ = round->read_bytes;
  is_over_ = is_over_ || round->is_cut;
  co_await wait_until_sent();
  has_read_all_ = true;
  spdlog::info("host memory round: read_bytes {} log_bytes {} total_ms {:.1f}", last_read_,
               pages_->log().filled(), static_cast<double>(now_ns() - began) / 1e6);
  co_return !is_over_;
}

Task<> MemoryRounds::wait_until_sent() {
  for (;;) {
    if (is_over_ || sent_ + kUnsent >= pages_->log().filled()) co_return;
    (void)co_await changed_.wait(std::chrono::steady_clock::now() + kPollInterval);
  }
}

Task<> MemoryRounds::stop() {
  auto self = shared_from_this();
  is_over_ = true;
  pages_->cut();
  changed_.notify();
  const AsyncMutex::Held turn = co_await turn_.acquire();
}

}  // namespace ckpt::agent
