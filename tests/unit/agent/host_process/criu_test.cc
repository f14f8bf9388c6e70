// SPDX-License-Identifier: Apache-2.0
// Tests in which a running program is dumped, packed, unpacked and restored as this process's child while the
// original stays stopped. They use real CRIU. They are skipped with a reason where no CRIU works (no root,
// tools/criu install).
#include "agent/host_process/sockets/outer_connections.h"
#include "agent/host_process/sockets/sockets.h"
#include "tests/unit/agent/host_process/criu_fixture.h"

namespace ckpt::agent::host {
namespace {

using ::testing::HasSubstr;

TEST_F(CriuTest, AProgramContinuesInACopyWhileTheOriginalStaysStopped) {
  const pid_t source = start({"plain"});
  EXPECT_EQ(ask(source, old_log(), 1), state_line(1, folder_.path(), 1));

  const MemoryFolder images = make_memory_folder("a");
  const auto dumped = dump(source, images.path());
  ASSERT_TRUE(dumped.has_value()) << dumped.error().to_string();
  EXPECT_GT(dumped->bytes, 8u << 20);   // at least the program's memory
  EXPECT_LT(dumped->bytes, 16u << 20);  // only slightly more than the program's memory
  expect_all_stopped(source);

  auto packed = pack_folder(images.path());
  ASSERT_TRUE(packed.has_value());
  const MemoryFolder arrived = make_memory_folder("b");
  ASSERT_TRUE(unpack_folder(packed->file.get(), packed->bytes, arrived.path()).has_value());

  const auto restored = restore(arrived.path());
  ASSERT_TRUE(restored.has_value()) << restored.error().to_string();
  const pid_t copy = *restored;
  expect_all_stopped(copy);
  EXPECT_TRUE(check_credentials(copy, ::getuid(), ::getgid()).has_value());
  EXPECT_FALSE(check_credentials(copy, 12345, 12345).has_value());

  ASSERT_TRUE(resume_source(copy).has_value());
  EXPECT_EQ(ask(copy, new_log(), 2), state_line(2, folder_.path(), 2));
  EXPECT_EQ(process_state(keeper::program_of(source)), 'T');
  ::kill(-copy, SIGTERM);
  EXPECT_EQ(wait_for_end(copy), 7 << 8);
  std::erase(started_, copy);

  // The original continues from where it stopped.
  ASSERT_TRUE(resume_source(source).has_value());
  EXPECT_EQ(ask(source, old_log(), 2), state_line(2, folder_.path(), 2));
  kill_source(source);
  EXPECT_EQ(wait_for_end(source), SIGKILL);
  std::erase(started_, source);
}

TEST_F(CriuTest, LazyRestoreLoadsMemoryWhileTheProgramRuns) {
  if (!run_until_done(io_, criu_->restores_lazily(folder_.path()))) GTEST_SKIP() << "no lazy restore here";
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  const pid_t source = start({"plain"});
  EXPECT_EQ(ask(source, old_log(), 1), state_line(1, folder_.path(), 1));
  const MemoryFolder images = make_memory_folder("z");
  const auto dumped = dump(source, images.path());
  ASSERT_TRUE(dumped.has_value()) << dumped.error().to_string();

  const auto pages = choose_lazy_pages(images.path(), 1 << 20);
  ASSERT_TRUE(pages.has_value()) << pages.error().to_string();
  EXPECT_GT(pages->eager, 0u);
  EXPECT_LE(pages->eager, 1u << 20);
  EXPECT_GE(pages->lazy, 8u << 20);  // at least the program's memory
  const auto restored = restore_lazily(images.path(), "");
  ASSERT_TRUE(restored.has_value()) << restored.error().to_string();
  const pid_t copy = *restored;
  ASSERT_TRUE(pages_);
  ASSERT_TRUE(resume_source(copy).has_value());
  EXPECT_EQ(ask(copy, new_log(), 2), state_line(2, folder_.path(), 2));
  EXPECT_EQ(wait_for_server(), keeper::LazyPages::State::kWhole);
  EXPECT_EQ(ask(copy, new_log(), 3), state_line(3, folder_.path(), 3));
}

TEST_F(CriuTest, PagesAreLazyEvenWithAStackPointerAtAPageStart) {
  if (!run_until_done(io_, criu_->restores_lazily(folder_.path()))) GTEST_SKIP() << "no lazy restore here";
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  const pid_t source = start({"aligned"});
  const MemoryFolder images = make_memory_folder("u");
  ASSERT_TRUE(dump(source, images.path()).has_value());
  const auto pages = choose_lazy_pages(images.path(), 1 << 20);
  ASSERT_TRUE(pages.has_value()) << pages.error().to_string();
  EXPECT_GE(pages->lazy, 8u << 20);
  const auto restored = restore_lazily(images.path(), "");
  ASSERT_TRUE(restored.has_value()) << restored.error().to_string();
  ASSERT_TRUE(resume_source(*restored).has_value());
  EXPECT_EQ(ask(*restored, new_log(), 1), state_line(1, folder_.path(), 1));
  EXPECT_EQ(wait_for_server(), keeper::LazyPages::State::kWhole);
}

TEST_F(CriuTest, AllPagesOfASmallProgramAreRestoredEagerly) {
  const pid_t source = start({"plain"});
  const MemoryFolder images = make_memory_folder("w");
  ASSERT_TRUE(dump(source, images.path()).has_value());
  const auto pages = choose_lazy_pages(images.path());
  ASSERT_TRUE(pages.has_value()) << pages.error().to_string();
  EXPECT_GE(pages->eager, 8u << 20);
  EXPECT_EQ(pages->lazy, 0u);
  const auto plan = lazy_pages::read_plan(images.path());
  ASSERT_TRUE(plan.has_value());
  EXPECT_TRUE(plan->empty());
  const auto copy = restore(images.path());
  ASSERT_TRUE(copy.has_value()) << copy.error().to_string();
  ASSERT_TRUE(resume_source(*copy).has_value());
  EXPECT_EQ(ask(*copy, new_log(), 1), state_line(1, folder_.path(), 1));
}

TEST_F(CriuTest, TruncatedPagemapIsRefused) {
  const pid_t source = start({"plain"});
  const MemoryFolder images = make_memory_folder("v");
  ASSERT_TRUE(dump(source, images.path()).has_value());
  std::filesystem::resize_file(images.path() + "/pagemap-2.img", 21);
  const auto pages = choose_lazy_pages(images.path());
  ASSERT_FALSE(pages.has_value());
  EXPECT_EQ(pages.error().code(), ErrorCode::kCorrupt);
}

TEST_F(CriuTest, ProgramNeverReadsZerosAfterTheLazyPageServerIsKilled) {
  if (!run_until_done(io_, criu_->restores_lazily(folder_.path()))) GTEST_SKIP() << "no lazy restore here";
  ::prctl(PR_SET_CHILD_SUBREAPER, 1);
  // If the signal frame of a thread with a pending signal is missing, the thread requests it repeatedly
  // instead of waiting. Without the timer nothing interrupts this thread.
  const pid_t source = start({"untimed"});
  const MemoryFolder images = make_memory_folder("y");
  ASSERT_TRUE(dump(source, images.path()).has_value());
  // The script stops the server once the server has the processes, so that none of their pages is
  // transferred.
  const std::string script = folder_ / "stop-server";
  const std::string server_file = lazy_pages_pid_file(images.path());
  std::ofstream(script)
      << "#!/bin/sh\n[ $CRTOOLS_SCRIPT_ACTION = post-restore ] || exit 0\nserver=$(cat " + server_file +
             ")\nuntil [ $(ls -l /proc/$server/fd | grep -c userfaultfd) = 3 ]; do :; done\n"
             "kill -STOP $server\n";
  ASSERT_EQ(::chmod(script.c_str(), 0700), 0);
  ASSERT_TRUE(choose_lazy_pages(images.path(), 1 << 20).has_value());
  const auto restored = restore_lazily(images.path(), script);
  ASSERT_TRUE(restored.has_value()) << restored.error().to_string();
  const pid_t copy = *restored;
  ASSERT_TRUE(pages_);
  ::kill(pages_->server(), SIGKILL);
  EXPECT_EQ(wait_for_server(), keeper::LazyPages::State::kLost);
  // With zeros in place of its pages the program would end, or print another state.
  ASSERT_TRUE(resume_source(copy).has_value());
  const pid_t program = keeper::program_of(copy);
  ::kill(-copy, SIGUSR1);
  const auto printed = [this] {
    const auto text = read_file(new_log(), 1 << 16);
    return text.has_value() && !text->empty();
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

TEST_F(CriuTest, AProgramWithAnExternalConnectionIsRefusedAndContinues) {
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
  EXPECT_EQ(dumped.error().code(), ErrorCode::kRefused);
  EXPECT_NE(dumped.error().message().find("unix"), std::string::npos) << dumped.error().message();
  EXPECT_EQ(ask(source, old_log(), 1), state_line(1, folder_.path(), 1));
}

// The connection is as if it had been opened after the program's files were collected. If the image contained
// it as closed, it would be lost.
TEST_F(CriuTest, UnknownConnectionFailsTheDumpAndStaysOpen) {
  const pid_t source = start({"talking"});
  ASSERT_EQ(ask(source, old_log(), 1), state_line(1, folder_.path(), 1));
  const auto open_ends = [source] { return connections_of(source)->inner.size(); };
  const auto before = open_ends();
  EXPECT_EQ(before, 2U);
  const MemoryFolder images = make_memory_folder("t");
  const auto dumped = dump(source, images.path());
  ASSERT_FALSE(dumped.has_value());
  EXPECT_EQ(dumped.error().code(), ErrorCode::kRefused);
  if (criu_->why_no_internet().empty()) {
    EXPECT_THAT(dumped.error().message(), HasSubstr("opened a TCP connection"));
  }
  EXPECT_EQ(ask(source, old_log(), 2), state_line(2, folder_.path(), 2));
  EXPECT_EQ(open_ends(), before);
}

TEST_F(CriuTest, ListenerThatCriuCannotDumpIsRefusedByNameBeforeTheDump) {
  const pid_t source = start({"listening"});
  FileRules rules;
  rules.own_log = old_log();
  rules.no_internet = criu_->why_no_internet();
  const auto files = collect_files(source, rules);
  const MemoryFolder images = make_memory_folder("l");
  const auto dumped = dump(source, images.path());
  EXPECT_EQ(files.has_value(), dumped.has_value());
  if (files.has_value()) return;
  const std::string& reason = files.error().message();
  EXPECT_NE(reason.find(" listens at 127.0.0.1:"), std::string::npos) << reason;
  EXPECT_NE(reason.find("install CRIU 4.2"), std::string::npos) << reason;
}

std::string why_not_trusted(const std::string& program) {
  const auto trusted = check_trusted_program(program);
  return trusted ? "" : trusted.error().message();
}

TEST(TrustedProgram, ProgramWritableByOtherUsersIsNotTrusted) {
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
    EXPECT_THAT(why_not_trusted(program), HasSubstr("Other users may write"));
    ASSERT_EQ(::chmod(part.c_str(), 0755), 0);
  }
  ASSERT_EQ(::chmod((folder + "/bin").c_str(), 01777), 0);  // the mode of /tmp
  EXPECT_TRUE(check_trusted_program(program));
  std::filesystem::remove_all(folder);
}

TEST(CriuVersions, ListenersCannotBeSavedBeforeCriu42OnNewKernels) {
  for (const char* old : {"4.0", "4.1", "4.1.1"}) EXPECT_NE(why_no_internet(old, false), "") << old;
  for (const char* fixed : {"4.2", "4.2.1", "4.10", "5.0"})
    EXPECT_EQ(why_no_internet(fixed, false), "") << fixed;
  EXPECT_EQ(why_no_internet("4.1", true), "");
}

TEST(TimeLimits, TimeLimitGrowsWithTheMemoryOfTheProcess) {
  EXPECT_EQ(time_limit(0), std::chrono::seconds(60));
  EXPECT_GT(time_limit(std::uint64_t{3} << 30), std::chrono::seconds(200));
  EXPECT_EQ(criu_timeout(0), std::chrono::seconds(60));
  EXPECT_GT(criu_timeout(std::uint64_t{3} << 30), std::chrono::seconds(200));
}

TEST_F(CriuTest, ACopyEndsWhenItsKeeperExits) {
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
    const pid_t pid = restored.has_value() ? *restored : 0;
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

TEST_F(CriuTest, ADamagedImageIsRefused) {
  const pid_t source = start({"plain"});
  const MemoryFolder images = make_memory_folder("d");
  ASSERT_TRUE(dump(source, images.path()).has_value());
  std::filesystem::resize_file(images.path() + "/core-2.img", 100);
  const pid_t keeper = ::fork();  // a separate process, whose children end with it
  if (keeper == 0) ::_exit(restore(images.path()).has_value() ? 1 : 0);
  int status = -1;
  ASSERT_EQ(::waitpid(keeper, &status, 0), keeper);
  EXPECT_EQ(status, 0);
  EXPECT_EQ(process_state(source), 'T');
  ASSERT_TRUE(resume_source(source).has_value());
  EXPECT_EQ(ask(source, old_log(), 1), state_line(1, folder_.path(), 1));
}

TEST_F(CriuTest, AFatalSignalIsReportedAsTheProgramStatus) {
  const pid_t init = start({"plain"});
  EXPECT_EQ(::getpgid(keeper::program_of(init)), init);
  ::kill(-init, SIGUSR2);
  const int status = wait_for_end(init);
  EXPECT_TRUE(WIFSIGNALED(status));
  EXPECT_EQ(WTERMSIG(status), SIGSEGV);
  std::erase(started_, init);
}

TEST_F(CriuTest, AMissingProgramIsReported) {
  const auto init = start_program({"/nonexistent/program"}, folder_.path(), old_log());
  ASSERT_FALSE(init.has_value());
  EXPECT_EQ(init.error().native(), ENOENT);
}

TEST(CriuSearch, ConcurrentMovesAllFindCriu) {
  asio::io_context io;
  const TemporaryFolder folder;
  const std::string program = folder.path() + "/criu";
  std::ofstream(program) << "#!/bin/sh\necho 'Version: 4.1.1'\n";
  std::filesystem::permissions(program, std::filesystem::perms::owner_all);
  std::vector<Task<Result<Criu>>> all;
  for (int i = 0; i < 8; ++i) all.push_back(Criu::find(program, folder.path()));
  for (const auto& found : run_all_until_done(io, std::move(all)))
    EXPECT_TRUE(found.has_value()) << found.error().to_string();
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
