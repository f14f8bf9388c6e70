// SPDX-License-Identifier: Apache-2.0
// Movers as separate processes, which run the test's program with other arguments, and the lines between
// them.
#pragma once

#include <fcntl.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "libckpt/base/fd.h"
#include "libckpt/datapath/transport/transport.h"

extern char** environ;

namespace ckpt::transport {

// Returns the address of an RDMA device for its tests; null if these tests are not requested.
inline const char* rdma_address() {
  return std::getenv("GPUMIGRATE_TEST_RDMA");
}

// Creates a transport between processes: "ucx", "tls" or "rdma".
inline Result<std::unique_ptr<Transport>> make_transport(const std::string& name) {
  if (name == "rdma") return make_ucx_transport({.ip = rdma_address(), .rdma = true});
  return name == "tls" ? make_tls_transport({}) : make_ucx_transport({});
}

inline bool write_line(int fd, const std::string& text) {
  const std::string line = text + "\n";
  return ::send(fd, line.data(), line.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(line.size());
}

// Reads a line; returns nothing once the other end is closed.
inline std::optional<std::string> read_line(int fd) {
  std::string line;
  for (char c = 0; ::read(fd, &c, 1) == 1;) {
    if (c == '\n') return line;
    line += c;
  }
  return std::nullopt;
}

// Creates the two ends of a line. Only a process that receives an end by its number inherits that end.
inline std::pair<UniqueFd, UniqueFd> make_line() {
  int pair[2] = {-1, -1};
  (void)::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair);
  return {UniqueFd(pair[0]), UniqueFd(pair[1])};
}

// Starts this program with other arguments. The new process inherits the descriptors under their numbers,
// which follow the arguments. Returns -1 if the process could not be started.
inline pid_t spawn_again(std::vector<std::string> words, const std::vector<UniqueFd>& descriptors) {
  words.insert(words.begin(), "/proc/self/exe");
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  for (const UniqueFd& fd : descriptors) {
    words.push_back(std::to_string(fd.get()));
    ::posix_spawn_file_actions_adddup2(&actions, fd.get(), fd.get());  // the copy is not close-on-exec
  }
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  pid_t child = -1;
  if (::posix_spawn(&child, "/proc/self/exe", &actions, nullptr, arguments.data(), environ) != 0) child = -1;
  ::posix_spawn_file_actions_destroy(&actions);
  return child;
}

// Returns the process's exit status or signal as text; an empty text means success.
inline std::string end_of(pid_t child) {
  int status = 0;
  if (child <= 0 || ::waitpid(child, &status, 0) != child) return "was not started";
  if (WIFSIGNALED(status)) return "ended by signal " + std::to_string(WTERMSIG(status));
  return WEXITSTATUS(status) == 0 ? "" : "exited " + std::to_string(WEXITSTATUS(status));
}

}  // namespace ckpt::transport
