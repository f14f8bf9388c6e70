// SPDX-License-Identifier: Apache-2.0
// Shared parts of the keeper's tests: a keeper as a process in a folder of its own, and the agent's side of
// its socket. Every wait is for an event, with a limit only against hanging.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "agent/keeper/rank/rank_process.h"
#include "libckpt/base/clock.h"
#include "libckpt/inprocess/local/socket.h"

namespace ckpt::keeper {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using local::Phase;

inline constexpr int kHangMs = 20'000;

inline bool wait_readable(int fd) {
  pollfd watched{fd, POLLIN, 0};
  return ::poll(&watched, 1, kHangMs) == 1;
}

// A watch for the end of a process that is not a child of the test.
class Watch {
 public:
  explicit Watch(pid_t pid) : fd_(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))) {}
  [[nodiscard]] bool ended() const { return !fd_ || wait_readable(fd_.get()); }

 private:
  UniqueFd fd_;
};

// Runs a program to its end, with its errors written to a file.
inline int run(std::vector<std::string> argv, const std::string& errors_path) {
  std::vector<char*> words;
  for (std::string& word : argv) words.push_back(word.data());
  words.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, 2, errors_path.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  pid_t child = 0;
  EXPECT_EQ(::posix_spawn(&child, words[0], &actions, nullptr, words.data(), environ), 0);
  ::posix_spawn_file_actions_destroy(&actions);
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return WEXITSTATUS(status);
}

// The agent's side of a connection.
class Agent {
 public:
  explicit Agent(const std::string& folder) {
    Result<local::Socket> socket = local::Socket::connect(folder + "/keeper.sock");
    EXPECT_TRUE(socket.has_value()) << socket.error().to_string();
    if (socket.has_value()) socket_ = *std::move(socket);
    status_ = ask<local::Status>(local::Attach{});
  }
  [[nodiscard]] const local::Status& status() const { return status_; }
  local::Socket& socket() { return socket_; }

  std::uint64_t send(local::Body body, int descriptor = -1) {
    const std::span<const int> descriptors(&descriptor, descriptor >= 0 ? 1 : 0);
    EXPECT_TRUE(socket_.send({0, ++request_, std::move(body)}, descriptors).has_value());
    return request_;
  }

  // Returns the next message of type T. Other messages are skipped, but a Failed fails the test.
  template <class T>
  T next() {
    for (;;) {
      if (!wait_readable(socket_.fd())) {
        ADD_FAILURE() << "nothing came";
        return {};
      }
      Result<local::Received> received = socket_.receive();
      if (!received.has_value() || received->transfer != local::Transfer::kDone) {
        ADD_FAILURE() << "the connection ended";
        return {};
      }
      local::Body& body = received->message.body;
      last_request_ = received->message.request;
      descriptors_ = std::move(received->descriptors);
      if (T* wanted = std::get_if<T>(&body)) return *wanted;
      if (const auto* failed = std::get_if<local::Failed>(&body)) {
        ADD_FAILURE() << "refused: " << failed->text.view();
        return {};
      }
    }
  }

  template <class T>
  T ask(local::Body body, int descriptor = -1) {
    const std::uint64_t request = send(std::move(body), descriptor);
    T answer = next<T>();
    EXPECT_EQ(last_request_, request);
    return answer;
  }

  // Returns the next message, which must be a refusal.
  local::Failed next_failure() {
    if (!wait_readable(socket_.fd())) return {};
    Result<local::Received> received = socket_.receive();
    if (!received.has_value()) return {};
    const auto* failed = std::get_if<local::Failed>(&received->message.body);
    EXPECT_NE(failed, nullptr);
    return failed != nullptr ? *failed : local::Failed{};
  }

  void wait_for_phase(Phase phase) {
    while (status_.phase != phase && !::testing::Test::HasFailure()) {
      if (phase == Phase::kRunning) next<local::Ready>();
      if (phase == Phase::kStandbyReady) next<local::StandbyReady>();
      status_ = ask<local::Status>(local::Attach{});
    }
  }

  UniqueFd take_descriptor() {
    EXPECT_EQ(descriptors_.size(), 1u);
    return descriptors_.empty() ? UniqueFd() : std::move(descriptors_.front());
  }

 private:
  local::Socket socket_;
  local::Status status_;
  std::uint64_t request_ = 0;
  std::uint64_t last_request_ = 0;
  std::vector<UniqueFd> descriptors_;
};

class KeeperTest : public ::testing::Test {
 protected:
  KeeperTest() {
    std::string path = (fs::temp_directory_path() / "ckpt-keeper-XXXXXX").string();
    root_ = ::mkdtemp(path.data());
  }
  ~KeeperTest() override {
    for (const pid_t pid : keepers_) ::kill(pid, SIGKILL);  // killing the keeper also kills the rank
    for (const pid_t pid : keepers_) EXPECT_TRUE(Watch(pid).ended());
    fs::remove_all(root_);
  }

  Json config(const std::vector<std::string>& arguments, const std::string& role = "fresh") {
    std::vector<std::string> argv = {TEST_PROGRAM};
    argv.insert(argv.end(), arguments.begin(), arguments.end());
    return {{"job", "j-1"},
            {"incarnation", 1},
            {"role", role},
            {"argv", argv},
            {"env", {{"GIVEN", "yes"}, {"CKPT_FAULT_DIR", root_}}},
            {"cwd", root_}};
  }

  // Runs the keeper's command until it returns; the keeper itself keeps running.
  int launch(const std::string& folder, const Json& config) {
    fs::create_directories(folder);
    std::ofstream(folder + "/keeper.json") << config.dump();
    return run({KEEPER_PROGRAM, "--dir", folder}, folder + "/said");
  }

  std::string start(const std::vector<std::string>& arguments, const std::string& role = "fresh",
                    const std::string& name = "job") {
    return start_with(config(arguments, role), name);
  }

  std::string start_with(const Json& config, const std::string& name = "job") {
    const std::string folder = root_ + "/" + name;
    EXPECT_EQ(launch(folder, config), 0) << text_of(folder + "/said");
    EXPECT_EQ(text_of(folder + "/said"), "");
    keepers_.push_back(keeper_pid(folder));
    return folder;
  }

  static std::string text_of(const std::string& path) {
    const Result<std::string> text = read_file(path, 1 << 20);
    return text.has_value() ? *text : "(no " + path + ")";
  }
  static pid_t keeper_pid(const std::string& folder) {
    return std::atoi(text_of(folder + "/keeper.pid").c_str());
  }
  static Json status_of(const std::string& folder) {
    return Json::parse(text_of(folder + "/status.json"), nullptr, false);
  }
  static char state_of(pid_t pid) {
    const std::string stat = text_of("/proc/" + std::to_string(pid) + "/stat");
    return stat[stat.rfind(')') + 2];
  }

  std::string root_;
  std::vector<pid_t> keepers_;
};

inline local::Failed refusal_of(Agent& agent, local::Body body) {
  agent.send(std::move(body));
  EXPECT_TRUE(wait_readable(agent.socket().fd()));
  const Result<local::Received> received = agent.socket().receive();
  if (!received.has_value()) return {};
  const auto* failed = std::get_if<local::Failed>(&received->message.body);
  EXPECT_NE(failed, nullptr);
  return failed == nullptr ? local::Failed{} : *failed;
}

}  // namespace ckpt::keeper
