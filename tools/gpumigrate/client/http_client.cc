// SPDX-License-Identifier: Apache-2.0
#include "tools/gpumigrate/client/http_client.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/beast/core.hpp>
#include <boost/beast/http.hpp>
#include <csignal>
#include <list>

#include "libckpt/net/control/address.h"
#include "libckpt/net/control/stream.h"

namespace ckpt::cli {

namespace asio = boost::asio;
namespace beast = boost::beast;
namespace http = boost::beast::http;

namespace {
constexpr std::uint64_t kLargestAnswer = std::uint64_t{64} << 20;
}

struct HttpClient::Loop {
  asio::io_context io;
  std::optional<asio::signal_set> signals;
  int interrupts = 0;            // interrupts since the last consume_interrupts()
  std::function<void()> cancel;  // ends the current wait
  std::function<void()> on_interrupt;
  // The handler compares its own timer with this one, because asio may still call the handler of a replaced
  // timer that was already due.
  std::shared_ptr<asio::steady_timer> deadline;
  bool is_over_time = false;
  std::shared_ptr<asio::steady_timer> ticker;

  void wait_for_signal() {
    signals->async_wait([this](const boost::system::error_code& error, int) {
      if (error) return;
      interrupts++;
      if (const auto action = on_interrupt) action();
      if (cancel) cancel();
      wait_for_signal();
    });
  }

  void wait_for_deadline() {
    deadline->async_wait([this, own = deadline.get()](const boost::system::error_code& error) {
      if (error || deadline.get() != own) return;
      is_over_time = true;
      if (cancel) cancel();
    });
  }

  void wait_for_tick(std::chrono::milliseconds every, const std::function<void()>& on_tick) {
    ticker->expires_after(every);
    ticker->async_wait([this, every, on_tick, own = ticker.get()](const boost::system::error_code& error) {
      if (error || ticker.get() != own) return;
      on_tick();
      if (ticker.get() == own) wait_for_tick(every, on_tick);
    });
  }

