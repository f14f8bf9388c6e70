// SPDX-License-Identifier: Apache-2.0
#include "libckpt/datapath/transport/ucx_guard.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <sys/uio.h>
#include <ucs/type/status.h>
#include <unistd.h>

#include <array>
#include <mutex>

// Functions of libucs, declared here because ucs/sys/sock.h is not installed.
extern "C" {
[[gnu::visibility("default")]] ucs_status_t ucs_socket_send_nb(int fd, const void* data, std::size_t* bytes);
[[gnu::visibility("default")]] ucs_status_t ucs_socket_sendv_nb(int fd, iovec* parts, std::size_t count,
                                                                std::size_t* bytes);
[[gnu::visibility("default")]] void ucs_close_fd(int* fd);
}

namespace ckpt::transport {
namespace {

template <class Function>
Function* original(Function&, const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

template <class Function>
bool is_taken(Function& here, const char* name) {
  return ::dlsym(RTLD_DEFAULT, name) == reinterpret_cast<void*>(&here) && original(here, name) != nullptr;
}

bool is_loss(ucs_status_t status) {
  return status == UCS_ERR_CONNECTION_RESET || status == UCS_ERR_NOT_CONNECTED ||
         status == UCS_ERR_TIMED_OUT || status == UCS_ERR_REJECTED;
}

// The numbers of closed sockets. An empty descriptor keeps each number in use.
class KeptNumbers {
 public:
  // Keeps the number in use. Returns false if that failed and the socket is still open.
  bool keep(int fd) {
    const std::lock_guard lock(mutex_);
    if (nothing_ < 0) nothing_ = ::open("/", O_PATH | O_CLOEXEC);
    if (nothing_ < 0 || ::dup3(nothing_, fd, O_CLOEXEC) != fd) return false;
    int& oldest = numbers_[next_++ % numbers_.size()];
    if (oldest >= 0) ::close(oldest);
    oldest = fd;
    return true;
  }

 private:
  std::mutex mutex_;
  int nothing_ = -1;
  std::array<int, kKeptNumbers> numbers_ = [] {
    std::array<int, kKeptNumbers> none{};
    none.fill(-1);
    return none;
  }();
  std::size_t next_ = 0;
};

KeptNumbers& kept_numbers() {
  static auto* const numbers = new KeptNumbers;  // never destroyed, because UCX's threads may close sockets
                                                 // until the process exits
  return *numbers;
}

}  // namespace

Result<void> check_ucx_guard() {
  if (is_taken(ucs_socket_send_nb, "ucs_socket_send_nb") &&
      is_taken(ucs_socket_sendv_nb, "ucs_socket_sendv_nb") && is_taken(ucs_close_fd, "ucs_close_fd"))
    return ok();
  return Error(ErrorCode::kNotSupported,
               "This build of UCX cannot be prevented from ending the process when a connection is lost");
}

}  // namespace ckpt::transport

ucs_status_t ucs_socket_send_nb(int fd, const void* data, std::size_t* bytes) {
  static const auto send = ckpt::transport::original(ucs_socket_send_nb, "ucs_socket_send_nb");
  const std::size_t all = *bytes;
  const ucs_status_t status = send(fd, data, bytes);
  if (!ckpt::transport::is_loss(status)) return status;
  *bytes = all;
  return UCS_OK;
}

ucs_status_t ucs_socket_sendv_nb(int fd, iovec* parts, std::size_t count, std::size_t* bytes) {
  static const auto sendv = ckpt::transport::original(ucs_socket_sendv_nb, "ucs_socket_sendv_nb");
  const ucs_status_t status = sendv(fd, parts, count, bytes);
  if (!ckpt::transport::is_loss(status)) return status;
  *bytes = 0;
  for (std::size_t i = 0; i < count; ++i) *bytes += parts[i].iov_len;
  return UCS_OK;
}

void ucs_close_fd(int* fd) {
  static const auto close = ckpt::transport::original(ucs_close_fd, "ucs_close_fd");
  if (*fd >= 0 && ckpt::transport::kept_numbers().keep(*fd)) {
    *fd = -1;
  } else {
    close(fd);
  }
}
