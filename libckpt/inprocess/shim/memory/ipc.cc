// SPDX-License-Identifier: Apache-2.0
#include "libckpt/inprocess/shim/memory/ipc.h"

#include <pthread.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstddef>
#include <cstring>
#include <mutex>
#include <shared_mutex>
#include <thread>
#include <utility>

#include "libckpt/base/program_fd.h"
#include "libckpt/base/random.h"
#include "libckpt/inprocess/shim/core/gate.h"
#include "libckpt/inprocess/shim/core/job_state.h"
#include "libckpt/inprocess/shim/memory/state.h"

namespace ckpt::shim {
namespace {

constexpr int kPatience = 5;  // the seconds in which a peer must answer
constexpr int kBacklog = 64;

struct Answer {
  std::uint64_t bytes = 0;  // the size of the memory; 0 if there is no such memory
};

std::mutex server_mutex;
std::string server_name;
std::atomic<int> server_fd{-1};

sockaddr_un address_of(const std::string& name, socklen_t* length) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  *length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return address;
}

void set_patience(int fd) {
  const timeval limit{kPatience, 0};
  ::setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
  ::setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
}

bool is_same_user(int fd) {
  ucred peer{};
  socklen_t length = sizeof peer;
  return ::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &length) == 0 && peer.uid == ::geteuid();
}

struct Question {
  std::uint64_t region = 0;
  std::uint64_t offset = 0;  // the allocation's offset in the memory
};

// Returns whether the allocation is still the one for which a handle was made.
bool is_handed_out(const Question& question) {
  MemoryState& state = shim_memory().state();
  const std::shared_lock lock(state.mutex);
  const Region* region = state.regions.find(question.region);
  if (region == nullptr || region->mappings.empty()) return false;
  const auto block = state.blocks.find(region->mappings.begin()->first + question.offset);
  return block != state.blocks.end() && block->second.handed_out != nullptr;
}

std::uint64_t bytes_of(std::uint64_t id) {
  for (const RegionInfo& info : shim_memory().regions()) {
    if (info.id == id) return info.bytes;
  }
  return 0;
}

bool send_answer(int connection, const Answer& answer, int fd) {
  iovec data{const_cast<Answer*>(&answer), sizeof answer};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  if (fd >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
  }
  return ::sendmsg(connection, &message, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof answer);
}

void serve_one(int connection) {
  set_patience(connection);
  Question question;
  if (!is_same_user(connection) ||
      ::recv(connection, &question, sizeof question, 0) != static_cast<ssize_t>(sizeof question)) {
    return;
  }
  const GateScope inside("cuIpcOpenMemHandle of another process");
  Answer answer;
  UniqueFd fd;
  if (is_handed_out(question)) {
    Result<UniqueFd> exported = shim_memory().export_region(question.region);
    if (exported.has_value()) {
      fd = *std::move(exported);
      answer.bytes = bytes_of(question.region);
    }
  }
  send_answer(connection, answer, answer.bytes != 0 ? fd.get() : -1);
}

void serve(int listener) {
  while (true) {
    const UniqueFd connection(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
    if (connection) {
      serve_one(connection.get());
    } else if (errno != EINTR && errno != ECONNABORTED && errno != EMFILE && errno != ENFILE) {
      return;
    }
  }
}

void forget_server() {
  const int fd = server_fd.exchange(-1);
  if (fd >= 0) ::close(fd);
}

Result<std::string> start_server() {
  CKPT_TRY(random, random_hex(10));
  const std::string name = "gpumigrate-" + random;
  UniqueFd listener = move_beyond_program(UniqueFd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)));
  if (!listener) return Error::from_errno("Cannot create a socket for CUDA IPC");
  socklen_t length = 0;
  const sockaddr_un address = address_of(name, &length);
  if (::bind(listener.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0 ||
      ::listen(listener.get(), kBacklog) != 0) {
    return Error::from_errno("Cannot listen for CUDA IPC");
  }
  const int fd = listener.release();
  server_fd.store(fd);
  at_fork_child(forget_server);
  sigset_t all;
  sigset_t former;
  ::sigfillset(&all);
  ::pthread_sigmask(SIG_SETMASK, &all, &former);
  std::thread(serve, fd).detach();
  ::pthread_sigmask(SIG_SETMASK, &former, nullptr);
  return name;
}

// Returns the descriptor of a message, if the message has exactly one.
UniqueFd descriptor_of(msghdr& message) {
  UniqueFd fd;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr; header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    int received = -1;
    std::memcpy(&received, CMSG_DATA(header), sizeof received);
    fd.reset(received);
  }
  return fd;
}

}  // namespace

Result<std::string> ipc_server_name() {
  const std::lock_guard lock(server_mutex);
  if (server_name.empty()) {
    CKPT_TRY(name, start_server());
    server_name = name;
  }
  return server_name;
}

Result<IpcMemory> fetch_ipc_memory(const IpcName& name) {
  const UniqueFd connection(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!connection) return Error::from_errno("Cannot create a socket for CUDA IPC");
  set_patience(connection.get());
  socklen_t length = 0;
  const sockaddr_un address = address_of({name.socket, ::strnlen(name.socket, sizeof name.socket)}, &length);
  const Question question{name.region, name.offset};
  if (::connect(connection.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0 ||
      !is_same_user(connection.get()) ||
      ::send(connection.get(), &question, sizeof question, MSG_NOSIGNAL) < 0) {
    return Error::from_errno("Cannot reach the process that shares its device memory");
  }
  Answer answer;
  iovec data{&answer, sizeof answer};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  const ssize_t received = ::recvmsg(connection.get(), &message, MSG_CMSG_CLOEXEC);
  IpcMemory memory{descriptor_of(message), answer.bytes};
  if (received != static_cast<ssize_t>(sizeof answer) || !memory.fd || memory.bytes == 0) {
    return Error(ErrorCode::kNotFound, "The memory that another process shared no longer exists");
  }
  return memory;
}

}  // namespace ckpt::shim
