// SPDX-License-Identifier: Apache-2.0
// Tests of a program with a CUDA context. The context helper checkpoints and restores the context on another
// GPU of the same process. With CRIU, it does so in a copy of the process while the original stays stopped.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/context_helper/context_helper.h"
#include "agent/host_process/criu.h"
#include "agent/host_process/criu_image/driver_listener.h"
#include "agent/host_process/file_list.h"
#include "agent/host_process/memory_folder.h"
#include "agent/host_process/processes/process_tree.h"
#include "agent/keeper/init/pid_namespace.h"
#include "agent/keeper/init/restored.h"
#include "tests/unit/agent/host_process/program.h"
#include "tests/unit/agent/support/loop.h"
#include "tests/unit/agent/support/temporary_folder.h"

namespace ckpt::agent::host {
namespace {

constexpr Milliseconds kLong{60000};

context::Uuid parse_uuid(const std::string& text) {
  context::Uuid uuid{};
  for (std::size_t i = 0; i < uuid.size(); ++i)
    uuid[i] = static_cast<std::uint8_t>(std::stoul(text.substr(2 * i, 2), nullptr, 16));
  return uuid;
}

class MovedContextTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "PID namespaces need root";
    ContextSettings settings;
    settings.program = CONTEXT_PROGRAM;
    settings.log_path = folder_ / "context.log";
    helper_ = ContextHelper::create(io_.get_executor(), settings);
    const auto facts = run(helper_->ready());
    ASSERT_TRUE(facts.has_value()) << facts.error().to_string();
    if (!facts->can_checkpoint) GTEST_SKIP() << facts->missing_support();
  }
  void TearDown() override {
    for (const pid_t init : started_) {
      ::kill(init, SIGKILL);
      ::waitpid(init, nullptr, 0);
    }
    if (helper_) helper_->stop();
  }
  template <class T>
  T run(Task<T> task) {
    return run_until_done(io_, std::move(task));
  }
  // Starts the program and returns its init; `pair` is from the first GPU to the second.
  pid_t start_program_on_gpu(context::GpuPair& pair) {
    // In a PID namespace of its own the driver needs the shim.
    auto init = start_program({"/usr/bin/env", std::string("LD_PRELOAD=") + SHIM_LIBRARY, CUDA_PROGRAM},
                              folder_.path(), old_log());
    EXPECT_TRUE(init.has_value());
    started_.push_back(*init);
    const std::string line = wait_for_line(old_log(), "ready ", *init);
    EXPECT_EQ(line.size(), 6u + 32 + 1 + 32) << line;
    if (line.size() == 6u + 32 + 1 + 32)
      pair = {parse_uuid(line.substr(6, 32)), parse_uuid(line.substr(39, 32))};
    return *init;
  }
  std::string ask(pid_t init, const std::string& log, int number) {
    ::kill(-init, SIGUSR1);
    return wait_for_line(log, "state " + std::to_string(number) + " ", init);
  }
  std::string state_of(pid_t pid) {
    const auto state = run(helper_->state(pid));
    return state.has_value() ? context::name_of(*state) : state.error().to_string();
  }
  void expect_done(const Result<void>& result) {
    EXPECT_TRUE(result.has_value()) << (result.has_value() ? "" : result.error().to_string());
  }
  [[nodiscard]] std::string old_log() const { return folder_ / "old.log"; }
  [[nodiscard]] std::string new_log() const { return folder_ / "new.log"; }

  asio::io_context io_;
  TemporaryFolder folder_;
  std::shared_ptr<ContextHelper> helper_;
  std::vector<pid_t> started_;
};

