// SPDX-License-Identifier: Apache-2.0
// Sends orders to all ranks of a gang (wire::GatherRank), and lets the ranks agree on the barrier where they
// stop (gather.h).
// Threads: one io_context on one thread. Ownership: shared with its coroutines; borrows `calls`. Errors:
// those of the first rank that failed, with its name. kTimedOut: a rank did not answer. kProtocol: the ranks
// do not agree.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/fleet/node_calls.h"
#include "coordinator/state/signal.h"

namespace ckpt::coordinator {

class RankOrders : public std::enable_shared_from_this<RankOrders> {
 public:
  struct Member {
    JobId job = 0;
    std::uint32_t rank = 0;
    Incarnation incarnation = 0;
    std::string node;
  };
  // The purpose of the orders: a set of images, or an attempt (`set`) of a move.
  struct Purpose {
    std::uint64_t set = 0;
    MigrationId migration = 0;
  };
  // A function that returns an error known from another source than the answers, if there is one. The error
  // is that of `member`, or of any member. It is called while ask() runs.
  using Failure = std::function<std::optional<Error>(std::optional<std::size_t> member)>;
  using Answers = std::vector<std::optional<Result<wire::RankGathered>>>;

  RankOrders(NodeCalls& calls, control::asio::any_io_executor executor, Purpose purpose,
             std::vector<Member> members, Failure failure = {})
      : calls_(calls),
        executor_(executor),
        purpose_(purpose),
        members_(std::move(members)),
        failure_(std::move(failure)),
        changed_(std::move(executor)) {}

  // Sends an order to all `members` (indexes in the list) at once. Returns when all have answered, or with
  // the first failure.
  control::Task<Result<Answers>> ask(wire::GatherAct act, std::uint64_t barrier,
                                     std::vector<std::size_t> members, std::chrono::milliseconds limit);
  // Orders the ranks to stop until all have promised the same barrier. Returns that barrier.
  control::Task<Result<std::uint64_t>> agree();
  // Sends the order to all ranks and ignores their answers.
  void send_to_all(wire::GatherAct act, std::chrono::milliseconds limit);
  // Makes ask() call `failure` again, because its result may have changed.
  void reevaluate() { changed_.notify(); }
  [[nodiscard]] std::vector<std::size_t> everyone() const;
  // Returns the error with the rank's name added.
  [[nodiscard]] Error failure_of(std::size_t member, const Error& error) const;

 private:
  control::Task<> ask_one(std::shared_ptr<Answers> answers, std::size_t at, wire::GatherRank order,
                          std::chrono::milliseconds limit);
  [[nodiscard]] wire::GatherRank order_for(std::size_t at, wire::GatherAct act, std::uint64_t barrier) const;
  [[nodiscard]] std::optional<Error> known_failure(std::optional<std::size_t> member) const {
    return failure_ ? failure_(member) : std::nullopt;
  }

  NodeCalls& calls_;
  control::asio::any_io_executor executor_;
  const Purpose purpose_;
  const std::vector<Member> members_;
  const Failure failure_;
  Signal changed_;
};

}  // namespace ckpt::coordinator
