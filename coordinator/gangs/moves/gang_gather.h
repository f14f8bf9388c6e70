// SPDX-License-Identifier: Apache-2.0
// Holds all ranks of a move at one step (GANG-1), by orders to their nodes:
//
//   GatherRank(ready), answered once the rank has copied what it can while it runs -> GatherRank(stop at) until all
//   have promised one barrier -> GatherRank(pause at) that barrier
//
// Ranks that a coordinator before this one has paused stand at the barrier that was agreed on then: the others are
// paused there, too.
// Threads: one io_context on one thread. Ownership: borrows `calls`. Errors: those of the first rank that failed, with its
// name; kProtocol where the ranks do not agree.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "coordinator/fleet/node_calls.h"
#include "coordinator/state/signal.h"

namespace ckpt::coordinator {

class GangGather : public std::enable_shared_from_this<GangGather> {
 public:
  struct Member {
    Member() = default;
    JobId job = 0;
    std::uint32_t rank = 0;
    Incarnation incarnation = 0;
    std::string node;
  };
  GangGather(NodeCalls& calls, control::asio::any_io_executor executor, MigrationId migration,
             std::uint64_t attempt, std::vector<Member> members)
      : calls_(calls),
        executor_(executor),
        migration_(migration),
        attempt_(attempt),
        members_(std::move(members)),
        changed_(std::move(executor)) {}

  // Once. Returns when all have been told where they are paused. `longest`: until all are ready.
  control::Task<Result<void>> run(std::chrono::milliseconds longest);

 private:
  using Answers = std::vector<std::optional<Result<wire::RankGathered>>>;
  control::Task<Result<std::uint64_t>> agree();
  control::Task<Result<Answers>> ask(wire::GatherAct act, std::uint64_t barrier,
                                     std::vector<std::size_t> members, std::chrono::milliseconds limit);
  control::Task<> ask_one(std::shared_ptr<Answers> answers, std::size_t at, wire::GatherRank order,
                          std::chrono::milliseconds limit);
  [[nodiscard]] std::vector<std::size_t> everyone() const;

  NodeCalls& calls_;
  control::asio::any_io_executor executor_;
  const MigrationId migration_;
  const std::uint64_t attempt_;
  const std::vector<Member> members_;
  Signal changed_;
};

}  // namespace ckpt::coordinator
