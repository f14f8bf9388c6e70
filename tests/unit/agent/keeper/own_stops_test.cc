// SPDX-License-Identifier: Apache-2.0
// What the program had stopped itself stays stopped when a restored tree goes on.
#include "agent/keeper/rank/own_stops.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>

#include "agent/keeper/rank/adopted_process.h"

namespace ckpt::keeper {
namespace {

// A process with two children, all stopped as CRIU leaves them.
class StoppedTree {
 public:
  StoppedTree() {
    int ends[2];
    EXPECT_EQ(::pipe(ends), 0);
    root_ = ::fork();
    if (root_ == 0) {
      for (int i = 0; i < 2; ++i) {
        const pid_t child = ::fork();
        if (child == 0) {
          for (;;) ::pause();
        }
        (void)!::write(ends[1], &child, sizeof child);
      }
      for (;;) ::pause();
    }
    for (pid_t& child : children_)
      EXPECT_EQ(::read(ends[0], &child, sizeof child), static_cast<ssize_t>(sizeof child));
    ::close(ends[0]);
    ::close(ends[1]);
    signal_tree(root_, SIGSTOP);
    while (!is_stopped(root_)) ::sched_yield();
  }
  ~StoppedTree() {
    signal_tree(root_, SIGKILL);
    ::waitpid(root_, nullptr, 0);
  }
  StoppedTree(const StoppedTree&) = delete;
  StoppedTree& operator=(const StoppedTree&) = delete;
  [[nodiscard]] pid_t root() const { return root_; }
  [[nodiscard]] pid_t child(std::size_t number) const { return children_[number]; }

 private:
  pid_t root_ = 0;
  std::array<pid_t, 2> children_{};
};

TEST(OwnStops, RestoredProcessesThatWereStoppedStaySo) {
  const StoppedTree tree;
  OwnStops stops;
  stops.note_restored(tree.root(), {tree.child(0)});
  stops.note(RankProcess::adopt(tree.root()));  // a lease that ends before they go on
  stops.go_on_tree(tree.root());
  EXPECT_TRUE(is_stopped(tree.child(0)));
  EXPECT_FALSE(is_stopped(tree.child(1)));
  EXPECT_FALSE(is_stopped(tree.root()));
}

TEST(OwnStops, AllGoOnWhereTheProgramStoppedNone) {
  const StoppedTree tree;
  OwnStops stops;
  stops.note_restored(tree.root(), {});
  stops.go_on_tree(tree.root());
  EXPECT_FALSE(is_stopped(tree.child(0)));
  EXPECT_FALSE(is_stopped(tree.child(1)));
}

}  // namespace
}  // namespace ckpt::keeper
