// SPDX-License-Identifier: Apache-2.0
#include "libckpt/control/http_server.h"

#include <spdlog/spdlog.h>

#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>

#include "libckpt/control/address.h"
#include "libckpt/control/http_target.h"
#include "libckpt/control/spawn.h"

namespace ckpt::control {
namespace {

namespace beast = boost::beast;
namespace http = beast::http;

constexpr std::size_t kMostBodyBytes = 512 << 10;
constexpr std::size_t kMostHeaderBytes = 16 << 10;
constexpr unsigned kMostConnections = 256;
constexpr std::chrono::seconds kIdleTimeout{60};

using Message = http::response<http::string_body>;

Message to_message(HttpResponse response, unsigned version, bool keep_alive) {
  Message message(static_cast<http::status>(response.status), version);
  message.set(http::field::content_type, response.content_type);
  message.set(http::field::cache_control, "no-store");
  for (const auto& [name, value] : response.headers) message.set(name, value);
  message.keep_alive(keep_alive);
  message.body() = std::move(response.body);
  message.prepare_payload();
  return message;
}

}  // namespace

HttpServer::HttpServer(Tcp::acceptor acceptor, std::string address, Handler handler, Refuse refuse)
    : acceptor_(std::move(acceptor)),
      address_(std::move(address)),
      handler_(std::move(handler)),
      refuse_(std::move(refuse)) {}

Result<std::shared_ptr<HttpServer>> HttpServer::create(asio::any_io_executor executor,
                                                       const std::string& address, bool insecure,
                                                       Handler handler, Refuse refuse) {
  CKPT_TRY(parsed, parse_address(address));
  if (parsed.endpoint.protocol().family() == AF_UNIX)
    return Error(ErrorCode::kInvalidArgument, "HTTP is served on host:port, not on " + address);
  if (!parsed.loopback_only && !insecure)
    return Error(ErrorCode::kRefused,
                 "Refusing to serve HTTP on " + address +
                     ": it can be reached from other machines without encryption; say insecure = "
                     "true if that network is trusted");
  Tcp::endpoint endpoint;
  endpoint.resize(parsed.endpoint.size());
  std::memcpy(endpoint.data(), parsed.endpoint.data(), parsed.endpoint.size());
  boost::system::error_code code;
  Tcp::acceptor acceptor(executor);
  acceptor.open(endpoint.protocol(), code);
  if (!code) acceptor.set_option(asio::socket_base::reuse_address(true), code);
  if (!code) acceptor.bind(endpoint, code);
  if (!code) acceptor.listen(asio::socket_base::max_listen_connections, code);
  if (code) return Error::from_errno(code.value(), "Listening on " + address);
  std::string text = to_text(acceptor.local_endpoint());
  std::shared_ptr<HttpServer> server(
      new HttpServer(std::move(acceptor), std::move(text), std::move(handler), std::move(refuse)));
  spawn(executor, "HTTP server", accept_loop(server));
  return server;
}

void HttpServer::close() {
  boost::system::error_code ignored;
  acceptor_.close(ignored);
}

Task<> HttpServer::accept_loop(std::shared_ptr<HttpServer> self) {
  asio::steady_timer pause(self->acceptor_.get_executor());
  while (self->acceptor_.is_open()) {
    auto [code, socket] = co_await self->acceptor_.async_accept(kTuple);
    if (code == asio::error::operation_aborted) co_return;
    if (code || self->connections_ >= kMostConnections) {
      spdlog::warn("HTTP connection not taken: {}", code ? code.message() : "too many are open");
      pause.expires_after(std::chrono::milliseconds(100));
      co_await pause.async_wait(kTuple);
      continue;
    }
    ++self->connections_;
    auto finished = [self](Error) { --self->connections_; };
    spawn(self->acceptor_.get_executor(), "HTTP connection", serve(self, std::move(socket)), finished);
  }
}

Task<HttpResponse> HttpServer::answer(HttpRequest request) {
  HttpResponse response;
  try {
    response = co_await handler_(std::move(request));
  } catch (const std::exception& e) {
    spdlog::error("an API call failed: {}", e.what());
    response = refuse_(500, e.what());
  }
  co_return response;
}

Task<> HttpServer::serve(std::shared_ptr<HttpServer> self, Tcp::socket socket) {
  boost::system::error_code ignored;
  socket.set_option(Tcp::no_delay(true), ignored);
  beast::tcp_stream stream(std::move(socket));
  beast::flat_buffer buffer(kMostHeaderBytes + kMostBodyBytes);
  while (true) {
    http::request_parser<http::string_body> parser;
    parser.body_limit(kMostBodyBytes);
    parser.header_limit(kMostHeaderBytes);
    stream.expires_after(kIdleTimeout);
    const auto [read_code, read_bytes] = co_await http::async_read(stream, buffer, parser, kTuple);
    HttpResponse response;
    bool keep_alive = false;
    if (read_code == http::error::body_limit || read_code == http::error::header_limit) {
      response = self->refuse_(413, "The request is too large");
    } else if (read_code) {
      // End of stream, a timeout, or no HTTP at all: nobody to answer to, or nothing sensible to say.
      break;
    } else {
      HttpRequest request;
      const auto& message = parser.get();
      keep_alive = message.keep_alive();
      request.method = std::string(message.method_string());
      request.authorization = std::string(message[http::field::authorization]);
      auto target = parse_http_target({message.target().data(), message.target().size()});
      request.body = message.body();
      stream.expires_never();
      if (target) {
        request.path = std::move(target->path);
        request.query = std::move(target->query);
        response = co_await self->answer(std::move(request));
      } else {
        response = self->refuse_(400, "Malformed request target");
      }
    }
    Message message = to_message(std::move(response), 11, keep_alive);
    stream.expires_after(kIdleTimeout);
    const auto [write_code, written] = co_await http::async_write(stream, message, kTuple);
    if (write_code || !keep_alive) break;
  }
  stream.socket().shutdown(Tcp::socket::shutdown_both, ignored);
  --self->connections_;
}

}  // namespace ckpt::control
