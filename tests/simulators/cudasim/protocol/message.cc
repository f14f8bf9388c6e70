// SPDX-License-Identifier: Apache-2.0
#include "tests/simulators/cudasim/protocol/message.h"

#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace cudasim {

bool send_message(int socket, const void* message, std::size_t bytes, int fd) {
  iovec part{const_cast<void*>(message), bytes};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  if (fd >= 0) {
    header.msg_control = control;
    header.msg_controllen = sizeof control;
    cmsghdr* item = CMSG_FIRSTHDR(&header);
    item->cmsg_level = SOL_SOCKET;
    item->cmsg_type = SCM_RIGHTS;
    item->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(item), &fd, sizeof fd);
  }
  ssize_t sent;
  do {
    sent = ::sendmsg(socket, &header, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  return sent == static_cast<ssize_t>(bytes);
}

bool receive_message(int socket, void* message, std::size_t bytes, int* fd) {
  *fd = -1;
  iovec part{message, bytes};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control;
  header.msg_controllen = sizeof control;
  ssize_t got;
  do {
    got = ::recvmsg(socket, &header, MSG_CMSG_CLOEXEC);
  } while (got < 0 && errno == EINTR);
  for (cmsghdr* item = CMSG_FIRSTHDR(&header); item != nullptr && got > 0;
       item = CMSG_NXTHDR(&header, item)) {
    if (item->cmsg_level == SOL_SOCKET && item->cmsg_type == SCM_RIGHTS)
      std::memcpy(fd, CMSG_DATA(item), sizeof *fd);
  }
  if (got == static_cast<ssize_t>(bytes)) return true;
  if (*fd >= 0) ::close(*fd);
  *fd = -1;
  return false;
}

}  // namespace cudasim
