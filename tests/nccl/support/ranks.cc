// SPDX-License-Identifier: Apache-2.0
#include "tests/nccl/support/ranks.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>

namespace nccl_test {
namespace {

constexpr int kSocket = 3;
constexpr std::size_t kMaxText = 1024;

// One rank from the view of the first process.
struct Rank {
  pid_t pid = -1;
  int socket = -1;
  int output = -1;
  bool spoke = false;    // true once the rank has run the test
  bool pending = false;  // true once the rank has sent its text of this round
  std::string text;
  int status = 0;
};

std::vector<std::string> environment_of(int rank, int ranks, int device, bool own_host,
                                        const RankOptions& options) {
  std::vector<std::string> all;
  for (char** item = environ; *item != nullptr; item++) all.emplace_back(*item);
  const auto set = [&all](const std::string& name, const std::string& value) {
    std::erase_if(all, [&name](const std::string& item) { return item.rfind(name + "=", 0) == 0; });
    all.push_back(name + "=" + value);
  };
  set("NCCL_TEST_RANK", std::to_string(rank));
  set("NCCL_TEST_RANKS", std::to_string(ranks));
  set("NCCL_TEST_DEVICE", std::to_string(device));
  set("NCCL_SOCKET_IFNAME", "lo");
  if (own_host) set("NCCL_HOSTID", "nccl-test-" + std::to_string(rank));
  for (const auto& [name, value] : options.environment) set(name, value);
  return all;
}

Rank start(const std::string& test, std::vector<std::string> environment) {
  Rank rank;
  int ends[2];
  EXPECT_EQ(0, ::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends));
  rank.socket = ends[0];
  rank.output = ::memfd_create("rank", MFD_CLOEXEC);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, rank.output, 1);
  posix_spawn_file_actions_adddup2(&actions, rank.output, 2);
  posix_spawn_file_actions_adddup2(&actions, ends[1], kSocket);
  std::string filter = "--gtest_filter=" + test;
  char name[] = "nccl-rank";
  char* arguments[] = {name, filter.data(), nullptr};
  std::vector<char*> pointers;
  for (std::string& item : environment) pointers.push_back(item.data());
  pointers.push_back(nullptr);
  EXPECT_EQ(0, ::posix_spawn(&rank.pid, "/proc/self/exe", &actions, nullptr, arguments, pointers.data()));
  posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  return rank;
}

void read_text(Rank* rank) {
  char text[kMaxText];
  const ssize_t got = ::recv(rank->socket, text, sizeof text, 0);
  rank->pending = got > 0;
  rank->spoke = rank->spoke || got > 0;
  rank->text = got > 0 ? std::string(text, static_cast<std::size_t>(got)) : "";
  if (got > 0) return;
  ::close(rank->socket);
  rank->socket = -1;
}

// Answers once all living ranks have sent. Each rank gets all texts, each text in a field of its own.
void answer(std::vector<Rank>* ranks) {
  std::string all;
  for (Rank& rank : *ranks) {
    std::string field = rank.pending ? rank.text : "";
    field.resize(kMaxText + 1, '\0');
    field[kMaxText] = '\0';
    all += field;
    rank.pending = false;
  }
  for (const Rank& rank : *ranks) {
    if (rank.socket >= 0) ::send(rank.socket, all.data(), all.size(), MSG_NOSIGNAL);
  }
}

// Relays texts until all ranks have closed their sockets. Returns false at the deadline.
bool relay(std::vector<Rank>* ranks) {
  const auto deadline = std::chrono::steady_clock::now() + kDeadline;
  for (;;) {
    std::vector<pollfd> polled;
    for (const Rank& rank : *ranks) polled.push_back({rank.pending ? -1 : rank.socket, POLLIN, 0});
    const auto lives = [](const Rank& rank) { return rank.socket >= 0; };
    if (std::none_of(ranks->begin(), ranks->end(), lives)) return true;
    if (std::all_of(ranks->begin(), ranks->end(),
                    [&](const Rank& rank) { return !lives(rank) || rank.pending; })) {
      answer(ranks);
      continue;
    }
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    if (left.count() <= 0 || ::poll(polled.data(), polled.size(), static_cast<int>(left.count())) <= 0)
      return false;
    for (std::size_t i = 0; i < ranks->size(); i++) {
      if (polled[i].revents != 0) read_text(&(*ranks)[i]);
    }
  }
}

std::string output_of(const Rank& rank) {
  std::string text(static_cast<std::size_t>(std::max<off_t>(0, ::lseek(rank.output, 0, SEEK_END))), '\0');
  const ssize_t got = ::pread(rank.output, text.data(), text.size(), 0);
  text.resize(static_cast<std::size_t>(std::max<ssize_t>(0, got)));
  return text;
}

