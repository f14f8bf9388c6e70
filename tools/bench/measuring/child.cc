// SPDX-License-Identifier: Apache-2.0
#include "tools/bench/measuring/child.h"

#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <vector>

#include "tools/bench/measuring/child_roles.h"

namespace ckpt::bench {
namespace {

constexpr int kSocketFd = 3;
constexpr std::size_t kMaxMessageBytes = 64 << 10;

using Role = Result<void> (*)(Link&);
struct NamedRole {
  const char* name;
  Role run;
};
constexpr NamedRole kRoles[] = {
#define BENCH_ROLE(name, function) {name, &function},
#include "tools/bench/measuring/child_roles.def"
#undef BENCH_ROLE
    {nullptr, nullptr},
};

Error not_a_message(const std::string& what) {
  return Error(ErrorCode::kProtocol, "The bench's other process sent " + what);
}

}  // namespace

Result<void> Link::send(const nlohmann::json& message) const {
  const std::string text = message.dump();
  if (::send(socket_.get(), text.data(), text.size(), MSG_NOSIGNAL) < 0)
    return Error::from_errno("Cannot send to the bench's other process");
  return ok();
}

Result<nlohmann::json> Link::receive() const {
  std::vector<char> buffer(kMaxMessageBytes);
  ssize_t got = 0;
  do {
    got = ::recv(socket_.get(), buffer.data(), buffer.size(), 0);
  } while (got < 0 && errno == EINTR);
  if (got < 0) return Error::from_errno("Cannot receive from the bench's other process");
  if (got == 0) return Error(ErrorCode::kUnavailable, "The bench's other process has exited");
  const auto message = nlohmann::json::parse(buffer.data(), buffer.data() + got, nullptr, false);
  if (!message.is_object()) return not_a_message("no JSON object");
  if (const auto error = message.find("error"); error != message.end() && error->is_string())
    return Error(ErrorCode::kAborted, "The bench's other process: " + error->get<std::string>());
  return message;
}

Result<std::unique_ptr<Child>> Child::start(const std::string& program, const std::string& role) {
  int ends[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    return Error::from_errno("socketpair");
  UniqueFd ours(ends[0]);
  const UniqueFd theirs(ends[1]);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  // If the descriptor is already 3, a duplication onto 3 would keep its close-on-exec flag. So it is
  // duplicated through another number.
  ::posix_spawn_file_actions_adddup2(&actions, theirs.get(), 100);
  ::posix_spawn_file_actions_adddup2(&actions, 100, kSocketFd);
  ::posix_spawn_file_actions_addclose(&actions, 100);
  std::string words[] = {program, std::string(kChildCommand), role};
  char* const argv[] = {words[0].data(), words[1].data(), words[2].data(), nullptr};
  pid_t pid = -1;
  const int failed = ::posix_spawn(&pid, program.c_str(), &actions, nullptr, argv, environ);
  ::posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) return Error::from_errno(failed, "Starting " + program);
  return std::unique_ptr<Child>(new Child(std::move(ours), pid));
}

Child::~Child() {
  if (pid_ < 0) return;
  link_.close();
  ::kill(pid_, SIGKILL);
  ::waitpid(pid_, nullptr, 0);
}

Result<nlohmann::json> Child::ask(const nlohmann::json& message) const {
  CKPT_TRYV(link_.send(message));
  return link_.receive();
}

Result<void> Child::finish() {
  link_.close();
  int status = 0;
  while (::waitpid(pid_, &status, 0) < 0)
    if (errno != EINTR) return Error::from_errno("Cannot wait for the bench's other process");
  pid_ = -1;
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return ok();
  return Error(ErrorCode::kAborted, "The bench's other process failed");
}

int run_child(int argc, char** argv) {
  Link link{UniqueFd(kSocketFd)};
  const std::string_view wanted = argc > 2 ? argv[2] : "";
  for (const NamedRole& role : kRoles) {
    if (role.name == nullptr || wanted != role.name) continue;
    const Result<void> done = role.run(link);
    if (done) return 0;
    if (done.error().code() == ErrorCode::kUnavailable) return 0;  // the parent has no more requests
    (void)link.send({{"error", done.error().to_string()}});
    return 1;
  }
  std::fprintf(stderr, "gpumigrate-bench: %s is for internal use by the bench only\n",
               std::string(kChildCommand).c_str());
  return 64;
}

Result<std::uint64_t> number_of(const nlohmann::json& message, const char* field) {
  const auto found = message.find(field);
  if (found == message.end() || !found->is_number_unsigned())
    return not_a_message(std::string("no number ") + field);
  return found->get<std::uint64_t>();
}

Result<std::string> text_of(const nlohmann::json& message, const char* field) {
  const auto found = message.find(field);
  if (found == message.end() || !found->is_string()) return not_a_message(std::string("no text ") + field);
  return found->get<std::string>();
}

}  // namespace ckpt::bench
