// SPDX-License-Identifier: Apache-2.0
// A small HTTP/1.1 server over Boost.Beast. It accepts connections, enforces limits, parses requests and
// passes each request to one coroutine. Only http_server.cc includes Beast. Calls that may wait for a change
// (by `waits`) are counted separately. However many calls wait, kShortConnections more connections are
// accepted for calls that are answered at once. A waiting call ends as soon as its client disconnects. When
// all connections are in use, the server closes the connection that has been idle for longest. The server
// listens on TCP, on a Unix socket for this user and root, or on both. A client over TCP without an admitted
// certificate gets no answer. The limits are for all connections together.
// Threads: one io_context on one thread. Limits: 10 s per handshake, 512 KiB per body, 16 KiB of headers, and
// 60 s of idle time. The limit of connections is kMaxConnections, or fewer if the process's descriptor limit
// is lower. Errors: create() fails if an address cannot be bound. An exception of the handler becomes a 500.
// One waiting call too many becomes a 503.
#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "libckpt/base/log_throttle.h"
#include "libckpt/base/result.h"
#include "libckpt/net/control/acceptor.h"
#include "libckpt/net/control/asio.h"
#include "libckpt/net/control/stream.h"

namespace ckpt::control {

struct HttpRequest {
  std::string method;                        // the method, such as "GET" or "POST"
  std::vector<std::string> path;             // the decoded segments of the path
  std::map<std::string, std::string> query;  // the decoded parameters of the query
  std::string authorization;
  tls::Peer peer;             // the peer that the client's certificate names; nobody on a Unix socket
  std::optional<uid_t> user;  // the user of the client's process, on a Unix socket
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
  // Creates the answer for requests that never reach the handler: 400, 413, 503.
  using Refuse = std::function<HttpResponse(unsigned status, const std::string& reason)>;
  // Checks whether the request may wait for a change. Such a request must only read: its call is cancelled at
  // a wait once its client disconnects.
  using Waits = std::function<bool(const HttpRequest&)>;

  static constexpr unsigned kMaxConnections = 4096;
  static constexpr unsigned kShortConnections = 256;

  struct Settings {
    std::string address;  // the address as host:port; without TCP, an empty string
    TlsSettings tls;      // the TLS settings, which an address requires
    std::string socket;   // the socket as unix:/path; without a Unix socket, an empty string
  };
  static Result<std::shared_ptr<HttpServer>> create(asio::any_io_executor executor, Settings settings,
                                                    Handler handler, Refuse refuse, Waits waits = {});
  // Returns host:port. Returns an empty string without TCP.
  [[nodiscard]] const std::string& address() const noexcept { return address_; }
  [[nodiscard]] std::string url() const { return address_.empty() ? "" : "https://" + address_; }
  // Returns the number of calls that wait for a change.
  [[nodiscard]] unsigned waiting() const noexcept { return waiting_; }
  void close();
  // Closes the connections of clients for which `is_meant` returns true, even while their calls wait.
  void close_where(const std::function<bool(const tls::Peer&)>& is_meant);

 private:
  struct Session;
  struct Wait;
  struct Limits {
    unsigned connections = kMaxConnections;
    unsigned waiting = kMaxConnections - kShortConnections;
  };
  HttpServer(asio::any_io_executor executor, Settings settings, Handler handler, Refuse refuse, Waits waits);
  static Limits limits_of_process();
  Result<void> listen(const std::string& address);
  static Task<> accept_loop(std::shared_ptr<HttpServer> self, Acceptor& acceptor);
  void accept_socket(Stream::Socket socket, bool is_local);
  static Task<bool> secure(std::shared_ptr<HttpServer> self, std::shared_ptr<Session> session);
  static Task<> serve(std::shared_ptr<HttpServer> self, std::shared_ptr<Session> session);
  // Serves one request. Returns false if the connection must be closed.
  static Task<bool> serve_next(std::shared_ptr<HttpServer> self, std::shared_ptr<Session> session);
  // Runs the request's handler. Returns nullopt if the client has disconnected.
  static Task<std::optional<HttpResponse>> dispatch(std::shared_ptr<HttpServer> self,
                                                    std::shared_ptr<Session> session, HttpRequest request);
  static Task<std::optional<HttpResponse>> answer_waiting(std::shared_ptr<HttpServer> self,
                                                          std::shared_ptr<Session> session,
                                                          HttpRequest request);
  static Task<HttpResponse> answer(std::shared_ptr<HttpServer> self, HttpRequest request);
  [[nodiscard]] bool full() const noexcept { return connections_ >= limits_.connections; }
  void finished();
  void log_refused(const std::string& reason);

  asio::any_io_executor executor_;
  std::list<Acceptor> acceptors_;
  std::string address_;
  Handler handler_;
  Refuse refuse_;
  Waits waits_;
  Limits limits_;
  TlsSettings tls_;
  std::list<Stream*> idle_;  // streams in a handshake or between two requests, the longest idle first
  std::list<Stream*> open_;  // streams whose handshake is complete
  asio::steady_timer room_;  // a timer that is cancelled when a connection has ended, so that a full server
                             // accepts the next client
  unsigned connections_ = 0;
  unsigned waiting_ = 0;
  LogThrottle refused_;  // limits the log, since an unknown peer may be refused any number of times
};

}  // namespace ckpt::control
