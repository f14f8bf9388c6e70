// SPDX-License-Identifier: Apache-2.0
#include "agent/keeper/io/peer.h"

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <utility>

namespace ckpt::keeper {
namespace {

#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

}  // namespace

bool Peer::has_ended() const {
  int number = -1;
  socklen_t size = sizeof number;
  if (::getsockopt(socket_.fd(), SOL_SOCKET, SO_PEERPIDFD, &number, &size) != 0)
    return errno != ENOPROTOOPT;  // ENOPROTOOPT means that the kernel lacks the option; other errors mean
                                  // that the process was already reaped
  const UniqueFd process(number);
  pollfd ended{process.get(), POLLIN, 0};
  return ::poll(&ended, 1, 0) != 0;
}

Result<void> Peer::send(const local::Message& message, std::vector<UniqueFd> descriptors) {
  CKPT_TRY(bytes, local::encode(message));
  queue_.push_back({std::move(bytes), std::move(descriptors)});
  return flush();
}

Result<void> Peer::flush() {
  while (!queue_.empty()) {
    const Outgoing& next = queue_.front();
    std::vector<int> numbers;
    for (const UniqueFd& fd : next.descriptors) numbers.push_back(fd.get());
    CKPT_TRY(transfer, socket_.send_bytes(next.bytes, numbers));
    if (transfer == local::Transfer::kNothing) return ok();
    queue_.pop_front();
  }
  return ok();
}

}  // namespace ckpt::keeper
