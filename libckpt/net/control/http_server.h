// SPDX-License-Identifier: Apache-2.0
// A small HTTP/1.1 server over Boost.Beast: accepts, bounds, parses and hands each request to one
// coroutine. Beast is included by http_server.cc alone. A call that may wait for a change (by `waits`) is
// counted apart. However many wait, kShortConnections more are taken for calls that are answered at once.
// It ends as soon as its client has gone. When all connections are taken, the one that has been idle for
// longest is closed. It listens on TCP, on a Unix socket for this user and root, or on both. Over TCP a client without
// an admitted certificate is not answered. The limits are for all connections together.
// Threads: one io_context on one thread. Limits: 10 s a handshake. 512 KiB a body, 16 KiB of headers, 60 s
// idle, kMaxConnections or as many as the process may have descriptors for. Errors: create() fails if an
// address cannot be bound; an exception of the handler becomes a 500, one waiting call too many a 503.
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

#include "libckpt/base/rarely.h"
#include "libckpt/base/result.h"
#include "libckpt/net/control/acceptor.h"
#include "libckpt/net/control/asio.h"
#include "libckpt/net/control/stream.h"

namespace ckpt::control {

struct HttpRequest {
  std::string method;                        // "GET", "POST", ...
  std::vector<std::string> path;             // decoded segments
  std::map<std::string, std::string> query;  // decoded
  std::string authorization;
  tls::Peer peer;             // whom the client's certificate names; nobody on a Unix socket
  std::optional<uid_t> user;  // of the client's process, on a Unix socket
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
  // `refuse` makes the answer for what never reaches the handler: 400, 413, 503.
  using Refuse = std::function<HttpResponse(unsigned status, const std::string& why)>;
  // Whether the request may wait for news. It must only read: it is cancelled where it waits once its client
  // has gone.
  using Waits = std::function<bool(const HttpRequest&)>;

  static constexpr unsigned kMaxConnections = 4096;
  static constexpr unsigned kShortConnections = 256;

  struct Settings {
    std::string address;  // host:port; empty: no TCP
    TlsSettings tls;      // required with an address
    std::string socket;   // unix:/path; empty: none
  };
  static Result<std::shared_ptr<HttpServer>> create(asio::any_io_executor executor, Settings settings,
                                                    Handler handler, Refuse refuse, Waits waits = {});
  [[nodiscard]] const std::string& address() const noexcept { return address_; }  // host:port; empty: no TCP
  [[nodiscard]] std::string url() const { return address_.empty() ? "" : "https://" + address_; }
  [[nodiscard]] unsigned waiting() const noexcept { return waiting_; }  // calls that wait for news
  void close();
  // Ends the connections of such clients, whatever they wait for.
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
  void take(Stream::Socket socket, bool is_local);
  static Task<bool> secure(std::shared_ptr<HttpServer> self, std::shared_ptr<Session> session);
  static Task<> serve(std::shared_ptr<HttpServer> self, std::shared_ptr<Session> session);
  // False: the connection is to be closed.
  static Task<bool> serve_next(std::shared_ptr<HttpServer> self, std::shared_ptr<Session> session);
  // Nullopt: the client has gone.
  static Task<std::optional<HttpResponse>> dispatch(std::shared_ptr<HttpServer> self,
                                                    std::shared_ptr<Session> session, HttpRequest request);
  static Task<std::optional<HttpResponse>> answer_waiting(std::shared_ptr<HttpServer> self,
                                                          std::shared_ptr<Session> session,
                                                          HttpRequest request);
  static Task<HttpResponse> answer(std::shared_ptr<HttpServer> self, HttpRequest request);
  [[nodiscard]] bool full() const noexcept { return connections_ >= limits_.connections; }
  void finished();
  void say_refused(const std::string& why);

  asio::any_io_executor executor_;
  std::list<Acceptor> acceptors_;
  std::string address_;
  Handler handler_;
  Refuse refuse_;
  Waits waits_;
  Limits limits_;
  TlsSettings tls_;
  std::list<Stream*> idle_;  // in a handshake or between two requests, the longest first
  std::list<Stream*> open_;  // whose handshake is done
  asio::steady_timer room_;  // cancelled when a connection has ended
  unsigned connections_ = 0;
  unsigned waiting_ = 0;
  Rarely refused_;  // a stranger may be refused as often as it likes
};

}  // namespace ckpt::control
