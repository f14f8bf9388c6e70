// SPDX-License-Identifier: Apache-2.0
#include "tests/unit/tools/gpumigrate/fake_coordinator.h"

#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

namespace ckpt::cli {
namespace {

std::string header_of(const std::string& head, const std::string& name) {
  const std::size_t at = head.find("\r\n" + name + ": ");
  if (at == std::string::npos) return "";
  const std::size_t begin = at + name.size() + 4;
  return head.substr(begin, head.find("\r\n", begin) - begin);
}

void write_text(const std::string& path, const std::string& text) {
  ASSERT_TRUE(write_file_durably(path, text).has_value());
}

}  // namespace

FakeCoordinator::FakeCoordinator(Handler handler) : handler_(std::move(handler)) {
  std::string folder = (std::filesystem::temp_directory_path() / "gpumigrate-cli-XXXXXX").string();
  home_ = ::mkdtemp(folder.data());
  listener_.reset(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  std::filesystem::create_directories(home_ + "/coordinator");
  const std::string path = home_ + "/coordinator/api.sock";
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  path.copy(address.sun_path, sizeof address.sun_path - 1);
  EXPECT_EQ(::bind(listener_.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  EXPECT_EQ(::listen(listener_.get(), 16), 0);
  write_text(home_ + "/coordinator/api.json", R"({"socket": "unix:)" + path + R"(", "url": "", "pid": 1})");
  thread_ = std::thread([this] { serve(); });
}

FakeCoordinator::~FakeCoordinator() {
  ::shutdown(listener_.get(), SHUT_RDWR);
  thread_.join();
  std::filesystem::remove_all(home_);
}

std::vector<FakeRequest> FakeCoordinator::requests() const {
  const std::lock_guard lock(mutex_);
  return requests_;
}

void FakeCoordinator::serve() {
  for (;;) {
    const UniqueFd connection(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!connection) return;
    answer_one(connection.get());
  }
}

void FakeCoordinator::answer_one(int connection) {
  std::string text;
  std::size_t head_end = std::string::npos;
  std::size_t wanted = std::string::npos;
  while (text.size() < wanted) {
    char buffer[4096];
    const ssize_t got = ::read(connection, buffer, sizeof buffer);
    if (got <= 0) return;
    text.append(buffer, static_cast<std::size_t>(got));
    if (wanted != std::string::npos || (head_end = text.find("\r\n\r\n")) == std::string::npos) continue;
    const std::string length = header_of(text.substr(0, head_end + 2), "Content-Length");
    wanted = head_end + 4 + (length.empty() ? 0 : std::stoul(length));
  }
  const std::string head = text.substr(0, head_end + 2);
  FakeRequest request;
  request.method = head.substr(0, head.find(' '));
  const std::size_t target = request.method.size() + 1;
  request.target = head.substr(target, head.find(' ', target) - target);
  request.token = header_of(head, "Authorization");
  request.body = text.substr(head_end + 4);
  {
    const std::lock_guard lock(mutex_);
    requests_.push_back(request);
  }
  const FakeAnswer answer = handler_(request);
  if (answer.hang_up) return;
  if (answer.silent) {
    char end = 0;
    (void)!::read(connection, &end, 1);
    return;
  }
  std::string out = "HTTP/1.1 " + std::to_string(answer.status) +
                    " x\r\nContent-Length: " + std::to_string(answer.body.size()) + "\r\n";
  for (const auto& [name, value] : answer.headers) out += name + ": " + value + "\r\n";
  out += "\r\n" + answer.body;
  (void)!::send(connection, out.data(), out.size(), MSG_NOSIGNAL);
}

}  // namespace ckpt::cli
