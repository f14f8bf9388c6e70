// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/coordinator/support/http_client.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

namespace ckpt::coordinator::test {

namespace {

// Connects and sends `bytes`. Returns no descriptor if no server listens there.
UniqueFd say(const std::string& at, const std::string& bytes) {
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  at.substr(std::string_view("unix:").size()).copy(address.sun_path, sizeof address.sun_path - 1);
  if (::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) return {};
  std::size_t sent = 0;
  while (sent < bytes.size()) {
    const ssize_t n = ::send(fd.get(), bytes.data() + sent, bytes.size() - sent, MSG_NOSIGNAL);
    if (n <= 0) break;
    sent += static_cast<std::size_t>(n);
  }
  return fd;
}

}  // namespace

UniqueFd begin_request(const std::string& at, const std::string& token, const std::string& target) {
  return say(at, "GET " + target + " HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + token + "\r\n\r\n");
}

std::string talk(const std::string& at, const std::string& bytes) {
  const UniqueFd fd = say(at, bytes);
  std::string text;
  char buffer[4096];
  ssize_t n = 0;
  while ((n = ::recv(fd.get(), buffer, sizeof buffer, 0)) > 0)
    text.append(buffer, static_cast<std::size_t>(n));
  return text;
}

HttpAnswer request(const std::string& at, const std::string& token, const std::string& method,
                   const std::string& target, const std::string& body) {
  const std::string text = talk(at, method + " " + target + " HTTP/1.1\r\nHost: x\r\nConnection: close\r\n" +
                                        (token.empty() ? "" : "Authorization: Bearer " + token + "\r\n") +
                                        "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body);
  HttpAnswer answer;
  const auto end = text.find("\r\n\r\n");
  if (end == std::string::npos) return answer;
  answer.status = static_cast<unsigned>(std::stoul(text.substr(text.find(' ') + 1, 3)));
  answer.body = text.substr(end + 4);
  for (std::size_t line = text.find("\r\n") + 2; line < end;) {
    const auto line_end = text.find("\r\n", line);
    const auto colon = text.find(": ", line);
    answer.headers[text.substr(line, colon - line)] = text.substr(colon + 2, line_end - colon - 2);
    line = line_end + 2;
  }
  return answer;
}

}  // namespace ckpt::coordinator::test
