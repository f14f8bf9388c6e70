// SPDX-License-Identifier: Apache-2.0
// HTTP/1.1 requests to the coordinator, one connection each, and Ctrl-C while one waits. Over TCP the coordinator
// has shown its certificate before a byte of the request leaves.
// Threads: one. Ownership: the client owns its event loop; nothing runs between calls.
// Errors: kUnavailable: no connection, so nothing was asked. kRefused: not the
// coordinator, by its certificate. kTimedOut: contact was lost after the request
// had left, its effect is not known. kAborted: interrupted, or the deadline has passed. That may be
// after the request had left. kProtocol: not HTTP, or larger than 64 MiB.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "libckpt/base/result.h"
#include "libckpt/net/tls/cert_identity.h"

namespace ckpt::cli {

struct HttpRequest {
  std::string method = "GET";
  std::string socket;  // the path of a Unix socket; empty: TCP
  std::string host;    // an IP address
  std::uint16_t port = 0;
  std::string target;
  std::string token;                        // empty: the certificate is enough
  std::shared_ptr<tls::Identity> identity;  // required for TCP
  std::string body;                         // JSON; empty: none
  std::chrono::milliseconds timeout{90'000};
  int interrupts = 1;  // so many end the call
};

// Headers of an answer that is a part of a log (docs/api.md), as they stand there.
struct LogHeaders {
  std::string next_offset;
  bool ended = false;
  std::string length;
  std::string incarnation;
  std::string restored_from;
  std::string missing;
  std::string skipped;
  std::string lost_ms;
};

struct HttpResponse {
  unsigned status = 0;
  std::string body;
  LogHeaders log;
};

class HttpClient {
 public:
  HttpClient();
  ~HttpClient();
  HttpClient(const HttpClient&) = delete;
  HttpClient& operator=(const HttpClient&) = delete;

  Result<HttpResponse> send(const HttpRequest& request);

  // From now on SIGINT and SIGTERM end a call (HttpRequest::interrupts) instead of the program.
  void catch_interrupts();
  // Interrupts since the last time this was asked.
  int take_interrupts();
  // Called within calls and pauses at each interrupt. Nothing: no more.
  void on_interrupt(std::function<void()> action);

  using Time = std::chrono::steady_clock::time_point;
  // Calls and pauses end at that time as at an interrupt, and later ones at once. Nothing: no such time.
  void set_deadline(std::optional<Time> deadline);
  [[nodiscard]] bool is_over_time() const;
  // `action` is called within calls and pauses, each time that so much has passed. Nothing: no more.
  void set_ticker(std::chrono::milliseconds every, std::function<void()> action);

  static constexpr std::chrono::milliseconds kRedialInterval{250};
  // Lets time pass before a lost coordinator is dialled again; ends early at an interrupt or the deadline.
  void pause(std::chrono::milliseconds time);
  // As pause(), and ends once one of the descriptors is readable. Each is one that can be polled.
  void wait_readable(const std::vector<int>& descriptors, std::chrono::milliseconds time);

 private:
  struct Loop;
  std::unique_ptr<Loop> loop_;
};

}  // namespace ckpt::cli
