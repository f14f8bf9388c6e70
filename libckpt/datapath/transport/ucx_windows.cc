// SPDX-License-Identifier: Apache-2.0
#include "libckpt/datapath/transport/ucx_windows.h"

#include <algorithm>
#include <cstring>

#include "libckpt/datapath/transport/session.h"
#include "libckpt/datapath/transport/ucx_context.h"
#include "libckpt/datapath/transport/ucx_lane.h"

namespace ckpt::transport {

Result<FrameView> parse_frame(const void* header, std::size_t header_bytes, std::size_t payload_bytes) {
  FrameView view;
  if (header == nullptr || header_bytes < sizeof(Frame) || header_bytes > sizeof(Frame) + kMaxHeaderBytes)
    return Error(ErrorCode::kProtocol,
                 "The peer sent a message whose header has " + std::to_string(header_bytes) + " bytes");
  std::memcpy(&view.frame, header, sizeof(Frame));
  const bool near = view.frame.kind == FrameKind::kSameHost;
  if (view.frame.magic != Frame::kMagic || view.frame.header_bytes != header_bytes - sizeof(Frame) ||
      payload_bytes != (near ? sizeof(std::uint64_t) : view.frame.payload_bytes) ||
      view.frame.payload_bytes > kMaxPayloadBytes)
    return Error(ErrorCode::kProtocol, "The peer sent a message that is no frame of this protocol");
  view.header = {static_cast<const std::byte*>(header) + sizeof(Frame), view.frame.header_bytes};
  return view;
}

Result<void> SendWindow::send(ucp_ep_h endpoint, std::span<const std::byte> header,
                              std::span<const std::byte> payload, std::uint64_t token,
                              std::uint64_t delivered, bool near, std::size_t& outstanding) {
  Slot& slot = (*slots_)[end_ % kMaxInFlight];
  const bool large = payload.size() >= kRendezvousBytes;
  slot.near = near && large;
  slot.address = reinterpret_cast<std::uint64_t>(payload.data());
  Frame frame;
  if (slot.near) frame.kind = FrameKind::kSameHost;
  frame.header_bytes = static_cast<std::uint16_t>(header.size());
  frame.sequence = end_;
  frame.payload_bytes = payload.size();
  frame.delivered = delivered;
  std::memcpy(slot.header.data(), &frame, sizeof frame);
  if (!header.empty()) std::memcpy(slot.header.data() + sizeof frame, header.data(), header.size());
  slot.token = token;
  slot.outstanding = &outstanding;
  slot.done = false;

  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS;
  param.cb.send = &SendWindow::on_done;
  param.user_data = &slot;
  param.flags =
      UCP_AM_SEND_FLAG_REPLY | (large && !slot.near ? UCP_AM_SEND_FLAG_RNDV : UCP_AM_SEND_FLAG_EAGER);
  const std::span<const std::byte> sent = slot.near ? std::as_bytes(std::span(&slot.address, 1)) : payload;
  const ucs_status_ptr_t request =
      ucp_am_send_nbx(endpoint, kActiveMessageId, slot.header.data(), sizeof frame + header.size(),
                      sent.data(), sent.size(), &param);
  if (UCS_PTR_IS_ERR(request)) return ucx_error(UCS_PTR_STATUS(request), "Sending a message");
  ++end_;
  if (request == nullptr) {
    slot.done = true;
  } else {
    ++outstanding;
  }
  return ok();
}

// A failed send ends the lane through its endpoint's error handler; the message is then not reported as sent.
void SendWindow::on_done(void* request, ucs_status_t status, void* slot_pointer) {
  auto& slot = *static_cast<Slot*>(slot_pointer);
  --*slot.outstanding;
  slot.done = status == UCS_OK;
  ucp_request_free(request);
}

Result<void> SendWindow::take_credit(std::uint64_t delivered) {
  if (delivered > end_)
    return Error(ErrorCode::kProtocol, "The peer acknowledges messages that were not sent");
  credited_ = std::max(credited_, delivered);
  return ok();
}

std::optional<std::uint64_t> SendWindow::pop_sent() noexcept {
  if (first_ == end_ || first_ >= credited_ + kMaxAhead) return std::nullopt;
  const Slot& slot = (*slots_)[first_ % kMaxInFlight];
  if (!slot.done || (slot.near && first_ >= credited_)) return std::nullopt;
  ++first_;
  return slot.token;
}

Result<void> ReceiveWindow::accept(ucp_worker_h worker, const FrameView& view, void* data, bool rendezvous,
                                   const SameHostReader* near, const SameHostMapping& mapping,
                                   LaneHandler& handler, std::size_t& outstanding) {
  Slot& slot = (*slots_)[view.frame.sequence % kSlots];
  if (view.frame.sequence - next_ >= kSlots || slot.state != State::kEmpty)
    return Error(ErrorCode::kProtocol, "The peer sent a message out of order");
  slot.header_bytes = view.header.size();
  if (!view.header.empty()) std::memcpy(slot.header.data(), view.header.data(), view.header.size());
  slot.payload = {};
  slot.near = view.frame.kind == FrameKind::kSameHost;
  if (slot.near && near == nullptr)
    return Error(ErrorCode::kProtocol, "The peer wants its memory to be read, which was not agreed on");
  const std::size_t bytes = view.frame.payload_bytes;
  if (slot.near) {
    CKPT_TRYV(read_same_host(*near, mapping, data, bytes, slot, handler));
  } else if (bytes > 0) {
    const std::span<std::byte> to = handler.on_payload_begin({slot.header.data(), slot.header_bytes}, bytes);
    if (to.size() != bytes) return refused_payload(bytes);
    slot.payload = to;
    if (rendezvous) return start_rendezvous(worker, slot, to, data, outstanding);
    std::memcpy(to.data(), data, bytes);
  }
  slot.state = State::kReady;
  return ok();
}

Result<void> ReceiveWindow::read_same_host(const SameHostReader& near, const SameHostMapping& mapping,
                                           const void* data, std::size_t bytes, Slot& slot,
                                           LaneHandler& handler) {
  if (bytes == 0) return ok();
  std::uint64_t address = 0;
  std::memcpy(&address, data, sizeof address);
  slot.payload = mapping.find(address, bytes);
  if (!slot.payload.empty()) return ok();
  const std::span<std::byte> to = handler.on_payload_begin({slot.header.data(), slot.header_bytes}, bytes);
  if (to.size() != bytes) return refused_payload(bytes);
  slot.payload = to;
  return near.read(address, to);
}

Result<void> ReceiveWindow::start_rendezvous(ucp_worker_h worker, Slot& slot, std::span<std::byte> to,
                                             void* data, std::size_t& outstanding) {
  slot.state = State::kReceiving;
  slot.window = this;
  slot.outstanding = &outstanding;
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA;
  param.cb.recv_am = &ReceiveWindow::on_done;
  param.user_data = &slot;
  const ucs_status_ptr_t request = ucp_am_recv_data_nbx(worker, data, to.data(), to.size(), &param);
  if (UCS_PTR_IS_ERR(request)) return ucx_error(UCS_PTR_STATUS(request), "Receiving a payload");
  if (request == nullptr) {
    slot.state = State::kReady;
  } else {
    ++outstanding;
  }
  return ok();
}

void ReceiveWindow::on_done(void* request, ucs_status_t status, std::size_t length, void* slot_pointer) {
  auto& slot = *static_cast<Slot*>(slot_pointer);
  --*slot.outstanding;
  if (status == UCS_OK && length == slot.payload.size()) {
    slot.state = State::kReady;
  } else {
    slot.window->failure_ = status == UCS_OK ? UCS_ERR_MESSAGE_TRUNCATED : status;
  }
  ucp_request_free(request);
}

std::optional<ReceiveWindow::Delivery> ReceiveWindow::front() const noexcept {
  const Slot& slot = (*slots_)[next_ % kSlots];
  if (slot.state != State::kReady) return std::nullopt;
  return Delivery{{slot.header.data(), slot.header_bytes}, slot.payload};
}

void ReceiveWindow::pop() noexcept {
  Slot& slot = (*slots_)[next_ % kSlots];
  slot.state = State::kEmpty;
  ++next_;
  if (slot.near) awaited_ = next_;
}

}  // namespace ckpt::transport
