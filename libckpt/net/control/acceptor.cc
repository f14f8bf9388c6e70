// SPDX-License-Identifier: Apache-2.0
#include "libckpt/net/control/acceptor.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "libckpt/net/control/address.h"

namespace ckpt::control {
namespace {

Result<void> remove_old_socket(const asio::generic::stream_protocol::endpoint& endpoint) {
  const std::string path = to_text(endpoint).substr(std::string_view("unix:").size());
  if (::unlink(path.c_str()) != 0 && errno != ENOENT)
    return Error::from_errno("Cannot remove the old socket " + path);
  return ok();
}

}  // namespace

Result<Acceptor> listen_at(asio::any_io_executor executor, const std::string& address, bool has_tls) {
  CKPT_TRY(parsed, parse_address(address));
  if (!parsed.is_unix && !has_tls)
    return Error(ErrorCode::kRefused, "Cannot listen on " + address +
                                          ": TCP requires a certificate ([tls]): create one with `gpumigrate "
                                          "cluster init`, or use unix:/path");
  if (parsed.is_unix) {
    CKPT_TRYV(remove_old_socket(parsed.endpoint));
  }
  boost::system::error_code code;
  Acceptor acceptor(executor);
  acceptor.open(parsed.endpoint.protocol(), code);
  if (!code && !parsed.is_unix) acceptor.set_option(asio::socket_base::reuse_address(true), code);
  const mode_t old_mask = parsed.is_unix ? ::umask(0177) : 0;
  if (!code) acceptor.bind(parsed.endpoint, code);
  if (parsed.is_unix) ::umask(old_mask);
  if (!code) acceptor.listen(asio::socket_base::max_listen_connections, code);
  if (code) return Error::from_errno(code.value(), "Listening on " + address);
  return acceptor;
}

std::optional<uid_t> user_of(asio::generic::stream_protocol::socket& socket) {
  ucred other{};
  socklen_t bytes = sizeof other;
  int family = 0;
  socklen_t family_bytes = sizeof family;
  if (::getsockopt(socket.native_handle(), SOL_SOCKET, SO_DOMAIN, &family, &family_bytes) != 0 ||
      family != AF_UNIX)
    return std::nullopt;
  if (::getsockopt(socket.native_handle(), SOL_SOCKET, SO_PEERCRED, &other, &bytes) != 0) return std::nullopt;
  return other.uid;
}

bool is_trusted_user(std::optional<uid_t> user) noexcept {
  return user && (*user == 0 || *user == ::geteuid());
}

bool is_unix(const Acceptor& acceptor) {
  boost::system::error_code ignored;
  return acceptor.local_endpoint(ignored).protocol().family() == AF_UNIX;
}

}  // namespace ckpt::control
