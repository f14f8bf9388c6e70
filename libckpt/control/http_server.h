// SPDX-License-Identifier: Apache-2.0
// A small HTTP/1.1 server over Boost.Beast: accepts, bounds, parses and hands each request to one coroutine. Beast is
// included by http_server.cc alone.
// Threads: one io_context on one thread. Limits: 512 KiB a body, 16 KiB of headers, 256 connections, 60 s idle.
// Errors: create() says what could not be bound; an exception of the handler becomes a 500.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "libckpt/base/result.h"
#include "libckpt/control/asio.h"

namespace ckpt::control {

struct HttpRequest {
  HttpRequest() = default;
  std::string method;                        // "GET", "POST", ...
  std::vector<std::string> path;             // decoded segments
  std::map<std::string, std::string> query;  // decoded
  std::string authorization;
  std::string body;
};

struct HttpResponse {
  HttpResponse() = default;
  HttpResponse(unsigned status_code, std::string text) : status(status_code), body(std::move(text)) {}
  unsigned status = 200;
  std::string content_type = "application/json";
  std::vector<std::pair<std::string, std::string>> headers;
  std::string body;
};

class HttpServer : public std::enable_shared_from_this<HttpServer> {
 public:
  using Handler = std::function<Task<HttpResponse>(HttpRequest)>;
  // `refuse` makes the answer for what never becomes a request: 400, 413.
  using Refuse = std::function<HttpResponse(unsigned status, const std::string& why)>;

  static Result<std::shared_ptr<HttpServer>> create(asio::any_io_executor executor,
                                                    const std::string& address, bool insecure,
                                                    Handler handler, Refuse refuse);
  [[nodiscard]] const std::string& address() const noexcept { return address_; }  // host:port
  void close();

 private:
  using Tcp = asio::ip::tcp;
  HttpServer(Tcp::acceptor acceptor, std::string address, Handler handler, Refuse refuse);
  static Task<> accept_loop(std::shared_ptr<HttpServer> self);
  static Task<> serve(std::shared_ptr<HttpServer> self, Tcp::socket socket);
  Task<HttpResponse> answer(HttpRequest request);

  Tcp::acceptor acceptor_;
  std::string address_;
  Handler handler_;
  Refuse refuse_;
  unsigned connections_ = 0;
};

}  // namespace ckpt::control
