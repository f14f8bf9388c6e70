// SPDX-License-Identifier: Apache-2.0
#include "tests/scale/coordinator_process.h"

#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "libckpt/base/fd.h"

namespace ckpt::scale {
namespace {

using Clock = std::chrono::steady_clock;
using nlohmann::json;

constexpr std::size_t kLargestFile = std::size_t{1} << 20;
constexpr std::chrono::seconds kStart{120};
constexpr std::chrono::milliseconds kLookAgain{5};

std::string word_of(std::string text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == ' ')) text.pop_back();
  return text;
}

// Returns the number after `name` in a file of /proc.
std::uint64_t proc_number(pid_t pid, const char* file, const std::string& name) {
  const auto text = read_file("/proc/" + std::to_string(pid) + "/" + file, kLargestFile);
  if (!text) return 0;
  std::istringstream lines(*text);
  std::string line;
  while (std::getline(lines, line)) {
    if (line.starts_with(name)) return std::stoull(line.substr(name.size()));
  }
  return 0;
}

}  // namespace

Result<std::unique_ptr<CoordinatorProcess>> CoordinatorProcess::start(const std::string& program,
                                                                      const std::string& home,
                                                                      const std::string& settings) {
  std::error_code ignored;
  std::filesystem::create_directories(home + "/coordinator", ignored);
  std::filesystem::remove(home + "/coordinator/api.json", ignored);
  const std::string config = home + "/coordinator.toml";
  CKPT_TRYV(write_file_durably(config, settings));
  std::string words[] = {
      program, "--home", home, "--config", config, "--log-file", home + "/coordinator.log"};
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  pid_t pid = 0;
  if (const int failure = ::posix_spawn(&pid, program.c_str(), nullptr, nullptr, arguments.data(), environ);
      failure != 0)
    return Error(ErrorCode::kUnavailable, "Starting " + program + " failed: " + std::to_string(failure));
  std::unique_ptr<CoordinatorProcess> process(new CoordinatorProcess(pid));
  CKPT_TRYV(process->wait_until_it_listens(home));
  return process;
}

Result<void> CoordinatorProcess::wait_until_it_listens(const std::string& home) {
  const auto begun = Clock::now();
  while (Clock::now() < begun + kStart) {
    const auto text = read_file(home + "/coordinator/api.json", kLargestFile);
    const json where = text ? json::parse(*text, nullptr, false) : json();
    if (!where.is_object()) {
      if (::waitpid(pid_, nullptr, WNOHANG) == pid_) {
        pid_ = 0;
        break;
      }
      std::this_thread::sleep_for(kLookAgain);
      continue;
    }
    start_seconds_ = std::chrono::duration<double>(Clock::now() - begun).count();
    api_address_ = where.value("socket", "");
    agent_address_ = where.value("agent_address", "");
    CKPT_TRY(token, read_file(where.value("token_file", ""), kLargestFile));
    CKPT_TRY(agent_token, read_file(where.value("agent_token_file", ""), kLargestFile));
    token_ = word_of(std::move(token));
    agent_token_ = word_of(std::move(agent_token));
    return ok();
  }
  return Error(ErrorCode::kUnavailable, "The coordinator does not start: see " + home + "/coordinator.log");
}

CoordinatorProcess::~CoordinatorProcess() {
  if (pid_ == 0) return;
  ::kill(pid_, SIGTERM);
  ::waitpid(pid_, nullptr, 0);
}

double CoordinatorProcess::cpu_seconds() const {
  clockid_t clock = 0;
  timespec used{};
  if (::clock_getcpuclockid(pid_, &clock) != 0 || ::clock_gettime(clock, &used) != 0) return 0;
  return static_cast<double>(used.tv_sec) + static_cast<double>(used.tv_nsec) / 1e9;
}

double CoordinatorProcess::resident_mib() const {
  return static_cast<double>(proc_number(pid_, "status", "VmRSS:")) / 1024;
}

std::uint64_t CoordinatorProcess::writes() const {
  return proc_number(pid_, "io", "syscw: ");
}

}  // namespace ckpt::scale
