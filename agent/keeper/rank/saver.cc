// SPDX-License-Identifier: Apache-2.0
#include "agent/keeper/rank/saver.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <spawn.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdlib>

#include "libckpt/base/fd.h"

namespace ckpt::keeper {
namespace {

constexpr std::size_t kMaxStatusBytes = 64 << 10;

// Makes later children of this process start in its own PID namespace. The driver receives the process id in
// this namespace.
Result<void> stay_in_own_pid_namespace() {
  const UniqueFd own(::open("/proc/self/ns/pid", O_RDONLY | O_CLOEXEC));
  if (!own) return Error::from_errno("Cannot open this keeper's PID namespace");
  if (::setns(own.get(), CLONE_NEWPID) == 0) return ok();
  return Error(ErrorCode::kNotSupported, ErrorDomain::kErrno, errno,
               "A keeper that is not root cannot start a program outside its job's PID namespace");
}

bool children_are_elsewhere() {
  char own[64] = {};
  char of_children[64] = {};
  return ::readlink("/proc/self/ns/pid", own, sizeof own - 1) > 0 &&
         ::readlink("/proc/self/ns/pid_for_children", of_children, sizeof of_children - 1) > 0 &&
         std::string(own) != of_children;
}

}  // namespace

Result<pid_t> start_saver(const std::string& program, pid_t rank) {
  if (children_are_elsewhere()) {
    CKPT_TRYV(stay_in_own_pid_namespace());
  }
  const std::string number = std::to_string(rank);
  const char* const argv[] = {program.c_str(), "--save", number.c_str(), nullptr};
  sigset_t none;
  sigemptyset(&none);
  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
  ::posix_spawnattr_setsigmask(&attributes, &none);
  pid_t saver = 0;
  const int error =
      ::posix_spawn(&saver, program.c_str(), nullptr, &attributes, const_cast<char* const*>(argv), environ);
  ::posix_spawnattr_destroy(&attributes);
  if (error != 0) return Error(ErrorCode::kIo, ErrorDomain::kErrno, error, "Cannot start " + program);
  return saver;
}

bool withstands(pid_t pid, int signal) {
  const Result<std::string> status = read_file("/proc/" + std::to_string(pid) + "/status", kMaxStatusBytes);
  if (!status.has_value()) return false;
  for (const char* set : {"\nSigCgt:", "\nSigIgn:", "\nSigBlk:"}) {
    const std::size_t at = status->find(set);
    if (at == std::string::npos) continue;
    const std::uint64_t signals = std::strtoull(status->c_str() + at + 8, nullptr, 16);
    if ((signals >> (signal - 1) & 1) != 0) return true;
  }
  return false;
}

}  // namespace ckpt::keeper
