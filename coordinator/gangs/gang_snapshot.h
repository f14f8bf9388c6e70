// SPDX-License-Identifier: Apache-2.0
// Takes one set of images of a gang. It orders an image of each rank. Once all ranks have copied what they
// can while they run, they agree on a barrier (gather.h). Each image is taken at that barrier.
//
//   TakeSnapshot to each -> GatherRank(ready) -> GatherRank(stop at) until agreed -> GatherRank(pause at)
//   -> the answers to TakeSnapshot: all images are durable, or none of the set counts
//
// Ranks that wait for slower ranks receive kReady repeatedly. Without an order for a minute they continue on
// their own.
//
// A rank that is not held after its image continues as soon as its last changes are copied. Held ranks
// continue after release(), or on their own after a minute, because a coordinator that disconnected may have
// decided nothing.
// Threads: one io_context on one thread. Ownership: shared with its coroutines; borrows its dependencies,
// which outlive it. Errors: those of the first rank that failed, with its name; kTimedOut for a rank that
// reached no barrier.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/fleet/node_calls.h"
#include "coordinator/gangs/gang_sets.h"
#include "coordinator/gangs/rank_orders.h"
#include "coordinator/images/image_tasks.h"
#include "coordinator/images/snapshot_orders.h"

namespace ckpt::coordinator {

class GangSnapshot : public std::enable_shared_from_this<GangSnapshot> {
 public:
  struct Dependencies {
    const NodeTable& nodes;
    NodeCalls& calls;
    JobTable& jobs;
    RunningSnapshots& running;
    SnapshotOrders& orders;
    const ImageCatalog& catalog;
    control::asio::any_io_executor executor;
  };
  struct Wish {
    std::uint64_t set = 0;
    Destination to;
    TaskId task = 0;     // the task that shows the snapshot; 0: none
    bool holds = false;  // true if ranks stay paused once their images are durable
    bool full = false;   // true if no data is reused from older images
  };
  static std::shared_ptr<GangSnapshot> create(Dependencies deps, const WholeJob& gang, Wish wish);

  // Takes the set. Call this once. Returns when no node works on the set any more.
  control::Task<Result<void>> run();
  // Lets held ranks continue after a run() without an error. The ranks' answers are logged.
  control::Task<> release();
  control::Task<> release_rank(std::size_t at);
  // Returns whether another run, with `full`, may succeed after this run failed. The cause may be older
  // images that are no longer a usable base.
  [[nodiscard]] bool may_work_in_full() const {
    return !wish_.full && (failed_with_ == ErrorCode::kCorrupt || failed_with_ == ErrorCode::kAborted);
  }
  // A rank, and the checkpoint store and state of its image.
  struct Member : RankOrders::Member {
    std::string owner;       // the node that owns the checkpoint store of the image
    bool has_begun = false;  // the node has reported on the rank's image
    std::optional<Result<void>> captured;
  };
  [[nodiscard]] const std::vector<Member>& members() const { return members_; }

 private:
  GangSnapshot(Dependencies deps, Wish wish)
      : deps_(std::move(deps)), wish_(std::move(wish)), changed_(deps_.executor) {}

  control::Task<> capture(std::size_t at);
  control::Task<Result<void>> order(std::size_t at);
  [[nodiscard]] std::uint32_t leftovers_of_rank(const Job& rank) const;
  [[nodiscard]] bool is_busy(std::size_t at, const Error& error) const;
  control::Task<Result<void>> wait_for_begin();
  control::Task<Result<void>> agree();
  void prepare_orders();
  [[nodiscard]] std::optional<Error> first_failure() const;
  [[nodiscard]] std::optional<Error> failure_of_image(std::size_t at) const;
  void give_up();
  // Sends kReady to the waiting ranks until run() is over.
  control::Task<> keep_waiting();
  [[nodiscard]] bool are_all_over() const;

  Dependencies deps_;
  Wish wish_;
  std::vector<Member> members_;
  std::shared_ptr<RankOrders> ranks_;  // the orders to the ranks, in the order of members_
  std::optional<ErrorCode> failed_with_;
  bool is_over_ = false;
  Signal changed_;
};

}  // namespace ckpt::coordinator