  // Runs one asynchronous operation to its end.
  template <typename Start>
  boost::system::error_code wait(const Start& start) {
    std::optional<boost::system::error_code> result;
    start([&result](const boost::system::error_code& error, auto&&...) { result = error; });
    io.restart();
    while (!result) io.run_one();
    return *result;
  }
};

HttpClient::HttpClient() : loop_(std::make_unique<Loop>()) {}
HttpClient::~HttpClient() = default;

void HttpClient::catch_interrupts() {
  if (loop_->signals) return;
  loop_->signals.emplace(loop_->io, SIGINT, SIGTERM);
  loop_->wait_for_signal();
}

int HttpClient::consume_interrupts() {
  loop_->io.restart();
  loop_->io.poll();
  return std::exchange(loop_->interrupts, 0);
}

void HttpClient::on_interrupt(std::function<void()> action) {
  loop_->on_interrupt = std::move(action);
}

void HttpClient::set_deadline(std::optional<Time> deadline) {
  loop_->deadline.reset();
  loop_->is_over_time = false;
  if (!deadline) return;
  loop_->deadline = std::make_shared<asio::steady_timer>(loop_->io, *deadline);
  loop_->wait_for_deadline();
}

bool HttpClient::is_over_time() const {
  return loop_->is_over_time;
}

void HttpClient::set_ticker(std::chrono::milliseconds every, std::function<void()> action) {
  loop_->ticker.reset();
  if (!action) return;
  loop_->ticker = std::make_shared<asio::steady_timer>(loop_->io);
  loop_->wait_for_tick(every, action);
}

void HttpClient::pause(std::chrono::milliseconds time) {
  if (loop_->interrupts > 0 || loop_->is_over_time) return;
  asio::steady_timer timer(loop_->io, time);
  loop_->cancel = [&] { timer.cancel(); };
  loop_->wait([&](auto handler) { timer.async_wait(handler); });
  loop_->cancel = nullptr;
}

void HttpClient::wait_readable(const std::vector<int>& descriptors, std::chrono::milliseconds time) {
  if (loop_->interrupts > 0 || loop_->is_over_time) return;
  // The timer is shared, because a descriptor may become readable exactly when the time is over.
  const auto timer = std::make_shared<asio::steady_timer>(loop_->io, time);
  std::list<asio::posix::stream_descriptor> watched;
  for (const int descriptor : descriptors) {
    watched.emplace_back(loop_->io, descriptor);
    watched.back().async_wait(asio::posix::stream_descriptor::wait_read,
                              [timer](const boost::system::error_code&) { timer->cancel(); });
  }
  loop_->cancel = [timer] { timer->cancel(); };
  loop_->wait([&](auto handler) { timer->async_wait(handler); });
  loop_->cancel = nullptr;
  for (auto& descriptor : watched) descriptor.release();  // the caller owns the descriptor
}

namespace {

http::request<http::string_body> encode(const HttpRequest& request) {
  http::request<http::string_body> message(http::string_to_verb(request.method), request.target, 11);
  message.set(http::field::host, request.socket.empty() ? request.host : "localhost");
  if (!request.token.empty()) message.set(http::field::authorization, "Bearer " + request.token);
  message.set(http::field::user_agent, "gpumigrate/" GPUMIGRATE_VERSION);
  message.keep_alive(false);
  if (!request.body.empty()) {
    message.set(http::field::content_type, "application/json");
    message.body() = request.body;
  }
  message.prepare_payload();
  return message;
}

HttpResponse decode(http::response<http::string_body>&& message) {
  HttpResponse response;
  response.status = message.result_int();
  response.log = {.next_offset = std::string(message["X-Next-Offset"]),
                  .ended = message["X-Ended"] == "true",
                  .length = std::string(message["X-Length"]),
                  .incarnation = std::string(message["X-Incarnation"]),
                  .restored_from = std::string(message["X-Restored-From"]),
                  .missing = std::string(message["X-Missing"]),
                  .skipped = std::string(message["X-Skipped"]),
                  .lost_ms = std::string(message["X-Lost-Ms"])};
  response.body = std::move(message.body());
  return response;
}

std::string place_of(const HttpRequest& request) {
  if (!request.socket.empty()) return "the coordinator at " + request.socket;
  return "the coordinator at " + request.host + ":" + std::to_string(request.port);
}

Error no_connection(const HttpRequest& request, const boost::system::error_code& error) {
  return Error(ErrorCode::kUnavailable, "Cannot reach " + place_of(request) + " (" + error.message() + ")");
}

Result<control::Address> address_of(const HttpRequest& request) {
  if (!request.socket.empty()) return control::parse_address("unix:" + request.socket);
  boost::system::error_code error;
  const auto host = asio::ip::make_address(request.host, error);
  if (error) return no_connection(request, error);
  if (!request.identity)
    return Error(ErrorCode::kRefused, "Cannot ask " + place_of(request) + ": this client has no certificate");
  return control::Address{asio::ip::tcp::endpoint(host, request.port), false};
}

}  // namespace

Result<HttpResponse> HttpClient::send(const HttpRequest& request) {
  Loop& loop = *loop_;
  boost::system::error_code error;
  CKPT_TRY(address, address_of(request));
  control::Stream stream{control::Stream::Socket(loop.io)};
  if (request.socket.empty()) {
    CKPT_TRYV(stream.use({request.identity, control::only(tls::Peer::coordinator())}));
  }
  stream.close_after(request.timeout);
  const auto interrupted = [&] { return loop.interrupts >= request.interrupts || loop.is_over_time; };
  if (interrupted()) return Error(ErrorCode::kAborted, "Interrupted before the coordinator answered");
  // Closing the stream also fails the operations that begin after it.
  loop.cancel = [&] {
    if (interrupted()) stream.close();
  };
  struct ForgetCancel {
    Loop& loop;
    ~ForgetCancel() { loop.cancel = nullptr; }
  } forget{loop};

  error = loop.wait([&](auto handler) { stream.socket().async_connect(address.endpoint, handler); });
  if (interrupted()) return Error(ErrorCode::kAborted, "Interrupted before the coordinator answered");
  if (error) return no_connection(request, error);
  // The handshake and the request are several small writes, which must not be delayed.
  if (request.socket.empty()) stream.socket().set_option(asio::ip::tcp::no_delay(true), error);
  Result<void> secured = ok();
  (void)loop.wait([&](auto handler) {
    stream.handshake(control::Stream::Side::kDials, [&secured, handler](Result<void> outcome) {
      secured = std::move(outcome);
      handler(boost::system::error_code());
    });
  });
  if (interrupted()) return Error(ErrorCode::kAborted, "Interrupted before the coordinator answered");
  if (!secured)
    return Error(secured.error().code(), "Cannot connect to " + place_of(request)).caused_by(secured.error());
  const auto message = encode(request);
  error = loop.wait([&](auto handler) { http::async_write(stream, message, handler); });
  beast::flat_buffer buffer;
  http::response_parser<http::string_body> parser;
  parser.body_limit(kLargestAnswer);
  if (!error) error = loop.wait([&](auto handler) { http::async_read(stream, buffer, parser, handler); });
  if (error && interrupted())
    return Error(ErrorCode::kAborted, "Interrupted before the coordinator answered");
  if (error && error.category() == http::make_error_code(http::error::body_limit).category() &&
      error != http::error::end_of_stream && error != http::error::partial_message) {
    return Error(ErrorCode::kProtocol,
                 "The coordinator's answer to " + request.target + " is not valid: " + error.message());
  }
  if (error)
    return Error(ErrorCode::kTimedOut, "Lost contact with the coordinator (" + error.message() + ")");
  return decode(parser.release());
}

}  // namespace ckpt::cli
