// SPDX-License-Identifier: Apache-2.0
#include "agent/keeper/lazy_pages/restoring_criu.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace ckpt::lazy_pages {
namespace {

constexpr std::int32_t kFinished = 0x52535446;  // the bytes "RSTF"; no process has this id

Result<void> wait_for_input(int fd, Nanos deadline) {
  for (;;) {
    const Nanos left = deadline - now_ns();
    pollfd ready{fd, POLLIN, 0};
    const int found = ::poll(&ready, 1, static_cast<int>(std::max<Nanos>(left, 0) / kNanosPerMs));
    if (found > 0) return ok();
    if (found == 0) return Error(ErrorCode::kTimedOut, "CRIU's restore sent no data in time");
    if (errno != EINTR) return Error::from_errno("Cannot wait for CRIU's restore");
  }
}

}  // namespace

Result<UniqueFd> listen_for_criu() {
  UniqueFd listener(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strcpy(address.sun_path, kSocketName);
  ::unlink(kSocketName);
  if (!listener || ::bind(listener.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0 ||
      ::listen(listener.get(), 1) != 0)
    return Error::from_errno(std::string("Cannot listen on ") + kSocketName);
  return listener;
}

Result<RestoringCriu> RestoringCriu::accept(int listener, Nanos deadline) {
  CKPT_TRYV(wait_for_input(listener, deadline));
  UniqueFd connection(::accept4(listener, nullptr, nullptr, SOCK_CLOEXEC));
  if (!connection) return Error::from_errno("Cannot accept the connection of CRIU's restore");
  return RestoringCriu(std::move(connection), deadline);
}

Result<std::optional<RestoringCriu::Process>> RestoringCriu::next() {
  std::int32_t id = 0;  // id of a process; negative if the process has exited
  if (::recv(connection_.get(), &id, sizeof id, MSG_WAITALL) != sizeof id)
    return Error(ErrorCode::kProtocol, "CRIU's restore ended before all processes were restored");
  if (id == kFinished) return std::optional<Process>();
  Process process;
  process.id = static_cast<std::uint32_t>(id < 0 ? -id : id);
  if (id < 0) return std::optional(std::move(process));
  CKPT_TRYV(wait_for_input(connection_.get(), deadline_));
  char byte = 0;
  iovec content{&byte, 1};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &content;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  const ssize_t got = ::recvmsg(connection_.get(), &message, MSG_CMSG_CLOEXEC);
  const cmsghdr* const head = got > 0 ? CMSG_FIRSTHDR(&message) : nullptr;
  if (head == nullptr || head->cmsg_type != SCM_RIGHTS || head->cmsg_len != CMSG_LEN(sizeof(int)))
    return Error(ErrorCode::kProtocol, "CRIU's restore sent no descriptor for a process");
  int number = -1;
  std::memcpy(&number, CMSG_DATA(head), sizeof number);
  process.faults.reset(number);
  return std::optional(std::move(process));
}

}  // namespace ckpt::lazy_pages
