// SPDX-License-Identifier: Apache-2.0
// Takes one set of images of a gang. It orders an image of each rank. Once all have copied what they can while they
// run, they agree on a barrier (gather.h), and each image is of that.
//
//   TakeSnapshot to each -> GatherRank(ready) -> GatherRank(stop at) until agreed -> GatherRank(pause at)
//   -> the answers to TakeSnapshot: all images are durable, or none of the set counts
//
// Ranks that wait for slower ones get kReady again and again: without an order for a minute they go on by themselves.
//
// A rank that is not held behind its image goes on as soon as its last changes are copied. Held ones go on by let_go(),
// or by themselves after a minute: a coordinator that went away may have decided nothing.
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
    TaskId task = 0;     // as which it is shown; 0: none
    bool holds = false;  // ranks stay paused behind their durable images
    bool full = false;   // nothing is taken over from older images
  };
  static std::shared_ptr<GangSnapshot> create(Dependencies deps, const Gang& gang, Wish wish);

  // Once. Returns when no node is at it any more.
  control::Task<Result<void>> run();
  // After a run() without an error, of ranks that are held: they go on. What a rank answers is logged.
  control::Task<> let_go();
  control::Task<> let_go_of(std::size_t at);
  // A failure that images which are no base any more explain: worth a run with `full`.
  [[nodiscard]] bool may_work_in_full() const {
    return !wish_.full && (failed_with_ == ErrorCode::kCorrupt || failed_with_ == ErrorCode::kAborted);
  }
  // Where the ranks' images are.
  struct Member : RankOrders::Member {
    std::string owner;       // of the vault
    bool has_begun = false;  // its node has reported on its image
    std::optional<Result<void>> taken;
  };
  [[nodiscard]] const std::vector<Member>& members() const { return members_; }

 private:
  GangSnapshot(Dependencies deps, Wish wish)
      : deps_(std::move(deps)), wish_(std::move(wish)), changed_(deps_.executor) {}

  control::Task<> take(std::size_t at);
  control::Task<Result<void>> order(std::size_t at);
  [[nodiscard]] std::uint32_t leftovers_of_rank(const Job& rank) const;
  [[nodiscard]] bool is_busy(std::size_t at, const Error& error) const;
  control::Task<Result<void>> wait_for_begin();
  control::Task<Result<void>> agree();
  void prepare_orders();
  [[nodiscard]] std::optional<Error> first_failure() const;
  [[nodiscard]] std::optional<Error> failure_of_image(std::size_t at) const;
  void give_up();
  // Until run() is over.
  control::Task<> keep_waiting();
  [[nodiscard]] bool are_all_over() const;

  Dependencies deps_;
  Wish wish_;
  std::vector<Member> members_;
  std::shared_ptr<RankOrders> ranks_;  // in the order of members_
  std::optional<ErrorCode> failed_with_;
  bool is_over_ = false;
  Signal changed_;
};

}  // namespace ckpt::coordinator
