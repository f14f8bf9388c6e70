// SPDX-License-Identifier: Apache-2.0
#include "libckpt/inprocess/local/socket.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <utility>

#include "libckpt/base/program_fd.h"

namespace ckpt::local {
namespace {

constexpr int kBacklog = 16;
constexpr std::size_t kMaxPathBytes = 4096;

// The address of a socket at `path`. It goes through the folder's descriptor if the path is longer than
// sun_path; `folder` must exist as long as the address.
struct Address {
  sockaddr_un bytes{};
  socklen_t length = sizeof(sockaddr_un);
  UniqueFd folder;
};

bool is_abstract(const std::string& path) {
  return path.starts_with('@');
}

Result<Address> make_address(const std::string& path) {
  Address address;
  address.bytes.sun_family = AF_UNIX;
  if (is_abstract(path)) {
    if (path.size() >= sizeof address.bytes.sun_path)
      return Error(ErrorCode::kInvalidArgument, "The name of a socket is too long: " + path);
    path.copy(address.bytes.sun_path + 1, path.size() - 1, 1);
    address.length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + path.size());
    return address;
  }
  std::string name = path;
  if (path.empty() || path.size() > kMaxPathBytes) {
    return Error(ErrorCode::kInvalidArgument, "A socket's path must have 1 to 4096 bytes");
  }
  if (path.size() >= sizeof address.bytes.sun_path) {
    const auto slash = path.rfind('/');
    if (slash == std::string::npos)
      return Error(ErrorCode::kInvalidArgument, "The name of a socket is too long: " + path);
    const std::string folder = path.substr(0, slash == 0 ? 1 : slash);
    address.folder.reset(::open(folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (!address.folder) return Error::from_errno("Opening folder " + folder);
    name = "/proc/self/fd/" + std::to_string(address.folder.get()) + "/" + path.substr(slash + 1);
    if (name.size() >= sizeof address.bytes.sun_path) {
      return Error(ErrorCode::kInvalidArgument, "The name of a socket is too long: " + path);
    }
  }
  name.copy(address.bytes.sun_path, name.size());
  return address;
}

Result<UniqueFd> make_socket(int flags) {
  UniqueFd fd(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | flags, 0));
  if (!fd) return Error::from_errno("Cannot create a Unix socket");
  return fd;
}

// Returns whether this user may connect to a listener of this process.
bool may_connect(uid_t peer) {
  return peer == 0 || peer == ::geteuid();
}

// Returns true if this process trusts a listener of this user: its own user's and root's. Root trusts every
// user's, because root manages the processes of every user.
bool may_serve(uid_t peer) {
  return may_connect(peer) || ::geteuid() == 0;
}

// Takes the descriptors out of every control message, so that none leaks after any other error. Returns false
// if a control message was of a different kind.
bool collect_descriptors(msghdr& header, std::vector<UniqueFd>& out) {
  bool clean = true;
  for (cmsghdr* part = CMSG_FIRSTHDR(&header); part != nullptr; part = CMSG_NXTHDR(&header, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) {
      clean = false;
      continue;
    }
    const std::size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(part) + i * sizeof(int), sizeof fd);
      out.emplace_back(fd);
    }
  }
  return clean;
}

}  // namespace

Result<Socket> Socket::connect(const std::string& path) {
  CKPT_TRY(fd, make_socket(0));
  return connect_with(path, move_beyond_program(std::move(fd)));
}

Result<Socket> Socket::connect_at_once(const std::string& path) {
  CKPT_TRY(fd, make_socket(SOCK_NONBLOCK));
  CKPT_TRY(socket, connect_with(path, std::move(fd)));
  CKPT_TRYV(socket.set_blocking(true));
  return std::move(socket);
}

Result<Socket> Socket::connect_with(const std::string& path, UniqueFd fd) {
  CKPT_TRY(address, make_address(path));
  const auto* generic = reinterpret_cast<const sockaddr*>(&address.bytes);
  while (::connect(fd.get(), generic, address.length) != 0) {
    if (errno == EAGAIN)
      return Error(ErrorCode::kUnavailable, "Too many connections to " + path + " wait to be accepted");
    if (errno != EINTR) return Error::from_errno("Connecting to " + path);
  }
  Socket socket(std::move(fd));
  CKPT_TRY(who, socket.peer());
  if (!may_serve(who.uid)) {
    return Error(ErrorCode::kRefused,
                 path + " belongs to user " + std::to_string(who.uid) + ", not to this user");
  }
  return socket;
}

Result<std::pair<Socket, Socket>> Socket::pair() {
  int fds[2];
  if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds) != 0)
    return Error::from_errno("Cannot create a socket pair");
  return std::pair(Socket(UniqueFd(fds[0])), Socket(UniqueFd(fds[1])));
}

Result<void> Socket::set_blocking(bool blocking) {
  const int flags = ::fcntl(fd_.get(), F_GETFL);
  if (flags < 0 || ::fcntl(fd_.get(), F_SETFL, blocking ? flags & ~O_NONBLOCK : flags | O_NONBLOCK) != 0) {
    return Error::from_errno("Cannot set a socket's mode");
  }
  return ok();
}

