// SPDX-License-Identifier: Apache-2.0
// A small coordinator for tests. It answers each request with a function, and writes the file in which the
// CLI finds its address.
// Threads: the function runs on the server's own thread; requests() may be called once the command has
// exited.
#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "libckpt/base/fd.h"

namespace ckpt::cli {

struct FakeRequest {
  std::string method;
  std::string target;
  std::string token;
  std::string body;
};

struct FakeAnswer {
  unsigned status = 200;
  std::string body;
  std::map<std::string, std::string> headers;
  bool hang_up = false;  // true: the connection is closed without an answer
  bool silent = false;   // true: the connection stays open until the other side closes it
};

class FakeCoordinator {
 public:
  using Handler = std::function<FakeAnswer(const FakeRequest&)>;
  explicit FakeCoordinator(Handler handler);
  ~FakeCoordinator();

  [[nodiscard]] const std::string& home() const noexcept { return home_; }
  [[nodiscard]] std::vector<FakeRequest> requests() const;

 private:
  void serve();
  void answer_one(int connection);

  Handler handler_;
  std::string home_;
  UniqueFd listener_;
  mutable std::mutex mutex_;
  std::vector<FakeRequest> requests_;
  std::thread thread_;
};

}  // namespace ckpt::cli
