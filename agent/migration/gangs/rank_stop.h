// SPDX-License-Identifier: Apache-2.0
// Brings one rank of a gang to the barrier that all ranks agree on (GANG-1), by orders of the coordinator
// (wire::GatherRank). The rank waits there, and is then paused by its party (HeldRank).
//
// kReady is answered once the party wants to be held: its rounds have converged. A rank that is held already
// answers with the barrier, so that a restarted coordinator agrees on no other one.
// Threads: the event loop. Ownership: shared with its coroutines. Errors: those of the keeper, to the
// coordinator. A rank that waits for others and gets no order for a minute is reported to its party.
#pragma once

#include <list>
#include <memory>
#include <optional>

#include "agent/jobs/job.h"
#include "libckpt/protocol/wire/image_messages.h"

namespace ckpt::agent {

// The party that holds the rank (a source or a bystander), as RankStop uses it.
// Threads: the event loop; every call returns at once. Ownership: shared with RankStop. Errors: none.
class HeldRank {
 public:
  virtual ~HeldRank() = default;
  // Returns the rank's instance on this node; null if it is not known.
  [[nodiscard]] virtual std::shared_ptr<Job> job() const = 0;
  // Pauses the rank at the barrier on which all ranks have agreed.
  virtual void pause_at(std::uint64_t barrier) = 0;
  // Reports the reason why the rank cannot wait any longer.
  virtual void failed(const Error& error) = 0;
};

class RankStop : public std::enable_shared_from_this<RankStop> {
 public:
  // The value for a rank that stands at a barrier whose number a restarted agent does not know.
  static constexpr std::uint64_t kUnknownBarrier = ~std::uint64_t{0};
  RankStop(asio::any_io_executor executor, std::shared_ptr<HeldRank> rank)
      : executor_(std::move(executor)), rank_(std::move(rank)) {}

  void want();
  void is_held();
  // Answers all waiting requests, because the rank continues or its party has left.
  void end();
  // Returns the time of the last order to stop at a barrier, by this node's clock. The result is 0 if there
  // was no order.
  [[nodiscard]] Nanos stop_requested_at() const noexcept { return stop_requested_at_; }
  Task<Result<wire::RankGathered>> gather(wire::GatherRank order);

 private:
  Task<Result<wire::RankGathered>> wait_until_wanted();
  Task<Result<wire::RankGathered>> stop_at(std::uint64_t attempt, std::uint64_t barrier);
  Task<> watch_orders();

  asio::any_io_executor executor_;
  std::shared_ptr<HeldRank> rank_;
  bool is_wanted_ = false;
  bool is_over_ = false;
  bool is_watching_ = false;
  std::uint64_t barrier_ = 0;    // barrier at which the rank is paused
  std::uint64_t attempt_ = 0;    // number of the attempt to agree on a barrier
  Nanos stop_requested_at_ = 0;  // time of the first order in this attempt
  std::chrono::steady_clock::time_point ordered_;
  std::list<AsyncEvent*> watchers_;
};

}  // namespace ckpt::agent
