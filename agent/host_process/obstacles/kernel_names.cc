// SPDX-License-Identifier: Apache-2.0
#include "agent/host_process/obstacles/kernel_names.h"

#include <fcntl.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/sem.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <map>
#include <sstream>

#include "agent/host_process/processes/process_tree.h"
#include "libckpt/base/fd.h"

namespace ckpt::agent::host {
namespace {

using ObjectKind = SystemVObject::Kind;
using std::chrono::steady_clock;

constexpr std::size_t kMaxObjectsText = 16u << 20;
constexpr std::chrono::seconds kLongestLook{2};
constexpr int kMaxSemaphores = 4096;  // maximum number of semaphores that are read of one set

struct ObjectTable {
  ObjectKind kind;
  const char* name;  // name of the table in /proc/sysvipc
};
constexpr std::array<ObjectTable, 3> kObjectTables = {
    {{ObjectKind::kMemory, "shm"}, {ObjectKind::kSemaphores, "sem"}, {ObjectKind::kQueue, "msg"}}};

using ObjectKey = std::pair<ObjectKind, int>;
using Users = std::map<ObjectKey, std::set<pid_t>>;  // processes that have created or used an object; values
                                                     // of 0 and below are not processes

// Reads the objects of a table. The heading's names identify the columns, because the columns differ between
// kernels.
void read_objects(ObjectKind kind, const std::string& text, std::vector<SystemVObject>& objects,
                  Users& users) {
  std::istringstream lines(text);
  std::string line;
  std::getline(lines, line);
  std::vector<std::string> names;
  std::istringstream heading(line);
  for (std::string name; heading >> name;) names.push_back(std::move(name));
  while (std::getline(lines, line)) {
    SystemVObject object;
    object.kind = kind;
    std::istringstream words(line);
    std::set<pid_t> pids;
    std::string word;
    for (std::size_t i = 0; i < names.size() && words >> word; ++i) {
      const long long value = std::atoll(word.c_str());
      if (names[i] == "key") object.key = static_cast<long>(value);
      if (names[i].ends_with("id") && i == 1) object.id = static_cast<int>(value);
      if (names[i] == "cuid") object.uid = static_cast<uid_t>(value);
      if (names[i] == "ctime") object.changed_unix_s = value;
      if (names[i] == "nsems") object.semaphores = static_cast<int>(value);
      if (names[i] == "cpid" || names[i] == "lpid" || names[i] == "lspid" || names[i] == "lrpid")
        pids.insert(static_cast<pid_t>(value));
    }
    users[{kind, object.id}].merge(pids);
    objects.push_back(object);
  }
}

void ask_semaphores(const std::vector<SystemVObject>& objects, Users& users) {
  for (const SystemVObject& object : objects) {
    if (object.kind != ObjectKind::kSemaphores) continue;
    for (int i = 0; i < std::min(object.semaphores, kMaxSemaphores); ++i)
      users[{ObjectKind::kSemaphores, object.id}].insert(::semctl(object.id, i, GETPID));
  }
}

bool has_user(const std::set<pid_t>& pids) {
  return std::any_of(pids.begin(), pids.end(), [](pid_t pid) { return pid > 0; });
}

// Runs after the fork, so the function calls only async-signal-safe functions. Writes a number for each
// semaphore set, then the tables as this PID namespace sees them. A zero byte ends each table. A positive
// number for a semaphore set means that a process of the
// namespace has used it last.
[[noreturn]] void report_from_within(int to, const std::vector<SystemVObject>& objects) {
  const auto write_all_of = [to](const void* bytes, std::size_t count) {
    const char* at = static_cast<const char*>(bytes);
    while (count > 0) {
      const ssize_t done = ::write(to, at, count);
      if (done <= 0) ::_exit(1);
      at += done;
      count -= static_cast<std::size_t>(done);
    }
  };
  const auto fs = static_cast<int>(::syscall(SYS_fsopen, "proc", FSOPEN_CLOEXEC));
  if (fs < 0 || ::syscall(SYS_fsconfig, fs, FSCONFIG_CMD_CREATE, nullptr, nullptr, 0) != 0) ::_exit(1);
  const auto proc = static_cast<int>(::syscall(SYS_fsmount, fs, FSMOUNT_CLOEXEC, 0));
  if (proc < 0) ::_exit(1);
  for (const SystemVObject& object : objects) {
    if (object.kind != ObjectKind::kSemaphores) continue;
    std::int32_t user = 0;
    for (int i = 0; i < std::min(object.semaphores, kMaxSemaphores) && user <= 0; ++i)
      user = ::semctl(object.id, i, GETPID);
    write_all_of(&user, sizeof user);
  }
  for (const char* path : {"sysvipc/shm", "sysvipc/msg"}) {
    const int table = ::openat(proc, path, O_RDONLY | O_CLOEXEC);
    char part[4096];
    for (ssize_t got = 0; table >= 0 && (got = ::read(table, part, sizeof part)) > 0;)
      write_all_of(part, static_cast<std::size_t>(got));
    write_all_of("\0", 1);
  }
  ::_exit(0);
}

// Starts a child process, which starts its own child in the PID namespace `space`. The second child writes
// its report to `to`. The first child exits after the second child has exited.
pid_t start_look(int space, int to, const std::vector<SystemVObject>& objects) {
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child != 0) return child;
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent || ::setns(space, CLONE_NEWPID) != 0) ::_exit(1);
  const pid_t within = ::fork();
  if (within < 0) ::_exit(1);
  if (within == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    report_from_within(to, objects);
  }
  ::close(to);
  int status = 0;
  while (::waitpid(within, &status, 0) < 0 && errno == EINTR) {
  }
  ::_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 1);
}