TEST_F(MovedContextTest, ContextMovesToAnotherGpuOfTheSameProcess) {
  context::GpuPair pair;
  const pid_t init = start_program_on_gpu(pair);
  const pid_t program = keeper::program_of(init);
  EXPECT_EQ(ask(init, old_log(), 1), "state 1 memory good");
  EXPECT_EQ(state_of(program), "running");
  EXPECT_EQ(run(helper_->checkpoint(program, kLong)).error().code(),
            ErrorCode::kRefused);  // the context is not locked
  expect_done(run(helper_->lock(program, kLong)));
  EXPECT_EQ(state_of(program), "locked");
  expect_done(run(helper_->checkpoint(program, kLong)));
  EXPECT_EQ(state_of(program), "checkpointed");
  const context::GpuPair other{pair.to, pair.from};
  expect_done(run(helper_->restore(program, {pair, other}, kLong)));
  expect_done(run(helper_->unlock(program, kLong)));
  EXPECT_EQ(ask(init, old_log(), 2), "state 2 memory good");
}

TEST_F(MovedContextTest, ProcessWithoutCudaIsReportedAsNotFound) {
  const auto state = run(helper_->state(::getpid()));
  ASSERT_FALSE(state.has_value());
  EXPECT_EQ(state.error().code(), ErrorCode::kNotFound) << state.error().to_string();
}

TEST_F(MovedContextTest, ContextMovesIntoACopyOfTheProcessAndBack) {
  const CriuFacts facts = run(Criu::probe("", folder_.path()));
  if (!facts.works) GTEST_SKIP() << "no move of processes here: " << facts.problem;
  auto found = run(Criu::find("", folder_.path()));
  const Criu& criu = *found;
  context::GpuPair pair;
  const pid_t source = start_program_on_gpu(pair);
  EXPECT_EQ(ask(source, old_log(), 1), "state 1 memory good");
  const auto images =
      MemoryFolder::create(*find_memory_place(), "context-test-" + std::to_string(::getpid()), 64 << 20);
  ASSERT_TRUE(images.has_value());
  DumpOptions to;
  to.images = images->path();
  to.work = folder_.path();
  // The state is as before a move: the process with its context already has no obstacle.
  FileRules rules;
  rules.own_log = old_log();
  rules.driver_files = {"/secretmem", std::string("locks:") + std::getenv("CUDASIM_DIR") + "/"};
  rules.gpu_process = keeper::program_of(source);
  const auto files = collect_files(source, rules);
  ASSERT_TRUE(files.has_value()) << files.error().to_string();
  const auto checked = check_files(*files);
  EXPECT_TRUE(checked.has_value()) << (checked.has_value() ? "" : checked.error().to_string());
  const pid_t program = keeper::program_of(source);
  expect_done(run(helper_->lock(program, kLong)));
  expect_done(run(helper_->checkpoint(program, kLong)));
  const auto dumped = run(criu.dump(source, to));
  ASSERT_TRUE(dumped.has_value()) << dumped.error().to_string();

  expect_done(free_driver_names(to.images));
  RestoreOptions from;
  from.images = to.images;
  from.work = to.work;
  from.old_log = old_log();
  from.log_fd = keeper::kRestoredLogFd;
  const UniqueFd log(::open(new_log().c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
  keeper::RestoreSpec spec;
  spec.command = criu.restore_command(from);
  spec.pid_file = Criu::pid_file(from);
  spec.log = log.get();
  const auto restored = keeper::start_restored(spec);
  ASSERT_TRUE(restored.has_value()) << Criu::first_error(Criu::restore_log(from));
  const pid_t copy = restored->pid;
  started_.push_back(copy);
  expect_done(resume_source(copy));
  const pid_t copied = keeper::program_of(copy);
  expect_done(run(helper_->restore(copied, {pair, {pair.to, pair.from}}, kLong)));
  expect_done(run(helper_->unlock(copied, kLong)));
  EXPECT_EQ(ask(copy, new_log(), 2), "state 2 memory good");
  ::kill(-copy, SIGTERM);
  EXPECT_EQ(wait_for_end(copy), 5 << 8);
  std::erase(started_, copy);

  expect_done(resume_source(source));
  expect_done(run(helper_->restore(program, {}, kLong)));
  expect_done(run(helper_->unlock(program, kLong)));
  EXPECT_EQ(ask(source, old_log(), 2), "state 2 memory good");
}

}  // namespace
}  // namespace ckpt::agent::host
