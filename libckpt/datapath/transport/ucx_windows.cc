// SPDX-License-Identifier: Apache-2.0
#include "libckpt/datapath/transport/ucx_windows.h"

#include <cstring>

#include "libckpt/datapath/transport/session.h"
#include "libckpt/datapath/transport/ucx_context.h"
#include "libckpt/datapath/transport/ucx_lane.h"

namespace ckpt::transport {

Result<void> SendWindow::send(ucp_ep_h endpoint, std::span<const std::byte> header,
                              std::span<const std::byte> payload, std::uint64_t token,
                              std::uint64_t delivered, bool same_host, std::size_t& outstanding) {
  Request& of_message = (*requests_)[ring_.end() % kMaxInFlight];
  Outgoing& message = ring_.prepare(header, payload, token, delivered, same_host);
  of_message = {&message, &outstanding};

  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS;
  param.cb.send = &SendWindow::on_done;
  param.user_data = &of_message;
  param.flags = UCP_AM_SEND_FLAG_REPLY |
                (message.large && !message.same_host ? UCP_AM_SEND_FLAG_RNDV : UCP_AM_SEND_FLAG_EAGER);
  const ucs_status_ptr_t request =
      ucp_am_send_nbx(endpoint, kActiveMessageId, message.head.data(), message.head_bytes,
                      message.payload.data(), message.payload.size(), &param);
  if (UCS_PTR_IS_ERR(request)) return ucx_error(UCS_PTR_STATUS(request), "Sending a message");
  ring_.commit();
  if (request == nullptr) {
    message.done = true;
  } else {
    ++outstanding;
  }
  return ok();
}

// Handles a completed send. A failed send ends the lane through its endpoint's error handler. The message is
// then not reported as sent.
void SendWindow::on_done(void* request, ucs_status_t status, void* of_message) {
  const auto& [message, outstanding] = *static_cast<Request*>(of_message);
  --*outstanding;
  message->done = status == UCS_OK;
  ucp_request_free(request);
}

Result<void> ReceiveWindow::accept(ucp_worker_h worker, const FrameView& view, void* data, bool rendezvous,
                                   const SameHostPeer& same_host, LaneHandler& handler,
                                   std::size_t& outstanding) {
  Slot& slot = (*slots_)[view.frame.sequence % kSlots];
  if (view.frame.sequence - count_.delivered() >= kSlots || slot.state != State::kEmpty)
    return Error(ErrorCode::kProtocol, "The peer sent a message out of order");
  slot.header_bytes = view.header.size();
  if (!view.header.empty()) std::memcpy(slot.header.data(), view.header.data(), view.header.size());
  slot.payload = {};
  slot.same_host = view.frame.kind == FrameKind::kSameHost;
  if (slot.same_host && !same_host.reader)
    return Error(
        ErrorCode::kProtocol,
        "The peer requested that this side read its memory, but the two sides have not agreed on that");
  const std::size_t bytes = view.frame.payload_bytes;
  if (slot.same_host) {
    std::uint64_t address = 0;
    std::memcpy(&address, data, sizeof address);
    CKPT_TRY(payload, receive_same_host(*same_host.reader, same_host.mapping, address,
                                        {slot.header.data(), slot.header_bytes}, bytes, handler));
    slot.payload = payload;
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
  const Slot& slot = (*slots_)[count_.delivered() % kSlots];
  if (slot.state != State::kReady) return std::nullopt;
  return Delivery{{slot.header.data(), slot.header_bytes}, slot.payload};
}

void ReceiveWindow::pop() noexcept {
  Slot& slot = (*slots_)[count_.delivered() % kSlots];
  slot.state = State::kEmpty;
  count_.add(slot.same_host);
}

}  // namespace ckpt::transport