std::string read_until(int from, steady_clock::time_point deadline) {
  std::string text;
  std::array<char, 4096> part{};
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - steady_clock::now());
    pollfd ready{from, POLLIN, 0};
    if (left.count() <= 0 || ::poll(&ready, 1, static_cast<int>(left.count())) <= 0) return text;
    const ssize_t got = ::read(from, part.data(), part.size());
    if (got <= 0 || text.size() > kMaxObjectsText) return text;
    text.append(part.data(), static_cast<std::size_t>(got));
  }
}

// Waits until the child process has exited, and kills it at the deadline. The child process exits after it
// has reaped its own child. An unreaped child would stay in the namespace and prevent the exit of the
// namespace's init.
void await_look(pid_t child, steady_clock::time_point deadline) {
  const UniqueFd ended(static_cast<int>(::syscall(SYS_pidfd_open, child, 0)));
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - steady_clock::now());
  pollfd ready{ended.get(), POLLIN, 0};
  const int wait_ms = std::max(0, static_cast<int>(left.count()));
  if (!ended || ::poll(&ready, 1, wait_ms) <= 0) ::kill(child, SIGKILL);
  while (::waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
}

// Returns the users of the objects by their process ids in the PID namespace of `root`.
Users users_within(pid_t root, const std::vector<SystemVObject>& objects) {
  Users users;
  const UniqueFd space(::open(proc_path(root, "/ns/pid").c_str(), O_RDONLY | O_CLOEXEC));
  int ends[2];
  if (!space || ::pipe2(ends, O_CLOEXEC) != 0) return users;
  const UniqueFd from(ends[0]);
  UniqueFd to(ends[1]);
  const pid_t child = start_look(space.get(), to.get(), objects);
  to.reset();
  if (child < 0) return users;
  const auto deadline = steady_clock::now() + kLongestLook;
  const std::string text = read_until(from.get(), deadline);
  await_look(child, deadline);
  std::size_t at = 0;
  for (const SystemVObject& object : objects) {
    std::int32_t user = 0;
    if (object.kind != ObjectKind::kSemaphores) continue;
    if (text.size() < at + sizeof user) return users;
    std::copy_n(text.data() + at, sizeof user, reinterpret_cast<char*>(&user));
    users[{object.kind, object.id}].insert(user);
    at += sizeof user;
  }
  std::vector<SystemVObject> same;
  const std::size_t end = text.find('\0', at);
  if (end == std::string::npos) return users;
  read_objects(ObjectKind::kMemory, text.substr(at, end - at), same, users);
  read_objects(ObjectKind::kQueue, text.substr(end + 1), same, users);
  return users;
}

Users users_in(const std::set<pid_t>& tree, const Users& all) {
  Users users;
  for (const auto& [key, pids] : all) {
    for (const pid_t pid : pids) {
      if (tree.contains(pid)) users[key].insert(pid);
    }
  }
  return users;
}

std::string object_text(const SystemVObject& object) {
  const char* what = "shared memory";
  const char* option = "-m ";
  if (object.kind == ObjectKind::kSemaphores) what = "semaphores", option = "-s ";
  if (object.kind == ObjectKind::kQueue) what = "message queue", option = "-q ";
  return std::string("System V ") + what + " " + std::to_string(object.id) + " of the job " +
         (object.is_used ? "" : "(created after the job's start, and not used by any process) ") +
         "would be lost in a move: let the program remove it before the move (ipcrm " + option +
         std::to_string(object.id) + ")";
}

}  // namespace

bool is_of_job(const SystemVObject& object, const NameOwner& owner) {
  if (object.is_used_by_job) return true;
  return !object.is_used && owner.is_alone && owner.since_unix_ms != kNeverMs && object.uid == owner.uid &&
         object.changed_unix_s >= owner.since_unix_ms / 1000;
}

std::vector<std::string> system_v_of(const NameOwner& owner, const std::set<int>& mapped) {
  std::vector<SystemVObject> objects;
  Users users;
  for (const ObjectTable& table : kObjectTables) {
    const auto text = read_file(std::string("/proc/sysvipc/") + table.name, kMaxObjectsText);
    if (text.has_value()) read_objects(table.kind, *text, objects, users);
  }
  std::vector<std::string> found;
  if (objects.empty()) return found;
  ask_semaphores(objects, users);
  Users own =
      has_own_pid_namespace(owner.root) ? users_within(owner.root, objects) : users_in(owner.tree, users);
  for (SystemVObject& object : objects) {
    const ObjectKey key{object.kind, object.id};
    object.is_used = has_user(users[key]);
    object.is_used_by_job = has_user(own[key]);
    const bool is_mapped = object.kind == ObjectKind::kMemory && mapped.contains(object.id);
    if (!is_mapped && is_of_job(object, owner)) found.push_back(object_text(object));
  }
  return found;
}

}  // namespace ckpt::agent::host
