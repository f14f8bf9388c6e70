// SPDX-License-Identifier: Apache-2.0
#include "libckpt/net/control/http_server.h"

#include <spdlog/spdlog.h>
#include <sys/resource.h>

#include <algorithm>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>

#include "libckpt/net/control/address.h"
#include "libckpt/net/control/http_target.h"
#include "libckpt/net/control/spawn.h"

namespace ckpt::control {
namespace {

namespace beast = boost::beast;
namespace http = beast::http;

constexpr std::size_t kMaxBodyBytes = 512 << 10;
constexpr std::size_t kMaxHeaderBytes = 16 << 10;
constexpr std::size_t kWatchBytes = 4096;
constexpr rlim_t kOtherDescriptors = 256;  // the process's file descriptors that are reserved for everything
                                           // except HTTP
constexpr rlim_t kMinConnections = 16;
constexpr std::chrono::seconds kIdleTimeout{60};
constexpr std::chrono::seconds kHandshakeTimeout{10};

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

struct HttpServer::Session {
  Session(Stream::Socket socket, std::optional<uid_t> of_user) : stream(std::move(socket)), user(of_user) {}
  Stream stream;
  std::optional<uid_t> user;  // the client's user on a Unix socket
  beast::flat_buffer buffer{kMaxHeaderBytes + kMaxBodyBytes};
};

// The state of a waiting call. The call and the connection that monitors its client share it, since either
// may end first.
struct HttpServer::Wait {
  asio::cancellation_signal cancel;
  std::optional<HttpResponse> response;
  std::shared_ptr<Session> watcher;  // the session that reads from the client until an answer exists
  bool finished = false;
};

HttpServer::HttpServer(asio::any_io_executor executor, Settings settings, Handler handler, Refuse refuse,
                       Waits waits)
    : executor_(std::move(executor)),
      handler_(std::move(handler)),
      refuse_(std::move(refuse)),
      waits_(std::move(waits)),
      limits_(limits_of_process()),
      tls_(std::move(settings.tls)),
      room_(executor_, asio::steady_timer::time_point::max()) {}

HttpServer::Limits HttpServer::limits_of_process() {
  Limits limits;
  rlimit descriptors{};
  if (::getrlimit(RLIMIT_NOFILE, &descriptors) != 0) return limits;
  const rlim_t left = descriptors.rlim_cur - std::min(descriptors.rlim_cur, kOtherDescriptors);
  limits.connections = static_cast<unsigned>(std::clamp<rlim_t>(left, kMinConnections, kMaxConnections));
  limits.waiting = limits.connections - std::min(kShortConnections, limits.connections / 2);
  return limits;
}

Result<std::shared_ptr<HttpServer>> HttpServer::create(asio::any_io_executor executor, Settings settings,
                                                       Handler handler, Refuse refuse, Waits waits) {
  const std::string address = settings.address;
  const std::string socket = settings.socket;
  std::shared_ptr<HttpServer> server(
      new HttpServer(executor, std::move(settings), std::move(handler), std::move(refuse), std::move(waits)));
  if (!address.empty()) {
    CKPT_TRYV(server->listen(address));
    server->address_ = to_text(server->acceptors_.back().local_endpoint());
  }
  if (!socket.empty()) {
    CKPT_TRYV(server->listen(socket));
  }
  for (Acceptor& acceptor : server->acceptors_) spawn(executor, "HTTP server", accept_loop(server, acceptor));
  return server;
}

Result<void> HttpServer::listen(const std::string& address) {
  CKPT_TRY(acceptor, listen_at(executor_, address, static_cast<bool>(tls_)));
  acceptors_.push_back(std::move(acceptor));
  return ok();
}

void HttpServer::close() {
  boost::system::error_code ignored;
  for (Acceptor& acceptor : acceptors_) acceptor.close(ignored);
  room_.cancel();
}

void HttpServer::close_where(const std::function<bool(const tls::Peer&)>& is_meant) {
  for (Stream* stream : open_)
    if (is_meant(stream->peer())) stream->close();
}

void HttpServer::log_refused(const std::string& reason) {
  if (const auto left_out = refused_.turn(now_ns()))
    spdlog::warn("dropped an HTTP connection: {} ({} similar messages suppressed)", reason, *left_out);
}

void HttpServer::finished() {
  --connections_;
  room_.cancel();
}

Task<> HttpServer::accept_loop(std::shared_ptr<HttpServer> self, Acceptor& acceptor) {
  asio::steady_timer pause(self->executor_);
  const bool is_local = is_unix(acceptor);
  while (acceptor.is_open()) {
    auto [code, socket] = co_await acceptor.async_accept(kTuple);
    if (code == asio::error::operation_aborted) co_return;
    if (code) {
      // The most likely cause is a lack of file descriptors. During the pause some descriptors may be closed
      // before the next attempt.
      self->log_refused("accepting failed: " + code.message());
      pause.expires_after(std::chrono::milliseconds(100));
      co_await pause.async_wait(kTuple);
      continue;
    }
    self->accept_socket(std::move(socket), is_local);
    // The next client is accepted only after an idle connection has been closed or an answer has been sent.
    while (self->full() && acceptor.is_open()) {
      if (self->idle_.size() > 1)
        self->idle_.front()->close();  // a single idle connection stays open, because it may be the newest
                                       // connection
      co_await self->room_.async_wait(kTuple);
    }
  }
}

void HttpServer::accept_socket(Stream::Socket socket, bool is_local) {
  boost::system::error_code ignored;
  const std::optional<uid_t> user = is_local ? user_of(socket) : std::nullopt;
  if (is_local && !is_trusted_user(user)) {
    return log_refused("it belongs to another user");
  }
  if (!is_local) socket.set_option(asio::ip::tcp::no_delay(true), ignored);
  ++connections_;
  auto session = std::make_shared<Session>(std::move(socket), user);
  spawn(executor_, "HTTP connection", serve(shared_from_this(), std::move(session)),
        [self = shared_from_this()](Error) { self->finished(); });
}

Task<HttpResponse> HttpServer::answer(std::shared_ptr<HttpServer> self, HttpRequest request) {
  HttpResponse response;
  try {
    response = co_await self->handler_(std::move(request));
  } catch (const std::exception& e) {
    const auto* system = dynamic_cast<const boost::system::system_error*>(&e);
    const bool cancelled = system != nullptr && system->code() == asio::error::operation_aborted;
    if (!cancelled) spdlog::error("an API call failed: {}", e.what());
    response = self->refuse_(500, e.what());
  }
  co_return response;
}

Task<std::optional<HttpResponse>> HttpServer::answer_waiting(std::shared_ptr<HttpServer> self,
                                                             std::shared_ptr<Session> session,
                                                             HttpRequest request) {
  auto wait = std::make_shared<Wait>();
  wait->watcher = session;
  ++self->waiting_;
  auto ended = [self, wait](std::exception_ptr failure, HttpResponse response) {
    --self->waiting_;
    wait->finished = true;
    wait->response = failure ? self->refuse_(500, "The call failed") : std::move(response);
    if (wait->watcher) wait->watcher->stream.cancel();
  };
  asio::co_spawn(self->executor_, answer(self, std::move(request)),
                 asio::bind_cancellation_slot(wait->cancel.slot(), ended));
  // Bytes that the client sends early belong to its next request. A disconnect or too many bytes end the
  // call.
  boost::system::error_code code;
  while (!wait->finished && !code) {
    if (session->buffer.size() + kWatchBytes > session->buffer.max_size()) break;
    const auto [failure, bytes] =
        co_await session->stream.async_read_some(session->buffer.prepare(kWatchBytes), kTuple);
    session->buffer.commit(bytes);
    code = failure;
  }
  wait->watcher.reset();
  if (wait->finished) co_return std::move(wait->response);
  wait->cancel.emit(asio::cancellation_type::terminal);
  co_return std::nullopt;
}

Task<std::optional<HttpResponse>> HttpServer::dispatch(std::shared_ptr<HttpServer> self,
                                                       std::shared_ptr<Session> session,
                                                       HttpRequest request) {
  if (!self->waits_ || !self->waits_(request)) co_return co_await answer(self, std::move(request));
  if (self->waiting_ < self->limits_.waiting)
    co_return co_await answer_waiting(self, session, std::move(request));
  HttpResponse busy =
      self->refuse_(503, std::to_string(self->waiting_) +
                             " calls already wait for a change, which is the limit: try again later");
  busy.headers.emplace_back("Retry-After", "1");
  co_return std::move(busy);
}

Task<bool> HttpServer::serve_next(std::shared_ptr<HttpServer> self, std::shared_ptr<Session> session) {
  http::request_parser<http::string_body> parser;
  parser.body_limit(kMaxBodyBytes);
  parser.header_limit(kMaxHeaderBytes);
  session->stream.close_after(kIdleTimeout);
  const auto idle = self->idle_.insert(self->idle_.end(), &session->stream);
  const auto [read_code, read_bytes] =
      co_await http::async_read(session->stream, session->buffer, parser, kTuple);
  self->idle_.erase(idle);
  std::optional<HttpResponse> response;
  bool keep_alive = false;
  if (read_code == http::error::body_limit || read_code == http::error::header_limit) {
    response = self->refuse_(413, "The request is too large");
  } else if (read_code) {
    // After the end of the stream, a timeout, or data that is not HTTP, there is no client or no sensible
    // answer.
    co_return false;
  } else {
    HttpRequest request;
    const auto& message = parser.get();
    keep_alive = message.keep_alive();
    request.method = std::string(message.method_string());
    request.authorization = std::string(message[http::field::authorization]);
    request.peer = session->stream.peer();
    request.user = session->user;
    auto target = parse_http_target({message.target().data(), message.target().size()});
    request.body = message.body();
    session->stream.close_never();
    if (target) {
      request.path = std::move(target->path);
      request.query = std::move(target->query);
      response = co_await dispatch(self, session, std::move(request));
    } else {
      response = self->refuse_(400, "The request target is malformed");
    }
  }
  if (!response) co_return false;
  keep_alive = keep_alive && !self->full();
  Message message = to_message(std::move(*response), 11, keep_alive);
  session->stream.close_after(kIdleTimeout);
  const auto [write_code, written] = co_await http::async_write(session->stream, message, kTuple);
  co_return !write_code && keep_alive;
}

Task<bool> HttpServer::secure(std::shared_ptr<HttpServer> self, std::shared_ptr<Session> session) {
  if (session->user) co_return true;
  Result<void> secured = session->stream.use(self->tls_);
  if (secured) {
    session->stream.close_after(kHandshakeTimeout);
    const auto idle = self->idle_.insert(self->idle_.end(), &session->stream);
    secured = co_await session->stream.handshake(Stream::Side::kAccepts);
    self->idle_.erase(idle);
  }
  if (secured) co_return true;
  self->log_refused(secured.error().to_string());
  co_return false;
}

Task<> HttpServer::serve(std::shared_ptr<HttpServer> self, std::shared_ptr<Session> session) {
  // The conditions are separate, because g++ 12 always awaits the right operand of &&.
  if (co_await secure(self, session)) {
    const auto open = self->open_.insert(self->open_.end(), &session->stream);
    while (co_await serve_next(self, session)) {
    }
    self->open_.erase(open);
  }
  boost::system::error_code ignored;
  session->stream.socket().shutdown(asio::socket_base::shutdown_both, ignored);
  self->finished();
}

}  // namespace ckpt::control
