// SPDX-License-Identifier: Apache-2.0
#include "libckpt/datapath/transport/tls_lane.h"

#include <poll.h>

#include <algorithm>
#include <cstring>

#include "libckpt/datapath/transport/session.h"

namespace ckpt::transport {
namespace {

// The maximum number of bytes that one progress() reads, and that it writes, so that the caller gets its
// turn.
constexpr std::size_t kRoundBytes = std::size_t{2} << 20;

Error out_of_place() {
  return {ErrorCode::kProtocol, "The peer sent a frame that is not allowed now"};
}

}  // namespace

Result<std::unique_ptr<TlsLane>> TlsLane::listen(std::shared_ptr<const tls::PskContext> context,
                                                 const LaneAddress& local, const TlsOptions& options,
                                                 const SessionToken& token, LaneHandler& handler) {
  CKPT_TRY(waker, LaneWaker::create());
  std::unique_ptr<TlsLane> lane(new TlsLane(options, token, handler, std::move(waker)));
  CKPT_TRY(gate, TlsGate::listen(std::move(context), local, options.ports, token, options.greeting_nanos));
  lane->gate_ = std::move(gate);
  lane->address_ = lane->gate_->address();
  return lane;
}

Result<std::unique_ptr<TlsLane>> TlsLane::connect(std::shared_ptr<const tls::PskContext> context,
                                                  const LaneAddress& local, const TlsOptions& options,
                                                  const LaneAddress& remote, const std::string& name,
                                                  const SessionToken& token, LaneHandler& handler) {
  CKPT_TRY(waker, LaneWaker::create());
  std::unique_ptr<TlsLane> lane(new TlsLane(options, token, handler, std::move(waker)));
  CKPT_TRY(key, lane_psk(token));
  CKPT_TRY(socket, dial_tls(local, remote));
  CKPT_TRY(stream, tls::PskStream::client(std::move(context), std::move(socket), name, key));
  lane->stream_ = std::move(stream);
  lane->stream_->set_rekey_bytes(options.rekey_bytes);
  lane->offer_ = offer_same_host(handler.same_host_memory(), token);
  return lane;
}

TlsLane::~TlsLane() {
  shut_down();
}

Result<void> TlsLane::send(std::span<const std::byte> header, std::span<const std::byte> payload,
                           std::uint64_t token) {
  if (closed_reason_) return *closed_reason_;
  CKPT_TRYV(check_sizes(header.size(), payload.size()));
  if (!open_) return Error(ErrorCode::kRefused, "The lane is not open yet");
  if (sends_.full()) return Error(ErrorCode::kRefused, "The lane has no space for another message");
  sends_.prepare(header, payload, token, count_.mark_reported(), payload_access_ != PayloadAccess::kSent);
  sends_.commit();
  return ok();
}

bool TlsLane::progress() {
  if (closed_reason_ || in_callback_) return false;
  in_callback_ = true;
  bool any = !open_ && approach();
  if (open_) {
    any |= report_sent();
    any |= receive();
    any |= transmit();
  }
  in_callback_ = false;
  if (close_requested_) {
    finish(Error(ErrorCode::kAborted, "The lane was closed on this side"));
  } else if (failed_) {
    finish(std::move(*failed_));
  } else {
    return any;
  }
  return true;
}

// Continues the handshake that opens the lane.
bool TlsLane::approach() {
  if (gate_ == nullptr) return greet();
  auto arrival = gate_->progress();
  if (arrival) take_peer(std::move(*arrival));
  return arrival.has_value();
}

bool TlsLane::greet() {
  const auto ready = stream_->handshake();
  if (!ready.has_value()) fail(ready.error());
  if (!ready.has_value() || !*ready) return false;
  if (!hello_sent_) {
    std::array<std::byte, kMaxHelloBytes> hello{};
    const auto bytes = std::span(hello).first(write_hello({token_, offer_}, hello));
    const auto written = stream_->write(bytes);
    hello_sent_ = written.has_value() && *written == bytes.size();
  }
  const auto flushed = stream_->flush();
  if (!flushed.has_value()) fail(flushed.error());
  return receive();  // receives WELCOME
}

void TlsLane::take_peer(TlsGate::Arrival arrival) {
  stream_ = std::move(arrival.stream);
  stream_->set_rekey_bytes(rekey_bytes_);
  gate_.reset();
  same_host_ = SameHostPeer::open(arrival.offer, token_, handler_);
  welcome_due_ = true;
  open();
}

void TlsLane::open() {
  stream_->widen();
  open_ = true;
  handler_.on_open();
}

bool TlsLane::receive() {
  bool any = false;
  for (std::size_t received = 0; received < kRoundBytes && !failed_ && !close_requested_;) {
    auto got = receive_some();
    if (!got.has_value()) {
      fail(std::move(got).error());
      break;
    }
    drained_ = *got == 0;
    if (drained_) break;
    any = true;
    received += *got;
  }
  return any;
}

// Receives a frame, or a piece of a payload.
Result<std::size_t> TlsLane::receive_some() {
  if (payload_.empty()) {
    CKPT_TRY(view, frames_.read(*stream_));
    if (!view) return std::size_t{0};
    CKPT_TRYV(handle_frame(*view));
    return sizeof(Frame) + view->header.size();
  }
  CKPT_TRY(got, stream_->read(payload_.subspan(arrived_)));
  arrived_ += got;
  if (arrived_ == payload_.size()) {
    CKPT_TRYV(end_payload());
  }
  return got;
}

Result<void> TlsLane::handle_frame(const FrameView& view) {
  const FrameKind kind = view.frame.kind;
  const bool has_message = kind == FrameKind::kMessage || kind == FrameKind::kSameHost;
  if (!has_message && view.frame.bytes_behind() != 0) return out_of_place();
  if (!open_) {
    if (kind != FrameKind::kWelcome) return out_of_place();
    payload_access_ = access_of_welcome(view.frame, offer_);
    open();
    return ok();
  }
  if (kind == FrameKind::kBye) {
    peer_left_ = true;
    return Error(ErrorCode::kUnavailable, "The peer has closed the lane");
  }
  if (!has_message && kind != FrameKind::kCredit) return out_of_place();
  CKPT_TRYV(sends_.apply_credit(view.frame.delivered));
  return has_message ? begin_message(view) : Result<void>(ok());
}

Result<void> TlsLane::begin_message(const FrameView& view) {
  if (view.frame.sequence != count_.delivered())
    return Error(ErrorCode::kProtocol, "The peer sent a message out of order");
  message_ = view;
  arrived_ = 0;
  if (view.frame.kind == FrameKind::kSameHost) {
    if (!same_host_.reader)
      return Error(
          ErrorCode::kProtocol,
          "The peer requested that this side read its memory, but the two sides have not agreed on that");
    payload_ = std::as_writable_bytes(std::span(&same_host_address_, 1));
    return ok();
  }
  const std::size_t bytes = view.frame.payload_bytes;
  if (bytes == 0) {
    deliver({});
    return ok();
  }
  payload_ = handler_.on_payload_begin(view.header, bytes);
  if (payload_.size() != bytes) return refused_payload(bytes);
  return ok();
}

Result<void> TlsLane::end_payload() {
  std::span<const std::byte> payload = std::exchange(payload_, {});
  if (message_.frame.kind == FrameKind::kSameHost) {
    CKPT_TRY(read, receive_same_host(*same_host_.reader, same_host_.mapping, same_host_address_,
                                     message_.header, message_.frame.payload_bytes, handler_));
    payload = read;
  }
  deliver(payload);
  return ok();
}

void TlsLane::deliver(std::span<const std::byte> payload) {
  handler_.on_message(message_.header, payload);
  count_.add(message_.frame.kind == FrameKind::kSameHost);
}

bool TlsLane::report_sent() {
  bool any = false;
  while (!close_requested_) {
    const std::optional<std::uint64_t> token = sends_.pop_sent();
    if (!token) break;
    any = true;
    handler_.on_sent(*token);
  }
  return any;
}

// Writes the waiting frames to the stream, as far as the stream has space.
bool TlsLane::transmit() {
  bool any = false;
  for (std::size_t written = 0; written < kRoundBytes && !failed_ && !close_requested_;) {
    auto sent = transmit_some(kRoundBytes - written);
    if (!sent.has_value()) {
      fail(std::move(sent).error());
      break;
    }
    if (*sent == 0) break;
    any = true;
    written += *sent;
  }
  const auto flushed = stream_->flush();
  if (!flushed.has_value()) fail(flushed.error());
  return any;
}

// Transmits a frame, or a piece of a payload. Returns 0 if there is no data or no space.
Result<std::size_t> TlsLane::transmit_some(std::size_t max_bytes) {
  std::size_t sent = 0;
  if (!in_message_) {
    CKPT_TRY(started, start_frame());
    if (!started) return std::size_t{0};
    sent = sizeof(Frame);
  }
  if (!in_message_) return sent;  // the frame was a control frame
  if (!leaving_.empty()) {
    CKPT_TRY(written, stream_->write(leaving_.first(std::min(max_bytes, leaving_.size()))));
    leaving_ = leaving_.subspan(written);
    sent += written;
  }
  if (leaving_.empty()) {
    sends_.at(next_++).done = true;
    in_message_ = false;
  }
  return sent;
}

// Starts the next frame. Control frames are sent between messages. The count of delivered messages is sent
// alone if no message carries it: occasionally, and at once for same-host messages.
Result<bool> TlsLane::start_frame() {
  if (welcome_due_) {
    CKPT_TRY(sent, send_control(FrameKind::kWelcome));
    welcome_due_ = !sent;
    return sent;
  }
  if (count_.due()) return send_control(FrameKind::kCredit);
  if (next_ == sends_.end()) return false;
  const Outgoing& message = sends_.at(next_);
  CKPT_TRY(written, stream_->write(std::span(message.head).first(message.head_bytes)));
  in_message_ = written > 0;
  leaving_ = message.payload;
  return in_message_;
}

Result<bool> TlsLane::send_control(FrameKind kind) {
  Frame frame;
  frame.kind = kind;
  frame.delivered = count_.delivered();
  if (kind == FrameKind::kWelcome) frame.sequence = static_cast<std::uint64_t>(same_host_.access());
  CKPT_TRY(written, stream_->write(std::as_bytes(std::span(&frame, 1))));
  if (written == 0) return false;
  count_.mark_reported();
  return true;
}

// Returns whether data waits for this lane's next step instead of waiting for space in the socket.
bool TlsLane::can_transmit() const noexcept {
  const bool waits = welcome_due_ || in_message_ || next_ != sends_.end() || count_.due();
  return waits && (stream_->events() & POLLOUT) == 0;
}

void TlsLane::wait(Nanos timeout) {
  if (closed_reason_ || !drained_ || (open_ && can_transmit())) return;
  std::array<pollfd, TlsGate::kMaxWatched + 1> watched{};
  watched[0] = {waker_->fd(), POLLIN, 0};
  std::size_t count = 1;
  if (gate_ != nullptr) {
    count += gate_->watch(std::span(watched).subspan(1));
    if (const auto next = gate_->next_deadline()) timeout = std::clamp<Nanos>(*next - now_ns(), 0, timeout);
  } else {
    watched[count++] = {stream_->fd(), stream_->events(), 0};
  }
  const timespec limit{timeout / 1'000'000'000, timeout % 1'000'000'000};
  ::ppoll(watched.data(), count, &limit, nullptr);
  if (watched[0].revents != 0) waker_->drain();
}

void TlsLane::wake() noexcept {
  waker_->wake();
}

void TlsLane::close() {
  if (closed_reason_) return;
  if (in_callback_) {
    close_requested_ = true;
    return;
  }
  finish(Error(ErrorCode::kAborted, "The lane was closed on this side"));
}

void TlsLane::fail(Error error) {
  if (failed_) return;
  if (!open_) {
    failed_ = never_opened().caused_by(std::move(error));
  } else if (error.code() == ErrorCode::kUnavailable && !peer_left_) {
    failed_ = Error(ErrorCode::kUnavailable, "The peer has disconnected").caused_by(std::move(error));
  } else {
    failed_ = std::move(error);
  }
}

// Shuts the lane down. BYE is sent where a frame may begin. If BYE cannot be sent at once, the peer finds
// that the connection has ended.
void TlsLane::shut_down() {
  gate_.reset();
  if (stream_ == nullptr) return;
  if (open_ && !peer_left_ && !in_message_) (void)send_control(FrameKind::kBye);
  stream_->finish();
  stream_.reset();
}

void TlsLane::finish(Error reason) {
  shut_down();
  closed_reason_ = std::move(reason);
  handler_.on_closed(*closed_reason_);
}

}  // namespace ckpt::transport
