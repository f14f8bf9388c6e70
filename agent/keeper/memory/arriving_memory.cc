// SPDX-License-Identifier: Apache-2.0
#include "agent/keeper/memory/arriving_memory.h"

#include <sys/wait.h>
#include <unistd.h>

#include <utility>

namespace ckpt::keeper {
namespace {

constexpr std::size_t kMaxWaiting = 64;

std::string how_it_ends(int status) {
  if (WIFSIGNALED(status)) return "signal " + std::to_string(WTERMSIG(status));
  return "exit code " + std::to_string(WEXITSTATUS(status));
}

}  // namespace

void ArrivingMemory::begin(std::optional<LazyPages> pages) {
  pages_ = pages;
  int status = 0;  // the status may have changed before SIGCHLD was watched
  while (pages_ && ::waitpid(pages_->server(), &status, WNOHANG) == pages_->server())
    on_child_changed(pages_->server(), status);
}

void ArrivingMemory::await(std::uint64_t request) {
  if (waiting_.size() == kMaxWaiting)
    return agent_.refuse(request, local::MessageType::kAwaitMemory, ErrorCode::kRefused,
                         "Too many requests wait for the program's memory");
  waiting_.push_back(request);
  if (is_whole() || !never_reason_.empty()) end_wait();
}

void ArrivingMemory::refuse_dump(std::uint64_t request) {
  agent_.refuse(request, local::MessageType::kPrepareDump, ErrorCode::kRefused,
                "The program's memory is still arriving from its last move");
}

void ArrivingMemory::on_child_changed(pid_t child, int status) {
  if (!pages_ || child != pages_->server()) return;
  const LazyPages::State state = pages_->on_changed(status);
  if (state == LazyPages::State::kGoesOn) return;
  if (state == LazyPages::State::kWhole) {
    pages_.reset();
    return end_wait();
  }
  loss_ =
      "the host memory that was still to arrive after the move was lost: the process that supplies it "
      "(gpumigrate-lazy-pages, pid " +
      std::to_string(child) + ") ended with " + how_it_ends(pages_->end_status());
  never_reason_ = "The program was killed: " + loss_;
  ::dprintf(2, "%s\n", never_reason_.c_str());
  end_wait();
  if (const Result<void> killed = process_.kill_all(); !killed.has_value())
    ::dprintf(2, "%s\n", killed.error().to_string().c_str());
}

void ArrivingMemory::on_rank_exited() {
  if (pages_) pages_->let_end();
  if (pages_ && never_reason_.empty())
    never_reason_ = "The program ended before all of its host memory had arrived";
  pages_.reset();
  end_wait();
}

void ArrivingMemory::end_wait() {
  for (const std::uint64_t request : std::exchange(waiting_, {})) {
    if (never_reason_.empty()) {
      agent_.answer(request, local::Done{});
    } else {
      agent_.refuse(request, local::MessageType::kAwaitMemory, ErrorCode::kAborted, never_reason_);
    }
  }
}

}  // namespace ckpt::keeper
