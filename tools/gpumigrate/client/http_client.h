// SPDX-License-Identifier: Apache-2.0
// HTTP/1.1 requests to the coordinator, with one connection each, and the handling of Ctrl-C during a
// request. Over TCP the client verifies the coordinator's certificate before it sends a byte of the request.
// Threads: one. Ownership: the client owns its event loop; nothing runs between calls. Errors: kUnavailable:
// there is no connection, so nothing was sent. kRefused: the peer's certificate is not the coordinator's.
// kTimedOut: contact was lost after the request was sent, so its effect is unknown. kAborted: an interrupt or
// the deadline ended the call, possibly after the request was sent. kProtocol: the answer is not HTTP, or is
// larger than 64 MiB.
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
  std::string host;    // the coordinator's IP address
  std::uint16_t port = 0;
  std::string target;
  std::string token;                        // the token; empty: the certificate suffices
  std::shared_ptr<tls::Identity> identity;  // the client's TLS identity; required for TCP
  std::string body;                         // the body as JSON; empty: no body
  std::chrono::milliseconds timeout{90'000};
  int interrupts = 1;  // number of interrupts that end the call
};

// The unparsed headers of an answer with a part of a log (docs/api.md).
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

  // Makes SIGINT and SIGTERM end a call (HttpRequest::interrupts) instead of the program.
  void catch_interrupts();
  // Returns the number of interrupts since the last call of this function.
  int consume_interrupts();
  // Sets the action that runs at each interrupt within calls and pauses. An empty action removes it.
  void on_interrupt(std::function<void()> action);

  using Time = std::chrono::steady_clock::time_point;
  // Ends calls and pauses at that time like an interrupt. Later calls end at once. nullopt means that there
  // is no deadline.
  void set_deadline(std::optional<Time> deadline);
  [[nodiscard]] bool is_over_time() const;
  // Runs `action` within calls and pauses, once per interval. An empty action stops this.
  void set_ticker(std::chrono::milliseconds every, std::function<void()> action);

  static constexpr std::chrono::milliseconds kRedialInterval{250};
  // Waits for `time` before a lost coordinator is redialed. An interrupt or the deadline ends the wait early.
  void pause(std::chrono::milliseconds time);
  // Waits like pause(), but also ends when one of the descriptors is readable. The descriptors must support
  // poll().
  void wait_readable(const std::vector<int>& descriptors, std::chrono::milliseconds time);

 private:
  struct Loop;
  std::unique_ptr<Loop> loop_;
};

}  // namespace ckpt::cli