void finish(std::vector<Rank>* ranks, bool in_time, const RankOptions& options) {
  for (std::size_t i = 0; i < ranks->size(); i++) {
    Rank& rank = (*ranks)[i];
    if (!in_time) ::kill(rank.pid, SIGKILL);
    ::waitpid(rank.pid, &rank.status, 0);
    if (rank.socket >= 0) ::close(rank.socket);
    const bool killed = options.killed.count(static_cast<int>(i)) > 0;
    const bool as_expected =
        killed ? WIFSIGNALED(rank.status) && WTERMSIG(rank.status) == SIGKILL : rank.status == 0;
    EXPECT_TRUE(in_time && as_expected && rank.spoke)
        << "rank " << i << (in_time ? "" : " (all were killed at the deadline)") << ", status " << rank.status
        << ":\n"
        << output_of(rank);
    ::close(rank.output);
  }
}

int number_of(const char* variable) {
  const char* text = std::getenv(variable);
  return text != nullptr ? std::atoi(text) : -1;
}

}  // namespace

bool RanksTest::as_rank(int ranks, const RankOptions& options) {
  rank_ = number_of("NCCL_TEST_RANK");
  if (rank_ >= 0) {
    ranks_ = number_of("NCCL_TEST_RANKS");
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    set_up_device(number_of("NCCL_TEST_DEVICE"));
    exchange();
    return !HasFatalFailure();
  }
  int devices = 0;
  const bool usable = load_cuda() != nullptr && load_nccl() != nullptr &&
                      cuda().cuDeviceGetCount(&devices) == CUDA_SUCCESS && devices > 0;
  const auto skip = [](const std::string& reason) { GTEST_SKIP() << reason; };
  if (!usable) return skip("no CUDA driver, no device, or no NCCL"), false;
  if (devices < options.devices) return skip("one device"), false;
  const bool shared = devices < ranks && !options.one_device;
  if (shared && ranks > 2) return skip(std::to_string(ranks) + " ranks need as many devices"), false;
  const auto* info = testing::UnitTest::GetInstance()->current_test_info();
  std::vector<Rank> all;
  for (int rank = 0; rank < ranks; rank++) {
    const int device = shared || options.one_device ? 0 : rank;
    all.push_back(start(std::string(info->test_suite_name()) + "." + info->name(),
                        environment_of(rank, ranks, device, shared, options)));
  }
  finish(&all, relay(&all), options);
  return false;
}

void RanksTest::set_up_device(int device) {
  CUcontext context = nullptr;
  ASSERT_EQ(CUDA_SUCCESS, cuda().cuDevicePrimaryCtxRetain(&context, device));
  ASSERT_EQ(CUDA_SUCCESS, cuda().cuCtxSetCurrent(context));
  ASSERT_EQ(CUDA_SUCCESS, cuda().cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING));
}

void RanksTest::TearDown() {
  if (stream_ == nullptr) return;
  EXPECT_EQ(CUDA_SUCCESS, cuda().cuStreamSynchronize(stream_));
  EXPECT_EQ(CUDA_SUCCESS, cuda().cuStreamDestroy_v2(stream_));
}

std::vector<std::string> RanksTest::exchange(const std::string& text) {
  EXPECT_LE(text.size(), kMaxText);
  // A text begins with a letter, so that an empty text is distinguishable from an ended rank.
  const std::string sent = "t" + text;
  EXPECT_EQ(static_cast<ssize_t>(sent.size()), ::send(kSocket, sent.data(), sent.size(), MSG_NOSIGNAL));
  std::string all(static_cast<std::size_t>(ranks_) * (kMaxText + 1), '\0');
  EXPECT_EQ(static_cast<ssize_t>(all.size()), ::recv(kSocket, all.data(), all.size(), 0));
  std::vector<std::string> texts;
  for (int rank = 0; rank < ranks_; rank++) {
    const std::string field = all.substr(static_cast<std::size_t>(rank) * (kMaxText + 1), kMaxText);
    texts.push_back(field[0] == 't' ? field.substr(1) : "");
  }
  return texts;
}

ncclUniqueId RanksTest::shared_id() {
  ncclUniqueId id{};
  if (rank_ == 0) {
    EXPECT_EQ(ncclSuccess, nccl().ncclGetUniqueId(&id));
  }
  const std::string text = exchange(std::string(id.internal, sizeof id.internal))[0];
  std::memcpy(id.internal, text.data(), std::min(text.size(), sizeof id.internal));
  return id;
}

ncclComm_t RanksTest::init() {
  ncclComm_t communicator = nullptr;
  EXPECT_EQ(ncclSuccess, nccl().ncclCommInitRank(&communicator, ranks_, shared_id(), rank_))
      << nccl().ncclGetLastError(nullptr);
  return communicator;
}

void RanksTest::kill_self() {
  ::kill(::getpid(), SIGKILL);
  for (;;) ::pause();
}

}  // namespace nccl_test
