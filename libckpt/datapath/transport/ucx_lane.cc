// SPDX-License-Identifier: Apache-2.0
#include "libckpt/datapath/transport/ucx_lane.h"

#include <poll.h>

#include <algorithm>
#include <cstring>

#include "libckpt/datapath/transport/session.h"

namespace ckpt::transport {
namespace {

// The number of connections that may wait for their HELLO at the same time. More are rejected.
constexpr std::size_t kMaxUnauthenticatedPeers = 4;
// The number of rounds of UCX's progress in one call. It is enough to empty sockets, and low enough that the
// caller gets its turn.
constexpr int kProgressRounds = 64;
// The time limit of a shutdown. UCX soon completes outstanding requests at a forced close. After this time
// the destruction of the worker completes them.
constexpr Nanos kShutDownNanos = 200'000'000;

}  // namespace

Result<std::unique_ptr<UcxLane>> UcxLane::listen(std::shared_ptr<const UcxContext> context,
                                                 const SessionToken& token, LaneHandler& handler) {
  std::unique_ptr<UcxLane> lane(new UcxLane(std::move(context), token, handler, true));
  CKPT_TRYV(lane->start());
  CKPT_TRYV(lane->start_listener());
  return lane;
}

Result<std::unique_ptr<UcxLane>> UcxLane::connect(std::shared_ptr<const UcxContext> context,
                                                  const LaneAddress& address, const SessionToken& token,
                                                  LaneHandler& handler) {
  std::unique_ptr<UcxLane> lane(new UcxLane(std::move(context), token, handler, false));
  CKPT_TRYV(lane->start());
  ucp_ep_params_t params{};
  params.field_mask =
      UCP_EP_PARAM_FIELD_FLAGS | UCP_EP_PARAM_FIELD_SOCK_ADDR | UCP_EP_PARAM_FIELD_LOCAL_SOCK_ADDR;
  params.flags = UCP_EP_PARAMS_FLAGS_CLIENT_SERVER;
  const LaneAddress& local = lane->context_->local();
  if (local.family() != address.family())
    return Error(ErrorCode::kInvalidArgument,
                 "The lane's address and this side's address have different address families");
  params.sockaddr = {address.get(), address.length};
  params.local_sockaddr = {local.get(), local.length};
  CKPT_TRY(connection, lane->make_connection(params));
  lane->peer_ = std::move(connection);
  lane->offer_ = offer_same_host(handler.same_host_memory(), token);
  CKPT_TRYV(lane->send_control(lane->peer_->endpoint, FrameKind::kHello));
  return lane;
}

UcxLane::~UcxLane() {
  shut_down();
}

Result<void> UcxLane::start() {
  CKPT_TRY(waker, LaneWaker::create());
  waker_ = std::move(waker);
  CKPT_TRY(worker, context_->make_worker());
  worker_ = std::move(worker);
  ucs_status_t status = ucp_worker_get_efd(worker_.get(), &worker_fd_);
  if (status != UCS_OK) return ucx_error(status, "Cannot get a UCX worker's descriptor");
  ucp_am_handler_param_t param{};
  param.field_mask =
      UCP_AM_HANDLER_PARAM_FIELD_ID | UCP_AM_HANDLER_PARAM_FIELD_CB | UCP_AM_HANDLER_PARAM_FIELD_ARG;
  param.id = kActiveMessageId;
  param.cb = &UcxLane::on_active_message;
  param.arg = this;
  status = ucp_worker_set_am_recv_handler(worker_.get(), &param);
  if (status != UCS_OK) return ucx_error(status, "Cannot set up a UCX worker");
  return ok();
}

Result<void> UcxLane::start_listener() {
  const LaneAddress& local = context_->local();
  ucp_listener_params_t params{};
  params.field_mask = UCP_LISTENER_PARAM_FIELD_SOCK_ADDR | UCP_LISTENER_PARAM_FIELD_CONN_HANDLER;
  params.conn_handler = {&UcxLane::on_connection_request, this};
  ucp_listener_h listener = nullptr;
  ucs_status_t status = UCS_ERR_BUSY;
  for (const std::uint16_t port : ports_in_turn(context_->ports())) {
    const LaneAddress at = with_port(local, port);
    params.sockaddr = {at.get(), at.length};
    status = ucp_listener_create(worker_.get(), &params, &listener);
    if (status == UCS_OK) break;
    if (port == 0 || status != UCS_ERR_BUSY)
      return ucx_error(status, "Listening on " + format_ucx_address(at));
  }
  if (status != UCS_OK) return ports_taken(context_->ports(), local);
  listener_.reset(listener);
  ucp_listener_attr_t attributes{};
  attributes.field_mask = UCP_LISTENER_ATTR_FIELD_SOCKADDR;
  status = ucp_listener_query(listener, &attributes);
  if (status != UCS_OK) return ucx_error(status, "Cannot get a listener's port");
  address_ = format_ucx_address({attributes.sockaddr, local.length});
  return ok();
}

Result<std::unique_ptr<UcxLane::Connection>> UcxLane::make_connection(ucp_ep_params_t& params) {
  auto connection = std::make_unique<Connection>();
  params.field_mask |= UCP_EP_PARAM_FIELD_ERR_HANDLING_MODE | UCP_EP_PARAM_FIELD_ERR_HANDLER;
  params.err_mode = UCP_ERR_HANDLING_MODE_PEER;
  params.err_handler = {&UcxLane::on_endpoint_error, connection.get()};
  const ucs_status_t status = ucp_ep_create(worker_.get(), &params, &connection->endpoint);
  if (status != UCS_OK) return ucx_error(status, "Connecting a lane");
  return connection;
}

// Sends HELLO, WELCOME, CREDIT or BYE, one at a time, so that the frame has its own memory.
Result<void> UcxLane::send_control(ucp_ep_h endpoint, FrameKind kind) {
  std::size_t bytes = sizeof(Frame);
  if (kind == FrameKind::kHello) {
    bytes = write_hello({token_, offer_}, control_frame_);
  } else {
    Frame frame;
    frame.kind = kind;
    frame.delivered = receives_.count().mark_reported();
    if (kind == FrameKind::kWelcome) frame.sequence = static_cast<std::uint64_t>(same_host_.access());
    std::memcpy(control_frame_.data(), &frame, sizeof frame);
  }
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS;
  param.cb.send = [](void* request, ucs_status_t, void* lane) {
    --static_cast<UcxLane*>(lane)->outstanding_;
    static_cast<UcxLane*>(lane)->control_busy_ = false;
    ucp_request_free(request);
  };
  param.user_data = this;
  param.flags = UCP_AM_SEND_FLAG_REPLY | UCP_AM_SEND_FLAG_EAGER;
  const ucs_status_ptr_t request =
      ucp_am_send_nbx(endpoint, kActiveMessageId, control_frame_.data(), bytes, nullptr, 0, &param);
  if (UCS_PTR_IS_ERR(request))
    return ucx_error(UCS_PTR_STATUS(request), "Cannot send a greeting to the peer");
  if (request != nullptr) {
    ++outstanding_;
    control_busy_ = true;
  }
  return ok();
}

void UcxLane::on_connection_request(ucp_conn_request_h request, void* lane_pointer) {
  static_cast<UcxLane*>(lane_pointer)->requests_.push_back(request);
}

void UcxLane::on_endpoint_error(void* connection, ucp_ep_h, ucs_status_t status) {
  static_cast<Connection*>(connection)->failed = status;
}

ucs_status_t UcxLane::on_active_message(void* lane_pointer, const void* header, std::size_t header_bytes,
                                        void* data, std::size_t bytes, const ucp_am_recv_param_t* param) {
  auto& lane = *static_cast<UcxLane*>(lane_pointer);
  if (lane.failed_) return UCS_OK;
  auto view = parse_frame(header, header_bytes, bytes);
  if (view.has_value()) {
    lane.handle_frame(*view, data, *param);
  } else if (Connection* connection = lane.find_unauthenticated(param->reply_ep)) {
    connection->unwanted = true;
  } else {
    lane.fail(std::move(view).error());
  }
  return UCS_OK;
}

void UcxLane::handle_frame(const FrameView& view, void* data, const ucp_am_recv_param_t& param) {
  const bool replies = (param.recv_attr & UCP_AM_RECV_ATTR_FIELD_REPLY_EP) != 0;
  if (!replies || peer_ == nullptr || param.reply_ep != peer_->endpoint) {
    if (Connection* connection = find_unauthenticated(replies ? param.reply_ep : nullptr))
      handle_hello(view, *connection);
    return;
  }
  if (view.frame.kind == FrameKind::kWelcome && !listening_ && !greeted_) {
    greeted_ = true;
    payload_access_ = access_of_welcome(view.frame, offer_);
    return open();  // opened here, because the peer's first messages may follow in the same round
  }
  if (view.frame.kind == FrameKind::kBye && open_) {
    peer_left_ = true;
    return fail(Error(ErrorCode::kUnavailable, "The peer has closed the lane"));
  }
  const bool has_message = view.frame.kind == FrameKind::kMessage || view.frame.kind == FrameKind::kSameHost;
  if ((!has_message && view.frame.kind != FrameKind::kCredit) || !open_)
    return fail(Error(ErrorCode::kProtocol, "The peer sent a frame that is not allowed now"));
  const auto credited = sends_.apply_credit(view.frame.delivered);
  if (!credited.has_value()) return fail(credited.error());
  if (!has_message) return;
  const bool rendezvous = (param.recv_attr & UCP_AM_RECV_ATTR_FLAG_RNDV) != 0;
  auto accepted = receives_.accept(worker_.get(), view, data, rendezvous, same_host_, handler_, outstanding_);
  if (!accepted.has_value()) fail(std::move(accepted).error());
}

void UcxLane::handle_hello(const FrameView& view, Connection& connection) {
  const std::optional<Hello> hello = parse_hello(view);
  const bool right = hello && tokens_equal(hello->token, token_);
  if (!right || peer_ != nullptr) {
    connection.unwanted = true;
    return;
  }
  const auto found = std::find_if(unauthenticated_peers_.begin(), unauthenticated_peers_.end(),
                                  [&connection](const auto& entry) { return entry.get() == &connection; });
  peer_ = std::move(*found);
  unauthenticated_peers_.erase(found);
  same_host_ = SameHostPeer::open(hello->offer, token_, handler_);
  greeted_ = true;
}

UcxLane::Connection* UcxLane::find_unauthenticated(ucp_ep_h endpoint) {
  if (endpoint == nullptr) return nullptr;
  for (const auto& connection : unauthenticated_peers_) {
    if (connection->endpoint == endpoint) return connection.get();
  }
  return nullptr;
}

void UcxLane::admit_requests() {
  for (ucp_conn_request_h request : requests_) {
    if (peer_ != nullptr || unauthenticated_peers_.size() >= kMaxUnauthenticatedPeers) {
      ucp_listener_reject(listener_.get(), request);
      continue;
    }
    ucp_ep_params_t params{};
    params.field_mask = UCP_EP_PARAM_FIELD_CONN_REQUEST;
    params.conn_request = request;
    auto connection = make_connection(params);
    if (connection.has_value()) unauthenticated_peers_.push_back(*std::move(connection));
  }
  requests_.clear();
}

void UcxLane::drop_unauthenticated() {
  std::erase_if(unauthenticated_peers_, [this](const auto& connection) {
    if (peer_ == nullptr && !connection->unwanted && !connection->failed) return false;
    disconnect(*connection);
    return true;
  });
}

void UcxLane::open() {
  if (listening_) {
    const auto sent = send_control(peer_->endpoint, FrameKind::kWelcome);
    if (!sent.has_value()) return fail(sent.error());
    listener_.reset();
  }
  open_ = true;
  handler_.on_open();
}

Result<void> UcxLane::send(std::span<const std::byte> header, std::span<const std::byte> payload,
                           std::uint64_t token) {
  if (closed_reason_) return *closed_reason_;
  CKPT_TRYV(check_sizes(header.size(), payload.size()));
  if (!open_) return Error(ErrorCode::kRefused, "The lane is not open yet");
  if (sends_.full()) return Error(ErrorCode::kRefused, "The lane has no space for another message");
  return sends_.send(peer_->endpoint, header, payload, token, receives_.count().mark_reported(),
                     payload_access_ != PayloadAccess::kSent, outstanding_);
}

bool UcxLane::progress() {
  if (closed_reason_ || in_callback_) return false;
  bool any = false;
  in_callback_ = true;
  for (int i = 0; i < kProgressRounds && !peer_left_ && ucp_worker_progress(worker_.get()) != 0; ++i)
    any = true;
  if (!any && context_->rdma() && !peer_left_) any = progress_armed();
  if (!requests_.empty()) admit_requests();
  if (!unauthenticated_peers_.empty()) drop_unauthenticated();
  if (greeted_ && !open_ && !failure()) {
    open();
    any = true;
  }
  any |= deliver();
  in_callback_ = false;
  if (close_requested_) {
    finish(Error(ErrorCode::kAborted, "The lane was closed on this side"));
  } else if (auto error = failure()) {
    finish(std::move(*error));
  } else {
    return any;
  }
  return true;
}

// Arms the worker and checks it again. A completion between the last check and the arming in wait() need not
// raise an event, because verbs guarantee events only for later completions.
bool UcxLane::progress_armed() {
  return ucp_worker_arm(worker_.get()) != UCS_OK || ucp_worker_progress(worker_.get()) != 0;
}

// Delivers complete messages in order. Messages that arrived before a failure are still delivered.
bool UcxLane::deliver() {
  bool any = false;
  while (!close_requested_) {
    const std::optional<std::uint64_t> token = sends_.pop_sent();
    if (!token) break;
    any = true;
    handler_.on_sent(*token);
  }
  while (!close_requested_) {
    const auto delivery = receives_.front();
    if (!delivery) break;
    any = true;
    handler_.on_message(delivery->header, delivery->payload);
    receives_.pop();
  }
  give_credit();
  return any;
}

// Reports the number of delivered messages to the peer, if no message in the other direction would carry it:
// occasionally, and at once for same-host messages.
void UcxLane::give_credit() {
  if (!open_ || failed_ || !receives_.count().due() || control_busy_) return;
  auto sent = send_control(peer_->endpoint, FrameKind::kCredit);
  if (!sent.has_value()) fail(std::move(sent).error());
}

std::optional<Error> UcxLane::failure() const {
  if (failed_) return failed_;
  if (peer_ != nullptr && peer_->failed) {
    if (!open_ && !listening_) return never_opened().caused_by(ucx_error(*peer_->failed, "Connecting"));
    return Error(ErrorCode::kUnavailable, ErrorDomain::kUcs, *peer_->failed,
                 std::string("The peer has disconnected: ") + ucs_status_string(*peer_->failed));
  }
  if (receives_.failure()) return ucx_error(*receives_.failure(), "Receiving a payload");
  return std::nullopt;
}

void UcxLane::fail(Error error) {
  if (!failed_) failed_ = std::move(error);
}

void UcxLane::wait(Nanos timeout) {
  if (closed_reason_ || ucp_worker_arm(worker_.get()) != UCS_OK) return;
  pollfd watched[2] = {{worker_fd_, POLLIN, 0}, {waker_->fd(), POLLIN, 0}};
  const timespec limit{timeout / 1'000'000'000, timeout % 1'000'000'000};
  ::ppoll(watched, 2, &limit, nullptr);
  if (watched[1].revents != 0) waker_->drain();
}

void UcxLane::wake() noexcept {
  waker_->wake();
}

void UcxLane::close() {
  if (closed_reason_) return;
  if (in_callback_) {
    close_requested_ = true;
    return;
  }
  finish(Error(ErrorCode::kAborted, "The lane was closed on this side"));
}

// Sends BYE. If BYE cannot be sent at once, the peer finds that the connection has ended.
void UcxLane::send_goodbye() {
  if (open_ && !peer_left_ && !peer_->failed && !control_busy_)
    (void)send_control(peer_->endpoint, FrameKind::kBye);
}

// Disconnects without waiting for the peer, which may have exited.
void UcxLane::disconnect(Connection& connection) {
  ucp_request_param_t param{};
  param.op_attr_mask = UCP_OP_ATTR_FIELD_CALLBACK | UCP_OP_ATTR_FIELD_USER_DATA | UCP_OP_ATTR_FIELD_FLAGS;
  param.flags = UCP_EP_CLOSE_FLAG_FORCE;
  param.cb.send = [](void* request, ucs_status_t, void* lane) {
    --static_cast<UcxLane*>(lane)->outstanding_;
    ucp_request_free(request);
  };
  param.user_data = this;
  const ucs_status_ptr_t request = ucp_ep_close_nbx(connection.endpoint, &param);
  if (UCS_PTR_IS_PTR(request)) ++outstanding_;
  connection.endpoint = nullptr;
}

// Shuts the lane down. Afterwards UCX uses no memory of the caller. If nothing is outstanding, the worker is
// not driven any more (ucx_lane.h).
void UcxLane::shut_down() {
  if (!worker_) return;
  send_goodbye();
  for (ucp_conn_request_h request : requests_) ucp_listener_reject(listener_.get(), request);
  requests_.clear();
  for (const auto& connection : unauthenticated_peers_) disconnect(*connection);
  if (peer_ != nullptr) disconnect(*peer_);
  const Nanos deadline = now_ns() + kShutDownNanos;
  while (outstanding_ > 0 && now_ns() < deadline) ucp_worker_progress(worker_.get());
  listener_.reset();
  worker_.reset();
  unauthenticated_peers_.clear();
  peer_.reset();
}

void UcxLane::finish(Error reason) {
  failed_ = reason;  // later messages are not accepted while shutting down
  shut_down();
  closed_reason_ = std::move(reason);
  handler_.on_closed(*closed_reason_);
}

}  // namespace ckpt::transport
