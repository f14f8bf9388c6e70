// SPDX-License-Identifier: Apache-2.0
// A running program is dumped, packed, unpacked and restored as this process's child while the original stays
// stopped. Real CRIU: skipped, saying why, where there is none that works (no root, tools/criu install).
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
namespace {

using ::testing::HasSubstr;

std::string state_line(int number, const std::string& folder, int offset) {
  return "state " + std::to_string(number) + " pid 2 child alive folder " + folder + " offset " +
         std::to_string(offset) + " memory good";
}

// The init, the program and the program's child. CRIU lets go of them with the stop still to be acted on.
void expect_all_stopped(pid_t init) {
  siginfo_t stopped{};
  EXPECT_EQ(::waitid(P_PID, static_cast<id_t>(init), &stopped, WSTOPPED | WNOWAIT), 0);
  const auto list = processes_of(init);
  ASSERT_TRUE(list.has_value());
  EXPECT_EQ(list.assume_value().size(), 3u);
  for (const pid_t pid : list.assume_value()) {
    while (process_state(pid) == 'R') ::sched_yield();
    EXPECT_EQ(process_state(pid), 'T');
  }
}

// Whether a thread of it is in the kernel's hands until a missing page comes.
bool waits_for_memory(pid_t pid) {
  std::error_code gone;
  for (const auto& thread :
       std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/task", gone)) {
    const auto place = read_file((thread.path() / "wchan").string(), 256);
    if (place.has_value() && place.assume_value() == "handle_userfault") return true;
  }
  return false;
}

// This kernel does not watch memory.
bool is_unsupported(const Result<std::unique_ptr<EarlyPages>>& early) {
  return !early && early.assume_error().code() == ErrorCode::kNotSupported;
}

// As at the target, where it has its length.
UniqueFd arrived_copy(const PackedImage& packed) {
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
    criu_.emplace(std::move(criu).assume_value());
    auto place = find_memory_place();
    ASSERT_TRUE(place.has_value());
    place_ = place.assume_value();
  }
  void TearDown() override {
    for (const pid_t init : started_) {
      ::kill(init, SIGKILL);
      ::waitpid(init, nullptr, 0);
    }
  }
  MemoryFolder make_memory_folder(const std::string& name) {
    return std::move(
        MemoryFolder::create(place_, "test-" + std::to_string(::getpid()) + name, 64 << 20).assume_value());
  }
  pid_t start(const std::vector<std::string>& arguments) {
    std::vector<std::string> argv{MOVED_PROGRAM};
    argv.insert(argv.end(), arguments.begin(), arguments.end());
    auto init = start_program(argv, folder_.path(), old_log());
    EXPECT_TRUE(init.has_value()) << init.assume_error().to_string();
    started_.push_back(init.assume_value());
    EXPECT_EQ(wait_for_line(old_log(), "ready", init.assume_value()), "ready");
    return init.assume_value();
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
  // With a script that CRIU runs before its processes may run.
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
    started_.push_back(restored.assume_value().pid);
    pages_ = std::move(restored.assume_value().lazy_pages);
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

TEST_F(CriuTest, AProgramGoesOnInACopyWhileTheOriginalStaysStopped) {
  const pid_t source = start({"plain"});
  EXPECT_EQ(ask(source, old_log(), 1), state_line(1, folder_.path(), 1));

  const MemoryFolder images = make_memory_folder("a");
  const auto dumped = dump(source, images.path());
  ASSERT_TRUE(dumped.has_value()) << dumped.assume_error().to_string();
  EXPECT_GT(dumped.assume_value().bytes, 8u << 20);   // the program's memory,
  EXPECT_LT(dumped.assume_value().bytes, 16u << 20);  // and little else
  expect_all_stopped(source);

  auto packed = pack_folder(images.path());
  ASSERT_TRUE(packed.has_value());
  const MemoryFolder arrived = make_memory_folder("b");
  ASSERT_TRUE(unpack_folder(packed.assume_value().file.get(), packed.assume_value().bytes, arrived.path())
                  .has_value());

  const auto restored = restore(arrived.path());
  ASSERT_TRUE(restored.has_value()) << restored.assume_error().to_string();
  const pid_t copy = restored.assume_value();
  expect_all_stopped(copy);
  EXPECT_TRUE(check_credentials(copy, ::getuid(), ::getgid()).has_value());
  EXPECT_FALSE(check_credentials(copy, 12345, 12345).has_value());

  ASSERT_TRUE(resume_source(copy).has_value());
  EXPECT_EQ(ask(copy, new_log(), 2), state_line(2, folder_.path(), 2));
  EXPECT_EQ(process_state(keeper::program_of(source)), 'T');
  ::kill(-copy, SIGTERM);
  EXPECT_EQ(wait_for_end(copy), 7 << 8);
  std::erase(started_, copy);

  // And back: the original goes on from where it stood.
  ASSERT_TRUE(resume_source(source).has_value());
  EXPECT_EQ(ask(source, old_log(), 2), state_line(2, folder_.path(), 2));
  kill_source(source);
  EXPECT_EQ(wait_for_end(source), SIGKILL);
  std::erase(started_, source);
}

TEST_F(CriuTest, MemoryOfALazyRestoreArrivesWhileTheProgramRuns) {
  if (!run_until_done(io_, criu_->restores_lazily(folder_.path()))) GTEST_SKIP() << "no lazy restore here";
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  const pid_t source = start({"plain"});
  EXPECT_EQ(ask(source, old_log(), 1), state_line(1, folder_.path(), 1));
  const MemoryFolder images = make_memory_folder("z");
  const auto dumped = dump(source, images.path());
  ASSERT_TRUE(dumped.has_value()) << dumped.assume_error().to_string();

  const auto pages = choose_lazy_pages(images.path(), 1 << 20);
  ASSERT_TRUE(pages.has_value()) << pages.assume_error().to_string();
  EXPECT_GT(pages.assume_value().eager, 0u);
  EXPECT_LE(pages.assume_value().eager, 1u << 20);
  EXPECT_GE(pages.assume_value().lazy, 8u << 20);  // the program's memory
  const auto restored = restore_lazily(images.path(), "");
  ASSERT_TRUE(restored.has_value()) << restored.assume_error().to_string();
  const pid_t copy = restored.assume_value();
  ASSERT_TRUE(pages_);
  ASSERT_TRUE(resume_source(copy).has_value());
  EXPECT_EQ(ask(copy, new_log(), 2), state_line(2, folder_.path(), 2));
  EXPECT_EQ(wait_for_server(), keeper::LazyPages::State::kWhole);
  EXPECT_EQ(ask(copy, new_log(), 3), state_line(3, folder_.path(), 3));
}

// Memory leaves in rounds, and CRIU leaves it out (the parameter), or dumps what is thrown away.
class EarlyPagesTest : public CriuTest, public ::testing::WithParamInterface<bool> {
 protected:
  static std::string library(const EarlyPages& pages) { return GetParam() ? pages.criu_library() : ""; }
  // Of all processes.
  static std::uint64_t found_by_criu(const std::string& images) {
    const std::vector<DumpedPages> all = dumped_pages(images).assume_value();
    std::uint64_t bytes = 0;
    for (const DumpedPages& pages : all)
      for (const IndexedRange& range : pages.ranges) bytes += range.bytes;
    return bytes;
  }
  // Ranges of all pages that the images have of a process, and of those that can be lazy.
  static std::vector<std::pair<std::uint64_t, std::uint64_t>> page_lists(const std::string& images,
                                                                         const std::string& process) {
    std::vector<std::pair<std::uint64_t, std::uint64_t>> lists;
    const auto add = [&lists](std::uint64_t begin, std::uint64_t bytes) {
      if (!lists.empty() && lists.back().second == begin) {
        lists.back().second += bytes;
      } else {
        lists.emplace_back(begin, begin + bytes);
      }
    };
    const std::vector<DumpedPages> all = dumped_pages(images).assume_value();
    for (const DumpedPages& pages : all) {
      if (std::to_string(pages.process) != process) continue;
      for (const IndexedRange& range : pages.ranges) add(range.address, range.bytes);
    }
    const auto text = [&](const char* kind) {
      return read_file(images + "/" + kind + "-" + process + ".img", 1 << 20).assume_value();
    };
    const auto lazy = lazy_ranges(text("pagemap"), text("mm"));
    EXPECT_TRUE(lazy.has_value());
    for (const auto& range : lazy.assume_value()) add(range.address, range.bytes);
    return lists;
  }
};
INSTANTIATE_TEST_SUITE_P(EachWay, EarlyPagesTest, ::testing::Bool(),
                         [](const auto& way) { return way.param ? "LeftOut" : "ThrownAway"; });

TEST_P(EarlyPagesTest, ProgramRunsOnWithMemoryThatWasCopiedAhead) {
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  const bool lazily = run_until_done(io_, criu_->restores_lazily(folder_.path()));
  const pid_t source = start({"plain"});
  EXPECT_EQ(ask(source, old_log(), 1), state_line(1, folder_.path(), 1));
  auto early = EarlyPages::create(source, 256 << 20, 0, 4 << 20);
  if (is_unsupported(early)) GTEST_SKIP() << early.assume_error().to_string();
  ASSERT_TRUE(early.has_value()) << early.assume_error().to_string();
  EarlyPages& pages = *early.assume_value();
  std::uint64_t reported = 0;
  const auto grew = [&reported](std::uint64_t filled) { reported = filled; };
  const auto first = pages.run_round(grew);
  ASSERT_TRUE(first.has_value()) << first.assume_error().to_string();
  EXPECT_GE(first.assume_value().read_bytes, 8u << 20);  // the program's memory
  const auto second = pages.run_round(grew);
  ASSERT_TRUE(second.has_value());
  EXPECT_LT(second.assume_value().read_bytes, 1u << 20);  // its threads' stacks and counters

  const MemoryFolder images = make_memory_folder("e");
  ASSERT_TRUE(pages.begin_dump(images.path(), estimate_dump(source).assume_value()).has_value());
  const auto dumped = dump(source, images.path(), library(pages));
  ASSERT_TRUE(dumped.has_value()) << dumped.assume_error().to_string();
  EXPECT_LT(dumped.assume_value().bytes, 1u << 20) << "CRIU's own pages are nowhere";
  EXPECT_EQ(found_by_criu(images.path()) < 4u << 20, GetParam()) << found_by_criu(images.path());
  const std::uint64_t before = pages.log().filled();
  auto placed = pages.finish(images.path(), grew);
  ASSERT_TRUE(placed.has_value()) << placed.assume_error().to_string();
  EXPECT_LT(pages.log().filled() - before, 4u << 20) << "what was held is read again";
  EXPECT_EQ(reported, pages.log().filled());

  auto packed = pack_folder(images.path(), std::move(placed).assume_value());
  ASSERT_TRUE(packed.has_value()) << packed.assume_error().to_string();
  const UniqueFd& file = packed.assume_value().file;
  ASSERT_EQ(::ftruncate(file.get(), static_cast<off_t>(packed.assume_value().bytes)), -1)
      << "it cannot shrink";
  const UniqueFd arrived_file = arrived_copy(packed.assume_value());
  for (const bool with_lazy : {false, true}) {
    if (with_lazy && !lazily) continue;
    const MemoryFolder arrived = make_memory_folder(with_lazy ? "f" : "g");
    ASSERT_TRUE(unpack_folder(arrived_file.get(), packed.assume_value().bytes, arrived.path()).has_value());
    const auto counts = choose_lazy_pages(arrived.path(), with_lazy ? 1 << 20 : kAllEager);
    ASSERT_TRUE(counts.has_value()) << counts.assume_error().to_string();
    EXPECT_EQ(counts.assume_value().lazy > 0, with_lazy);
    const auto restored = with_lazy ? restore_lazily(arrived.path(), "") : restore(arrived.path());
    ASSERT_TRUE(restored.has_value()) << restored.assume_error().to_string();
    const pid_t copy = restored.assume_value();
    ASSERT_TRUE(resume_source(copy).has_value());
    EXPECT_EQ(ask(copy, new_log(), 2), state_line(2, folder_.path(), 2));
    if (with_lazy) {
      EXPECT_EQ(wait_for_server(), keeper::LazyPages::State::kWhole);
    }
    ::kill(-copy, SIGTERM);
    EXPECT_EQ(wait_for_end(copy), 7 << 8);
    std::erase(started_, copy);
    ASSERT_EQ(::truncate(new_log().c_str(), 0), 0);
    ASSERT_EQ(::truncate((folder_ / "data.txt").c_str(), 1), 0);  // as it was dumped
  }
  // And back: the original has what it had.
  early.assume_value().reset();
  ASSERT_TRUE(resume_source(source).has_value());
  EXPECT_EQ(ask(source, old_log(), 2), state_line(2, folder_.path(), 2));
}

// A process that ends before CRIU stops the others moves their numbers. Its place is taken by one that was not followed.
TEST_P(EarlyPagesTest, PagemapIsAsIfCriuHadReadAllPages) {
  const pid_t source = start({"memories"});
  auto early = EarlyPages::create(source, 256 << 20, 0, 4 << 20);
  if (is_unsupported(early)) GTEST_SKIP() << early.assume_error().to_string();
  ASSERT_TRUE(early.has_value()) << early.assume_error().to_string();
  EarlyPages& pages = *early.assume_value();
  const auto nobody = [](std::uint64_t) {};
  ASSERT_TRUE(pages.run_round(nobody).has_value());
  const MemoryFolder images = make_memory_folder("j");
  ASSERT_TRUE(pages.begin_dump(images.path(), estimate_dump(source).assume_value()).has_value());
  ASSERT_TRUE(dump(source, images.path(), library(pages)).has_value());
  auto placed = pages.finish(images.path(), nobody);
  ASSERT_TRUE(placed.has_value()) << placed.assume_error().to_string();
  const MemoryFolder others = make_memory_folder("k");
  ASSERT_TRUE(dump(source, others.path()).has_value());
  for (const char* process : {"1", "2", "3"}) {
    SCOPED_TRACE(process);
    EXPECT_EQ(page_lists(images.path(), process), page_lists(others.path(), process));
  }
}

TEST_P(EarlyPagesTest, PagesOfAnotherProcessThatWereThrownAwayAreReadFromIt) {
  const pid_t source = start({"plain"});
  EXPECT_EQ(ask(source, old_log(), 1), state_line(1, folder_.path(), 1));
  auto early = EarlyPages::create(source, 256 << 20, 0, 4 << 20);
  if (is_unsupported(early)) GTEST_SKIP() << early.assume_error().to_string();
  ASSERT_TRUE(early.has_value()) << early.assume_error().to_string();
  EarlyPages& pages = *early.assume_value();
  const auto nobody = [](std::uint64_t) {};
  ASSERT_TRUE(pages.run_round(nobody).has_value());
  DumpEstimate estimate = estimate_dump(source).assume_value();
  ASSERT_EQ(estimate.processes.size(), 3u);  // the init, the program and its child
  std::swap(estimate.processes[1].position, estimate.processes[2].position);
  const MemoryFolder images = make_memory_folder("h");
  ASSERT_TRUE(pages.begin_dump(images.path(), estimate).has_value());
  ASSERT_TRUE(dump(source, images.path(), library(pages)).has_value());
  auto placed = pages.finish(images.path(), nobody);
  ASSERT_TRUE(placed.has_value()) << placed.assume_error().to_string();
  auto packed = pack_folder(images.path(), std::move(placed).assume_value());
  ASSERT_TRUE(packed.has_value()) << packed.assume_error().to_string();
  const MemoryFolder arrived = make_memory_folder("i");
  const UniqueFd file = arrived_copy(packed.assume_value());
  ASSERT_TRUE(unpack_folder(file.get(), packed.assume_value().bytes, arrived.path()).has_value());
  ASSERT_TRUE(choose_lazy_pages(arrived.path(), kAllEager).has_value());
  const auto restored = restore(arrived.path());
  ASSERT_TRUE(restored.has_value()) << restored.assume_error().to_string();
  ASSERT_TRUE(resume_source(restored.assume_value()).has_value());
  EXPECT_EQ(ask(restored.assume_value(), new_log(), 2), state_line(2, folder_.path(), 2));
}

TEST_F(CriuTest, AllPagesOfASmallProgramComeWithIt) {
  const pid_t source = start({"plain"});
  const MemoryFolder images = make_memory_folder("w");
  ASSERT_TRUE(dump(source, images.path()).has_value());
  const auto pages = choose_lazy_pages(images.path());
  ASSERT_TRUE(pages.has_value()) << pages.assume_error().to_string();
  EXPECT_GE(pages.assume_value().eager, 8u << 20);
  EXPECT_EQ(pages.assume_value().lazy, 0u);
  const auto again = choose_lazy_pages(images.path());
  ASSERT_TRUE(again.has_value());
  EXPECT_EQ(again.assume_value().eager, 0u) << "none of them can be lazy any more";
  ASSERT_TRUE(restore(images.path()).has_value());
}

TEST_F(CriuTest, PagemapThatIsCutIsRefused) {
  const pid_t source = start({"plain"});
  const MemoryFolder images = make_memory_folder("v");
  ASSERT_TRUE(dump(source, images.path()).has_value());
  std::filesystem::resize_file(images.path() + "/pagemap-2.img", 21);
  const auto pages = choose_lazy_pages(images.path());
  ASSERT_FALSE(pages.has_value());
  EXPECT_EQ(pages.assume_error().code(), ErrorCode::kCorrupt);
}

TEST_F(CriuTest, ProgramReadsNoZerosWhenLazyPageServerIsKilled) {
  if (!run_until_done(io_, criu_->restores_lazily(folder_.path()))) GTEST_SKIP() << "no lazy restore here";
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  // A thread with a signal pending whose signal frame is missing asks for it again and again instead of
  // waiting, so that no timer interrupts this one.
  const pid_t source = start({"untimed"});
  const MemoryFolder images = make_memory_folder("y");
  ASSERT_TRUE(dump(source, images.path()).has_value());
  // It is stopped once it has the processes, so that none of their pages is brought.
  const std::string script = folder_ / "stop-server";
  const std::string server_file = lazy_pages_pid_file(images.path());
  std::ofstream(script)
      << "#!/bin/sh\n[ $CRTOOLS_SCRIPT_ACTION = post-restore ] || exit 0\nserver=$(cat " + server_file +
             ")\nuntil [ $(ls -l /proc/$server/fd | grep -c userfaultfd) = 3 ]; do :; done\n"
             "kill -STOP $server\n";
  ASSERT_EQ(::chmod(script.c_str(), 0700), 0);
  ASSERT_TRUE(choose_lazy_pages(images.path(), 1 << 20).has_value());
  const auto restored = restore_lazily(images.path(), script);
  ASSERT_TRUE(restored.has_value()) << restored.assume_error().to_string();
  const pid_t copy = restored.assume_value();
  ASSERT_TRUE(pages_);
  ::kill(pages_->server(), SIGKILL);
  EXPECT_EQ(wait_for_server(), keeper::LazyPages::State::kLost);
  // With zeros in its place it would end, or print another state.
  ASSERT_TRUE(resume_source(copy).has_value());
  const pid_t program = keeper::program_of(copy);
  ::kill(-copy, SIGUSR1);
  const auto printed = [this] {
    const auto text = read_file(new_log(), 1 << 16);
    return text.has_value() && !text.assume_value().empty();
  };
  bool waits = false;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!waits && process_state(copy) != 'Z' && !printed() && std::chrono::steady_clock::now() < deadline) {
    waits = waits_for_memory(program);
    ::sched_yield();
  }
  EXPECT_TRUE(waits) << "no thread of the program waited for a missing page within 30 s";
  kill_source(copy);
  EXPECT_EQ(wait_for_end(copy), SIGKILL);
  EXPECT_FALSE(printed());
  std::erase(started_, copy);
  pages_->let_end();
  int status = 0;
  EXPECT_EQ(::waitpid(pages_->server(), &status, 0), pages_->server());
}

TEST_F(CriuTest, AProgramWithAConnectionOutsideIsRefusedAndGoesOn) {
  const std::string path = folder_ / "outside.sock";
  const UniqueFd listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::snprintf(address.sun_path, sizeof address.sun_path, "%s", path.c_str());
  ASSERT_EQ(::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ASSERT_EQ(::listen(listener.get(), 1), 0);
  const pid_t source = start({"connected", path});
  const UniqueFd accepted(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
  ASSERT_TRUE(accepted);

  const MemoryFolder images = make_memory_folder("c");
  const auto dumped = dump(source, images.path());
  ASSERT_FALSE(dumped.has_value());
  EXPECT_EQ(dumped.assume_error().code(), ErrorCode::kRefused);
  EXPECT_NE(dumped.assume_error().message().find("unix"), std::string::npos)
      << dumped.assume_error().message();
  EXPECT_EQ(ask(source, old_log(), 1), state_line(1, folder_.path(), 1));
}

TEST_F(CriuTest, ListenerIsRefusedByNameBeforeTheDumpWhereverItsDumpFails) {
  const pid_t source = start({"listening"});
  FileRules rules;
  rules.own_log = old_log();
  rules.no_internet = criu_->why_no_internet();
  const auto files = collect_files(source, rules);
  const MemoryFolder images = make_memory_folder("l");
  const auto dumped = dump(source, images.path());
  EXPECT_EQ(files.has_value(), dumped.has_value());
  if (files.has_value()) return;
  const std::string& why = files.assume_error().message();
  EXPECT_NE(why.find(" listens at 127.0.0.1:"), std::string::npos) << why;
  EXPECT_NE(why.find("install CRIU 4.2"), std::string::npos) << why;
}

std::string why_not_trusted(const std::string& program) {
  const auto trusted = check_trusted_program(program);
  return trusted ? "" : trusted.assume_error().message();
}

TEST(TrustedProgram, OnlyRootAndThisUserMayHaveWrittenIt) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root, to give files to another user";
  const std::string folder = ::testing::TempDir() + "trusted-program-" + std::to_string(::getpid());
  const std::string program = folder + "/bin/criu";
  std::filesystem::create_directories(folder + "/bin");
  std::ofstream(program) << "#!/bin/sh\n";
  std::filesystem::permissions(program, std::filesystem::perms(0755));
  EXPECT_TRUE(check_trusted_program(program));
  constexpr uid_t kOther = 65534;
  for (const std::string& part : {program, folder + "/bin"}) {
    ASSERT_EQ(::chown(part.c_str(), kOther, kOther), 0);
    EXPECT_THAT(why_not_trusted(program), HasSubstr("belongs to user 65534"));
    ASSERT_EQ(::chown(part.c_str(), 0, 0), 0);
    ASSERT_EQ(::chmod(part.c_str(), 0777), 0);
    EXPECT_THAT(why_not_trusted(program), HasSubstr("Others may write"));
    ASSERT_EQ(::chmod(part.c_str(), 0755), 0);
  }
  ASSERT_EQ(::chmod((folder + "/bin").c_str(), 01777), 0);  // as /tmp
  EXPECT_TRUE(check_trusted_program(program));
  std::filesystem::remove_all(folder);
}

TEST(CriuVersions, ListenersCannotBeSavedBefore42OnNewKernels) {
  for (const char* old : {"4.0", "4.1", "4.1.1"}) EXPECT_NE(why_no_internet(old, false), "") << old;
  for (const char* fixed : {"4.2", "4.2.1", "4.10", "5.0"})
    EXPECT_EQ(why_no_internet(fixed, false), "") << fixed;
  EXPECT_EQ(why_no_internet("4.1", true), "");
}

TEST(TimeLimits, ProcessOfGigabytesHasMinutes) {
  EXPECT_EQ(time_limit(0), std::chrono::seconds(60));
  EXPECT_GT(time_limit(std::uint64_t{3} << 30), std::chrono::seconds(200));
  EXPECT_EQ(criu_timeout(0), std::chrono::seconds(60));
  EXPECT_GT(criu_timeout(std::uint64_t{3} << 30), std::chrono::seconds(200));
}

TEST_F(CriuTest, ACopyEndsWithItsKeeper) {
  const pid_t source = start({"plain"});
  const MemoryFolder images = make_memory_folder("e");
  ASSERT_TRUE(dump(source, images.path()).has_value());
  int ends[2];
  ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  const UniqueFd told(ends[0]);
  UniqueFd tell(ends[1]);
  const pid_t keeper = ::fork();
  if (keeper == 0) {
    const auto restored = restore(images.path());
    const pid_t pid = restored.has_value() ? restored.assume_value() : 0;
    (void)!::write(tell.get(), &pid, sizeof pid);
    for (;;) ::pause();
  }
  tell.reset();
  pid_t copy = 0;
  ASSERT_EQ(::read(told.get(), &copy, sizeof copy), static_cast<ssize_t>(sizeof copy));
  ASSERT_GT(copy, 0);
  const UniqueFd watched(static_cast<int>(::syscall(SYS_pidfd_open, copy, 0)));
  ASSERT_TRUE(watched);
  ::kill(keeper, SIGKILL);
  ::waitpid(keeper, nullptr, 0);
  pollfd ended{watched.get(), POLLIN, 0};
  EXPECT_EQ(::poll(&ended, 1, 60000), 1);
}

TEST_F(CriuTest, ADamagedImageIsNotRestored) {
  const pid_t source = start({"plain"});
  const MemoryFolder images = make_memory_folder("d");
  ASSERT_TRUE(dump(source, images.path()).has_value());
  std::filesystem::resize_file(images.path() + "/core-2.img", 100);
  const pid_t keeper = ::fork();  // whose children are ended
  if (keeper == 0) ::_exit(restore(images.path()).has_value() ? 1 : 0);
  int status = -1;
  ASSERT_EQ(::waitpid(keeper, &status, 0), keeper);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(process_state(source), 'T');
  ASSERT_TRUE(resume_source(source).has_value());
  EXPECT_EQ(ask(source, old_log(), 1), state_line(1, folder_.path(), 1));
}

TEST_F(CriuTest, ASignalThatKillsTheProgramIsItsStatus) {
  const pid_t init = start({"plain"});
  EXPECT_EQ(::getpgid(keeper::program_of(init)), init);
  ::kill(-init, SIGUSR2);
  const int status = wait_for_end(init);
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(WTERMSIG(status), SIGSEGV);
  std::erase(started_, init);
}

TEST_F(CriuTest, AProgramThatDoesNotExistIsReported) {
  const auto init = start_program({"/nonexistent/program"}, folder_.path(), old_log());
  ASSERT_FALSE(init.has_value());
  EXPECT_EQ(init.assume_error().native(), ENOENT);
}

TEST(CriuSearch, MovesThatBeginTogetherAllFindIt) {
  asio::io_context io;
  const TemporaryFolder folder;
  const std::string program = folder.path() + "/criu";
  std::ofstream(program) << "#!/bin/sh\necho 'Version: 4.1.1'\n";
  std::filesystem::permissions(program, std::filesystem::perms::owner_all);
  std::vector<Task<Result<Criu>>> all;
  for (int i = 0; i < 8; ++i) all.push_back(Criu::find(program, folder.path()));
  for (const auto& found : run_all_until_done(io, std::move(all)))
    EXPECT_TRUE(found.has_value()) << found.assume_error().to_string();
}

TEST(CriuFind, ProgramThatIsNotCriuIsReported) {
  asio::io_context io;
  TemporaryFolder folder;
  const CriuFacts facts = run_until_done(io, Criu::probe("/bin/true", folder.path()));
  EXPECT_FALSE(facts.works);
  EXPECT_NE(facts.problem.find("/bin/true"), std::string::npos);
  EXPECT_NE(facts.problem.find("tools/criu install"), std::string::npos);
}

}  // namespace
}  // namespace ckpt::agent::host
