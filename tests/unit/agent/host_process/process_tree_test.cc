// SPDX-License-Identifier: Apache-2.0
// Tests of process trees. One is the tree of a job whose children start and end during the scan. In others
// the session is led from outside a PID namespace (this test's own grandchild in a new namespace).
#include "agent/host_process/processes/process_tree.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

#include "tests/unit/agent/host_process/obstacles/small_job.h"

namespace ckpt::agent::host {
namespace {

enum Exit { kMayMove = 0, kRefusedIt = 1, kNoNamespace = 2 };

// Scans a process from inside the namespace. The process leads a session of its own only if `own_session` is
// true.
Exit look_from_inside(bool own_session) {
  int ends[2];
  if (::pipe(ends) != 0) return kNoNamespace;
  const pid_t looked_at = ::fork();
  if (looked_at == 0) {
    if (own_session) ::setsid();
    (void)!::write(ends[1], "r", 1);
    for (;;) ::pause();
  }
  char ready = 0;
  if (::read(ends[0], &ready, 1) != 1) return kNoNamespace;
  const auto checked = check_sessions({looked_at});
  ::kill(looked_at, SIGKILL);
  if (checked.has_value()) return kMayMove;
  return checked.error().code() == ErrorCode::kRefused ? kRefusedIt : kNoNamespace;
}

int exit_of(pid_t pid) {
  int status = 0;
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

int look_in_new_namespace(bool own_session) {
  const pid_t outer = ::fork();
  if (outer == 0) {
    if (::unshare(CLONE_NEWPID) != 0) ::_exit(kNoNamespace);
    const pid_t first = ::fork();
    if (first == 0) ::_exit(look_from_inside(own_session));
    ::_exit(exit_of(first));
  }
  return exit_of(outer);
}

// Tests with a process that starts short-lived children all the time.
class ChildrenThatComeAndGo : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = ::fork();
    if (root_ != 0) return;
    for (;;) {
      const pid_t child = ::fork();
      if (child == 0) ::_exit(0);
      ::waitpid(child, nullptr, 0);
    }
  }
  void TearDown() override {
    ::kill(root_, SIGKILL);
    ::waitpid(root_, nullptr, 0);
  }
  pid_t root_ = 0;
};

constexpr int kLooks = 5000;

TEST_F(ChildrenThatComeAndGo, ShortLivedChildrenDoNotFailTheDumpEstimate) {
  for (int i = 0; i < kLooks; ++i) {
    const auto estimate = estimate_dump(root_);
    ASSERT_TRUE(estimate.has_value()) << estimate.error().to_string();
    ASSERT_GT(estimate->bytes, 0u);
  }
}

TEST_F(ChildrenThatComeAndGo, ShortLivedChildrenDoNotFailTheCredentialCheck) {
  for (int i = 0; i < kLooks; ++i) {
    const auto checked = check_credentials(root_, ::getuid(), ::getgid());
    ASSERT_TRUE(checked.has_value()) << checked.error().to_string();
  }
}

TEST_F(ChildrenThatComeAndGo, AnExitedRootIsAnError) {
  ::kill(root_, SIGKILL);
  ::waitpid(root_, nullptr, 0);
  const auto estimate = estimate_dump(root_);
  const auto checked = check_credentials(root_, ::getuid(), ::getgid());
  EXPECT_TRUE(!estimate && estimate.error().code() == ErrorCode::kNotFound);
  EXPECT_TRUE(!checked && checked.error().code() == ErrorCode::kNotFound);
  root_ = ::fork();  // TearDown ends this process
  if (root_ == 0) ::_exit(0);
}

TEST(Sessions, SessionLedFromOutsideThePidNamespaceIsRefused) {
  const int from_outside = look_in_new_namespace(false);
  if (from_outside == kNoNamespace) GTEST_SKIP() << "no PID namespace can be made here";
  EXPECT_EQ(from_outside, kRefusedIt);
  EXPECT_EQ(look_in_new_namespace(true), kMayMove);
}

// The process's own id in the namespace is 2: it is the second process of the namespace.
TEST(ProcessTree, ProcessesStoppedByTheProgramStayStopped) {
  const SmallJob job([] { return SmallJob::fork_and([] { return true; }); });
  ASSERT_TRUE(job.is_there());
  const auto tree = processes_of(job.pid());
  ASSERT_TRUE(tree.has_value());
  ASSERT_EQ(tree->size(), 2u);
  const pid_t child = (*tree)[1];
  for (const pid_t pid : *tree) {
    ::kill(pid, SIGSTOP);
    while (!is_stopped(pid)) ::sched_yield();
  }
  ASSERT_TRUE(resume_source(job.pid(), {2}).has_value());
  EXPECT_FALSE(is_stopped(job.pid()));
  EXPECT_TRUE(is_stopped(child));
  ASSERT_TRUE(resume_source(job.pid()).has_value());
  EXPECT_FALSE(is_stopped(child));
}

}  // namespace
}  // namespace ckpt::agent::host
