// SPDX-License-Identifier: Apache-2.0
// Programs that a test starts, dumps and restores with real CRIU. The test is skipped with a reason where no
// CRIU works (no root, tools/criu install).
// Threads: one. Ownership: the fixture's processes end with the test.
#pragma once

#include "agent/host_process/criu.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>

#include "agent/host_process/criu_image/lazy_pages_choice.h"
#include "agent/host_process/early_pages/early_pages.h"
#include "agent/host_process/file_list.h"
#include "agent/host_process/image_pack.h"
#include "agent/host_process/memory_folder.h"
#include "agent/host_process/processes/process_tree.h"
#include "agent/host_process/processes/time_limit.h"
#include "agent/host_process/trusted_program.h"
#include "agent/keeper/init/pid_namespace.h"
#include "agent/keeper/init/restored.h"
#include "tests/unit/agent/host_process/program.h"
#include "tests/unit/agent/support/loop.h"
#include "tests/unit/agent/support/temporary_folder.h"
#include "tests/unit/agent/support/together.h"

namespace ckpt::agent::host {

inline std::string state_line(int number, const std::string& folder, int offset) {
  return "state " + std::to_string(number) + " pid 2 child alive folder " + folder + " offset " +
         std::to_string(offset) + " memory good";
}

// Expects that the init, the program and the program's child are stopped. CRIU releases them with the stop
// still pending.
inline void expect_all_stopped(pid_t init) {
  siginfo_t stopped{};
  EXPECT_EQ(::waitid(P_PID, static_cast<id_t>(init), &stopped, WSTOPPED | WNOWAIT), 0);
  const auto list = processes_of(init);
  ASSERT_TRUE(list.has_value());
  EXPECT_EQ(list->size(), 3u);
  for (const pid_t pid : *list) {
    while (process_state(pid) == 'R') ::sched_yield();
    EXPECT_EQ(process_state(pid), 'T');
  }
}

// Checks whether a thread of the process is blocked in the kernel until a missing page arrives.
inline bool waits_for_memory(pid_t pid) {
  std::error_code gone;
  for (const auto& thread :
       std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/task", gone)) {
    const auto place = read_file((thread.path() / "wchan").string(), 256);
    if (place.has_value() && *place == "handle_userfault") return true;
  }
  return false;
}

// Returns the image as at the target, where the file has its length.
inline UniqueFd arrived_copy(const PackedImage& packed) {
  UniqueFd copy(::memfd_create("arrived", MFD_CLOEXEC));
  for (off_t from = 0; from < static_cast<off_t>(packed.bytes);) {
    const ssize_t done =
        ::sendfile(copy.get(), packed.file.get(), &from, packed.bytes - static_cast<std::size_t>(from));
    EXPECT_GT(done, 0);
    if (done <= 0) break;
  }
  return copy;
}

class CriuTest : public ::testing::Test {
 protected:
  void SetUp() override {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    GTEST_SKIP() << "a sanitizer's memory is not for dumps";
#endif
    const CriuFacts facts = run_until_done(io_, Criu::probe("", folder_.path()));
    if (!facts.works) GTEST_SKIP() << "no move of processes here: " << facts.problem;
    auto criu = run_until_done(io_, Criu::find("", folder_.path()));
    ASSERT_TRUE(criu.has_value());
    criu_.emplace(*std::move(criu));
    auto place = find_memory_place();
    ASSERT_TRUE(place.has_value());
    place_ = *place;
  }
  void TearDown() override {
    for (const pid_t init : started_) {
      ::kill(init, SIGKILL);
      ::waitpid(init, nullptr, 0);
    }
  }
  MemoryFolder make_memory_folder(const std::string& name) {
    return std::move(*MemoryFolder::create(place_, "test-" + std::to_string(::getpid()) + name, 64 << 20));
  }
  pid_t start(const std::vector<std::string>& arguments) {
    std::vector<std::string> argv{MOVED_PROGRAM};
    argv.insert(argv.end(), arguments.begin(), arguments.end());
    auto init = start_program(argv, folder_.path(), old_log());
    EXPECT_TRUE(init.has_value()) << init.error().to_string();
    started_.push_back(*init);
    EXPECT_EQ(wait_for_line(old_log(), "ready", *init), "ready");
    return *init;
  }
  std::string ask(pid_t init, const std::string& log, int number) {
    ::kill(-init, SIGUSR1);
    return wait_for_line(log, "state " + std::to_string(number) + " ", init);
  }
  Result<DumpFacts> dump(pid_t init, const std::string& images, const std::string& preload = "") {
    DumpOptions options;
    options.preload = preload;
    options.images = images;
    options.work = folder_.path();
    return run_until_done(io_, criu_->dump(init, options));
  }
  // Restores with a script that CRIU runs before its processes may run.
  Result<pid_t> restore_lazily(const std::string& images, const std::string& script) {
    RestoreOptions options;
    options.lazy = true;
    if (!script.empty()) options.more = {"--action-script", script};
    return restore(images, options);
  }
  Result<pid_t> restore(const std::string& images, RestoreOptions options = {}) {
    options.images = images;
    options.work = options.lazy ? images : folder_.path();
    options.old_log = old_log();
    options.log_fd = keeper::kRestoredLogFd;
    const UniqueFd log(::open(new_log().c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
    keeper::RestoreSpec spec;
    spec.command = criu_->restore_command(options);
    spec.pid_file = Criu::pid_file(options);
    spec.log = log.get();
    if (options.lazy) spec.lazy_pages = {LAZY_PAGES_PROGRAM, images, lazy_pages_pid_file(images)};
    spec.lazy_pages_pid_file = lazy_pages_pid_file(images);
    auto restored = keeper::start_restored(spec);
    if (!restored.has_value()) return Error(ErrorCode::kIo, Criu::first_error(Criu::restore_log(options)));
    started_.push_back(restored->pid);
    pages_ = std::move(restored->lazy_pages);
    return started_.back();
  }
  keeper::LazyPages::State wait_for_server() {
    for (;;) {
      int status = 0;
      EXPECT_EQ(::waitpid(pages_->server(), &status, 0), pages_->server());
      const auto state = pages_->on_changed(status);
      if (state != keeper::LazyPages::State::kGoesOn) return state;
    }
  }
  [[nodiscard]] std::string old_log() const {
    return folder_ / "old.log";
  }
  [[nodiscard]] std::string new_log() const {
    return folder_ / "new.log";
  }

  asio::io_context io_;
  TemporaryFolder folder_;
  std::string place_;
  std::optional<Criu> criu_;
  std::vector<pid_t> started_;
  std::optional<keeper::LazyPages> pages_;
};

}  // namespace ckpt::agent::host