Result<Transfer> Socket::send(const Message& message, std::span<const int> descriptors) {
  CKPT_TRY(bytes, encode(message));
  return send_bytes(bytes, descriptors);
}

Result<Transfer> Socket::send_bytes(std::span<const std::byte> bytes, std::span<const int> descriptors) {
  if (descriptors.size() > kMaxDescriptors || bytes.size() > kMaxMessageBytes) {
    return Error(ErrorCode::kInvalidArgument, "A local message can have at most 64 descriptors and 64 KiB");
  }
  iovec part{const_cast<std::byte*>(bytes.data()), bytes.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kMaxDescriptors * sizeof(int))> control{};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  if (!descriptors.empty()) {
    header.msg_control = control.data();
    header.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
    cmsghdr* rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(descriptors.size_bytes());
    std::memcpy(CMSG_DATA(rights), descriptors.data(), descriptors.size_bytes());
  }
  for (;;) {
    if (::sendmsg(fd_.get(), &header, MSG_NOSIGNAL) >= 0) return Transfer::kDone;
    if (errno == EINTR) continue;
    if (errno == EAGAIN) return Transfer::kNothing;
    return Error::from_errno("Cannot send a local message of " + std::to_string(bytes.size()) + " bytes");
  }
}

Result<Received> Socket::receive() {
  if (!buffer_) buffer_ = std::make_unique<std::array<std::byte, kMaxMessageBytes>>();
  std::array<std::byte, kMaxMessageBytes>& buffer = *buffer_;
  // Has space for one descriptor more than allowed. A surplus descriptor is then detected and not silently
  // truncated.
  alignas(cmsghdr) std::array<char, CMSG_SPACE((kMaxDescriptors + 1) * sizeof(int))> control{};
  iovec part{buffer.data(), buffer.size()};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control.data();
  header.msg_controllen = control.size();
  ssize_t got = 0;
  do {
    // ECONNRESET: the peer closed before it had read everything that was sent to it. The error is reported
    // once, before the peer's own last messages.
    got = ::recvmsg(fd_.get(), &header, MSG_CMSG_CLOEXEC);
  } while (got < 0 && (errno == EINTR || errno == ECONNRESET));
  Received received;
  if (got < 0 && errno == EAGAIN) return received;
  if (got < 0) return Error::from_errno("Cannot receive a local message");
  const bool clean = collect_descriptors(header, received.descriptors);
  if ((header.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0 || !clean) {
    return Error(ErrorCode::kProtocol, "A local message was too long or carried unexpected control data");
  }
  if (got == 0) {  // every valid message has a header, so a read of 0 bytes means that the peer has closed
    received.descriptors.clear();
    received.transfer = Transfer::kClosed;
    return received;
  }
  CKPT_TRY(message,
           parse(std::span(buffer).first(static_cast<std::size_t>(got)), received.descriptors.size()));
  received.message = std::move(message);
  received.transfer = Transfer::kDone;
  return received;
}

Result<Socket::Peer> Socket::peer() const {
  ucred credentials{};
  socklen_t length = sizeof credentials;
  if (::getsockopt(fd_.get(), SOL_SOCKET, SO_PEERCRED, &credentials, &length) != 0) {
    return Error::from_errno("Cannot find the user of a Unix socket's peer");
  }
  return Peer{credentials.pid, credentials.uid};
}

Result<Listener> Listener::create(const std::string& path) {
  CKPT_TRY(address, make_address(path));
  CKPT_TRY(fd, make_socket(SOCK_NONBLOCK));
  struct stat old {};
  if (!is_abstract(path) && ::lstat(path.c_str(), &old) == 0) {
    if (!S_ISSOCK(old.st_mode)) return Error(ErrorCode::kRefused, path + " exists and is not a socket");
    if (::unlink(path.c_str()) != 0) return Error::from_errno("Cannot remove the old socket " + path);
  }
  // The mode is set on the descriptor before bind: the file never exists with wider permissions.
  if (::fchmod(fd.get(), 0600) != 0) return Error::from_errno("Cannot set the mode of a socket");
  const auto* generic = reinterpret_cast<const sockaddr*>(&address.bytes);
  if (::bind(fd.get(), generic, address.length) != 0) return Error::from_errno("Binding " + path);
  if (::listen(fd.get(), kBacklog) != 0) return Error::from_errno("Listening on " + path);
  return Listener(std::move(fd), path);
}

Listener::~Listener() {
  if (fd_ && !is_abstract(path_)) ::unlink(path_.c_str());
}

Result<std::optional<Socket>> Listener::accept() {
  UniqueFd fd;
  for (;;) {
    fd.reset(::accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (fd) break;
    if (errno == EINTR || errno == ECONNABORTED) continue;
    if (errno == EAGAIN) return std::optional<Socket>();
    return Error::from_errno("Cannot accept a connection on " + path_);
  }
  Socket socket(std::move(fd));
  CKPT_TRY(who, socket.peer());
  if (!may_connect(who.uid)) {
    return Error(ErrorCode::kRefused, "User " + std::to_string(who.uid) + " may not connect to " + path_);
  }
  return std::optional<Socket>(std::move(socket));
}

}  // namespace ckpt::local
