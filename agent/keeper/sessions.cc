// SPDX-License-Identifier: Apache-2.0
// The processes of a transparent job that use a GPU: each has a session; with one the job can be moved, and
// that is the rank.
#include <utility>

#include "agent/keeper/keeper.h"
#include "agent/keeper/rank_clock.h"

namespace ckpt::keeper {
namespace {

using local::MessageType;
using local::Phase;

constexpr std::size_t kMaxOthers = 256;

}  // namespace

void Keeper::welcome_transparent(Peer peer, pid_t pid, const local::Hello& hello) {
  const auto turn_away = [&peer](const std::string& why) {
    (void)peer.send({0, 0, to_failed(MessageType::kHello, Error(ErrorCode::kRefused, why))}).has_value();
  };
  const bool awaited = phase_ == Phase::kDumped;
  if (awaited != (hello.restored != 0)) {
    return turn_away(awaited ? "The job has been dumped: only its own process can come back"
                             : "This process was not called back");
  }
  if (awaited) {
    reattach_.reset();
    session_pid_ = pid;
    if (const Result<Nanos> lag = rank_clock_lag(pid); lag.has_value()) rank_lag_ = lag.assume_value();
    rank_ = std::move(peer);
    phase_ = Phase::kPaused;
    greet_rank(rank_);
    return finish(local::Done{});
  }
  if (others_.size() >= kMaxOthers) return turn_away("The job has too many processes that use a GPU");
  if (rank_) {
    greet_rank(peer);
    others_.push_back({std::move(peer), pid});
    return;
  }
  session_pid_ = pid;
  rank_ = std::move(peer);
  phase_ = Phase::kRunning;
  greet_rank(rank_);
  answer(0, local::Ready{});
}

// A second session only waits for its end, or for the end of the first.
void Keeper::read_other(std::size_t index) {
  const Result<local::Received> received = others_[index].peer.receive();
  if (!received.has_value() || received.assume_value().transfer == local::Transfer::kClosed)
    others_.erase(others_.begin() + static_cast<std::ptrdiff_t>(index));
}

void Keeper::promote_other() {
  if (others_.empty() || phase_ != Phase::kStarting) return;
  rank_ = std::move(others_.front().peer);
  session_pid_ = others_.front().pid;
  others_.erase(others_.begin());
  phase_ = Phase::kRunning;
}

std::string Keeper::why_not_movable() const {
  if (!others_.empty()) {
    return "The job has " + std::to_string(others_.size() + 1) +
           " processes that use a GPU; jobs with more than one cannot be moved yet";
  }
  if (has_outsider_)
    return "A process that uses a GPU has left the job's process group, where its lease cannot be enforced";
  return {};
}

void Keeper::mark_not_movable(local::StateSummary& summary) const {
  const std::string why = why_not_movable();
  if (why.empty()) return;
  summary.movable = 0;
  summary.reason.assign(why);
}

}  // namespace ckpt::keeper
