// SPDX-License-Identifier: Apache-2.0
// Stands in for gpumigrate-mover. It passes its end of the agent's socketpair (descriptor 3) to the test,
// which plays the mover, through the socket that FAKE_MOVER names. Then it waits until the test sends the
// exit status, or disconnects.
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

namespace {

constexpr int kMoverEnd = 3;

int connect_to(const char* path) {
  const int socket = ::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path, sizeof address.sun_path - 1);
  if (::connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) return -1;
  return socket;
}

bool hand_over(int socket) {
  pid_t pid = ::getpid();
  iovec part{&pid, sizeof pid};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control;
  header.msg_controllen = sizeof control;
  cmsghdr* c = CMSG_FIRSTHDR(&header);
  c->cmsg_level = SOL_SOCKET;
  c->cmsg_type = SCM_RIGHTS;
  c->cmsg_len = CMSG_LEN(sizeof(int));
  std::memcpy(CMSG_DATA(c), &kMoverEnd, sizeof kMoverEnd);
  return ::sendmsg(socket, &header, MSG_NOSIGNAL) == static_cast<ssize_t>(sizeof pid);
}

}  // namespace

int main() {
  const char* path = std::getenv("FAKE_MOVER");
  const int socket = path == nullptr ? -1 : connect_to(path);
  if (socket < 0 || !hand_over(socket)) return 100;
  ::close(kMoverEnd);  // the test's copy is the mover's end now
  unsigned char status = 0;
  return ::recv(socket, &status, 1, 0) == 1 ? status : 101;
}
