// SPDX-License-Identifier: Apache-2.0
#include "tools/gpumigrate/doctor.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "libckpt/base/fd.h"
#include "tools/gpumigrate/client/table.h"
#include "tools/gpumigrate/local/gpu_choice.h"
#include "tools/gpumigrate/local/processes.h"

namespace ckpt::cli {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::chrono::seconds kPatience{180};  // the limit for the agent's program; it covers a first
                                                // cuInit, CRIU's check and a hanging mover
constexpr std::size_t kMaxFacts = std::size_t{1} << 20;

class Child {
 public:
  explicit Child(pid_t pid) : pid_(pid) {}
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  ~Child() {
    if (pid_ > 0) ::kill(pid_, SIGKILL);
    wait();
  }
  // Returns the program's wait status, or 0 if the program has already been reaped.
  int wait() {
    int status = 0;
    while (pid_ > 0 && ::waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
    }
    pid_ = 0;
    return status;
  }

 private:
  pid_t pid_;
};

Result<pid_t> start(const std::vector<std::string>& command, const std::vector<std::string>& additions,
                    int output) {
  std::vector<std::string> environment = environment_with(additions);
  std::vector<char*> argv;
  std::vector<char*> envp;
  for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
  for (std::string& entry : environment) envp.push_back(entry.data());
  argv.push_back(nullptr);
  envp.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
  pid_t pid = 0;
  const int failure = ::posix_spawn(&pid, argv[0], &actions, nullptr, argv.data(), envp.data());
  ::posix_spawn_file_actions_destroy(&actions);
  if (failure == ENOENT)
    return Error(ErrorCode::kNotFound,
                 "The program " + command[0] + " does not exist: build this program first");
  if (failure != 0) {
    errno = failure;
    return Error::from_errno("Starting " + command[0]);
  }
  return pid;
}

// Returns the bytes that arrive until the other end is closed.
Result<std::string> read_to_end(int fd, Clock::time_point deadline, const std::string& whose) {
  std::string text;
  std::array<char, 16384> room{};
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd item{fd, POLLIN, 0};
    if (left <= 0 || ::poll(&item, 1, static_cast<int>(left)) == 0)
      return Error(ErrorCode::kTimedOut, whose + " did not answer in time");
    const ssize_t got = ::read(fd, room.data(), room.size());
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Error::from_errno("Reading from " + whose);
    if (got == 0) return text;
    text.append(room.data(), static_cast<std::size_t>(got));
    if (text.size() > kMaxFacts) return Error(ErrorCode::kProtocol, whose + " printed more than 1 MiB");
  }
}

}  // namespace

Result<Json> ask_for_facts(const std::vector<std::string>& command, const std::vector<std::string>& additions,
                           std::chrono::milliseconds patience) {
  const Clock::time_point deadline = Clock::now() + patience;
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return Error::from_errno("Making a pipe");
  const UniqueFd mine(ends[0]);
  UniqueFd theirs(ends[1]);
  CKPT_TRY(pid, start(command, additions, theirs.get()));
  Child child(pid);
  theirs.reset();
  CKPT_TRY(text, read_to_end(mine.get(), deadline, command[0]));
  const int status = child.wait();
  Json facts = Json::parse(text, nullptr, false);
  if (status == 0 && facts.is_object()) return facts;
  return Error(ErrorCode::kIo, command[0] + (status == 0 ? " did not print a JSON object" : " failed"));
}

Json to_json(const Diagnosis& diagnosis) {
  Json abilities = Json::array();
  for (const Ability& ability : diagnosis.abilities) {
    abilities.push_back(
        {{"what", ability.what}, {"answer", name_of(ability.answer)}, {"missing", ability.missing}});
  }
  Json findings = Json::array();
  for (const Finding& finding : diagnosis.findings) {
    findings.push_back({{"what", finding.what},
                        {"answer", name_of(finding.answer)},
                        {"value", finding.value},
                        {"needed_for", finding.needed_for},
                        {"to_do", finding.answer == Answer::kYes ? Json(nullptr) : Json(finding.to_do)}});
  }
  return {{"node", diagnosis.node}, {"can", abilities}, {"findings", findings}};
}

int doctor(Context& context, const std::string& agent_config) {
  if (!agent_config.empty() && ::access(agent_config.c_str(), R_OK) != 0)
    return report(context, Error(ErrorCode::kInvalidArgument,
                                 "--agent-config: " + printable(agent_config) + ": " + std::strerror(errno)));
  const Result<std::string> programs = program_folder();
  if (!programs) return report(context, programs.error());
  std::vector<std::string> additions;
  const char* wish = std::getenv("GPUMIGRATE_SOFTWARE_GPU");
  if (wish != nullptr && std::string(wish) == "1") {
    const Result<GpuChoice> choice = choose_gpu(*programs);
    if (!choice) return report(context, choice.error());
    // Only the library path is used. The caller's environment sets the number of devices, which is one by
    // default.
    for (std::string& entry : gpu_environment(*choice, "", 1, "")) {
      if (entry.starts_with("LD_LIBRARY_PATH=")) additions.push_back(std::move(entry));
    }
  }
  std::vector<std::string> command = {*programs + "/gpumigrate-agent", "--probe"};
  if (!agent_config.empty()) command.insert(command.end(), {"--config", agent_config});
  const Result<Json> facts = ask_for_facts(command, additions, kPatience);
  if (!facts) return report(context, facts.error(), kFailed);
  const Diagnosis diagnosis = diagnose(*facts);
  if (context.json) {
    context.print(to_json(diagnosis));
  } else {
    context.out << to_text(diagnosis, context.layout()) << std::flush;
  }
  return kDone;
}

}  // namespace ckpt::cli
