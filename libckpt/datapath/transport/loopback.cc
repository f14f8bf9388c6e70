// SPDX-License-Identifier: Apache-2.0
// Lanes within one process. The receiver copies directly from the sender's payload, as a rendezvous would.
// Lifetimes are therefore as strict as on a network: tests detect a payload that is reused too early.
// Payloads in a memory file that the sender offers stay there, as between processes of one machine.
#include <fcntl.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "libckpt/datapath/transport/same_host_memory.h"
#include "libckpt/datapath/transport/session.h"
#include "libckpt/datapath/transport/transport.h"

namespace ckpt::transport {
namespace {

struct Message {
  std::array<std::byte, kMaxHeaderBytes> header{};
  std::size_t header_bytes = 0;
  std::span<const std::byte> payload;
  std::uint64_t token = 0;
};

// The events of one end. The rings have a fixed size, because at most kMaxInFlight messages are between
// send() and on_sent.
struct Inbox {
  std::vector<Message> messages = std::vector<Message>(kMaxInFlight);
  std::uint64_t first_message = 0;
  std::uint64_t end_message = 0;
  std::array<std::uint64_t, kMaxInFlight> sent{};
  std::uint64_t first_sent = 0;
  std::uint64_t end_sent = 0;
  bool opened = false;
  bool woken = false;
  bool copying = false;  // whether this end is reading the other end's payload
  std::optional<Error> closed;
};

// The state that the two ends share.
struct Link {
  explicit Link(const SessionToken& session) : token(session) {}
  const SessionToken token;
  std::mutex mutex;
  std::condition_variable changed;
  Inbox inbox[2];  // index 0: the listening end; index 1: the connecting end
  bool connected = false;
  UniqueFd offered;  // the connecting end's file, until the listening end removes it
  std::span<const std::byte> offered_bytes;
};

// The listening ends of lanes, by their addresses.
struct Hub {
  std::mutex mutex;
  std::map<std::string, std::weak_ptr<Link>> listening;
  std::uint64_t next = 1;
};

class LoopbackLane final : public Lane {
 public:
  LoopbackLane(std::shared_ptr<Link> link, int end, std::string address, LaneHandler& handler)
      : link_(std::move(link)), end_(end), address_(std::move(address)), handler_(handler) {}
  ~LoopbackLane() override {
    if (!closed_) detach(Error(ErrorCode::kAborted, "The lane was closed on this side"));
  }

  [[nodiscard]] std::string address() const override { return address_; }
  Result<void> send(std::span<const std::byte> header, std::span<const std::byte> payload,
                    std::uint64_t token) override;
  bool progress() override;
  void wait(Nanos timeout) override;
  void wake() noexcept override;
  void close() override;
  [[nodiscard]] bool closed() const noexcept override { return closed_; }

 private:
  Inbox& mine() { return link_->inbox[end_]; }
  Inbox& theirs() { return link_->inbox[1 - end_]; }
  bool take_opened();
  void take_offered();
  bool take_sent();
  bool handle_message();
  bool take_closed();
  void receive(std::size_t header_bytes, std::span<const std::byte> payload, std::uint64_t token);
  void detach(const Error& reason);
  void finish(const Error& reason);

  std::shared_ptr<Link> link_;
  const int end_;
  const std::string address_;
  LaneHandler& handler_;
  std::array<std::byte, kMaxHeaderBytes> header_{};  // the header of the message that is being delivered
  SameHostMapping mapping_;  // at the listening end: the mapping of the other end's file
  std::size_t in_flight_ = 0;
  bool open_ = false;
  bool in_callback_ = false;
  bool close_requested_ = false;
  bool closed_ = false;
  std::optional<Error> closed_reason_;
};

Result<void> LoopbackLane::send(std::span<const std::byte> header, std::span<const std::byte> payload,
                                std::uint64_t token) {
  if (closed_) return *closed_reason_;
  CKPT_TRYV(check_sizes(header.size(), payload.size()));
  if (!open_) return Error(ErrorCode::kRefused, "The lane is not open yet");
  if (in_flight_ == kMaxInFlight)
    return Error(ErrorCode::kRefused, "The lane has no space for another message");
  {
    const std::lock_guard lock(link_->mutex);
    Message& message = theirs().messages[theirs().end_message++ % kMaxInFlight];
    if (!header.empty()) std::memcpy(message.header.data(), header.data(), header.size());
    message.header_bytes = header.size();
    message.payload = payload;
    message.token = token;
  }
  ++in_flight_;
  link_->changed.notify_all();
  return ok();
}

bool LoopbackLane::progress() {
  if (closed_ || in_callback_) return false;
  in_callback_ = true;
  bool any = take_opened();
  while (!close_requested_ && take_sent()) any = true;
  for (std::size_t i = 0; i < kMaxInFlight && !close_requested_ && handle_message(); ++i) any = true;
  in_callback_ = false;
  if (close_requested_) {
    finish(Error(ErrorCode::kAborted, "The lane was closed on this side"));
    return true;
  }
  return take_closed() || any;
}

bool LoopbackLane::take_opened() {
  if (open_) return false;
  {
    const std::lock_guard lock(link_->mutex);
    if (!mine().opened) return false;
  }
  open_ = true;
  take_offered();
  handler_.on_open();
  return true;
}

void LoopbackLane::take_offered() {
  UniqueFd file;
  std::span<const std::byte> there;
  {
    const std::lock_guard lock(link_->mutex);
    if (end_ != 0 || !link_->offered) return;
    file = std::move(link_->offered);
    there = link_->offered_bytes;
  }
  mapping_ =
      map_same_host(handler_, std::move(file), reinterpret_cast<std::uint64_t>(there.data()), there.size());
}

bool LoopbackLane::take_sent() {
  std::uint64_t token;
  {
    const std::lock_guard lock(link_->mutex);
    if (mine().first_sent == mine().end_sent) return false;
    token = mine().sent[mine().first_sent++ % kMaxInFlight];
  }
  --in_flight_;
  handler_.on_sent(token);
  return true;
}

bool LoopbackLane::handle_message() {
  std::size_t header_bytes;
  std::span<const std::byte> payload;
  std::uint64_t token;
  {
    const std::lock_guard lock(link_->mutex);
    // The messages of a closed end are void: their payloads must not be read any more.
    if (mine().first_message == mine().end_message || mine().closed) return false;
    const Message& message = mine().messages[mine().first_message % kMaxInFlight];
    header_bytes = message.header_bytes;
    std::memcpy(header_.data(), message.header.data(), header_bytes);
    payload = message.payload;
    token = message.token;
    mine().copying = true;
  }
  receive(header_bytes, payload, token);
  return true;
}

// Copies the payload, reports to the sender, and delivers the message.
void LoopbackLane::receive(std::size_t header_bytes, std::span<const std::byte> payload,
                           std::uint64_t token) {
  const auto header = std::span<const std::byte>(header_).first(header_bytes);
  std::span<const std::byte> arrived;
  if (!payload.empty())
    arrived = mapping_.find(reinterpret_cast<std::uint64_t>(payload.data()), payload.size());
  if (!payload.empty() && arrived.empty()) {
    const std::span<std::byte> target = handler_.on_payload_begin(header, payload.size());
    if (target.size() == payload.size()) std::memcpy(target.data(), payload.data(), payload.size());
    arrived = target;
  }
  const bool refused = arrived.size() != payload.size();
  {
    const std::lock_guard lock(link_->mutex);
    mine().copying = false;
    ++mine().first_message;
    if (!refused) theirs().sent[theirs().end_sent++ % kMaxInFlight] = token;
  }
  link_->changed.notify_all();
  if (refused) {
    const std::lock_guard lock(link_->mutex);
    mine().closed = refused_payload(payload.size());
  } else {
    handler_.on_message(header, arrived);
  }
}

bool LoopbackLane::take_closed() {
  std::optional<Error> reason;
  {
    const std::lock_guard lock(link_->mutex);
    reason = mine().closed;
  }
  if (!reason) return false;
  finish(*reason);
  return true;
}

void LoopbackLane::wait(Nanos timeout) {
  if (closed_) return;
  std::unique_lock lock(link_->mutex);
  Inbox& inbox = mine();
  link_->changed.wait_for(lock, std::chrono::nanoseconds(timeout), [this, &inbox] {
    return inbox.woken || inbox.closed || inbox.first_message != inbox.end_message ||
           inbox.first_sent != inbox.end_sent || (inbox.opened && !open_);
  });
  inbox.woken = false;
}

void LoopbackLane::wake() noexcept {
  {
    const std::lock_guard lock(link_->mutex);
    mine().woken = true;
  }
  link_->changed.notify_all();
}

void LoopbackLane::close() {
  if (closed_) return;
  if (in_callback_) {
    close_requested_ = true;
    return;
  }
  finish(Error(ErrorCode::kAborted, "The lane was closed on this side"));
}

// Leaves the link. Afterwards the other end reads no payload of this end.
void LoopbackLane::detach(const Error& reason) {
  std::unique_lock lock(link_->mutex);
  mine().closed = reason;
  if (!theirs().closed) theirs().closed = Error(ErrorCode::kUnavailable, "The peer closed the lane");
  link_->changed.notify_all();
  link_->changed.wait(lock, [this] { return !theirs().copying; });
}

void LoopbackLane::finish(const Error& reason) {
  detach(reason);
  closed_ = true;
  closed_reason_ = reason;
  handler_.on_closed(reason);
}

class LoopbackTransport final : public Transport {
 public:
  Result<std::unique_ptr<Lane>> listen(const SessionToken& token, LaneHandler& handler) override {
    auto link = std::make_shared<Link>(token);
    const std::lock_guard lock(hub_.mutex);
    std::erase_if(hub_.listening, [](const auto& entry) { return entry.second.expired(); });
    const std::string address = "loopback:" + std::to_string(hub_.next++);
    hub_.listening.emplace(address, link);
    return std::unique_ptr<Lane>(std::make_unique<LoopbackLane>(std::move(link), 0, address, handler));
  }

  Result<std::unique_ptr<Lane>> connect(const std::string& address, const SessionToken& token,
                                        LaneHandler& handler) override {
    if (!address.starts_with("loopback:"))
      return Error(ErrorCode::kInvalidArgument, "This is not the address of a loopback lane");
    std::shared_ptr<Link> link = find(address);
    if (link != nullptr) {
      const std::lock_guard lock(link->mutex);
      if (link->connected || link->inbox[0].closed || !tokens_equal(link->token, token)) {
        link.reset();
      } else {
        link->connected = true;
        if (const SameHostMemory same_host = handler.same_host_memory(); same_host.file >= 0) {
          link->offered.reset(::fcntl(same_host.file, F_DUPFD_CLOEXEC, 0));
          link->offered_bytes = same_host.mapped;
        }
        link->inbox[0].opened = link->inbox[1].opened = true;
      }
    }
    if (link == nullptr) {
      link = std::make_shared<Link>(token);
      link->inbox[1].closed = never_opened();
    }
    link->changed.notify_all();
    return std::unique_ptr<Lane>(std::make_unique<LoopbackLane>(std::move(link), 1, "", handler));
  }

 private:
  std::shared_ptr<Link> find(const std::string& address) {
    const std::lock_guard lock(hub_.mutex);
    const auto found = hub_.listening.find(address);
    return found == hub_.listening.end() ? nullptr : found->second.lock();
  }
  Hub hub_;
};

}  // namespace

std::unique_ptr<Transport> make_loopback_transport() {
  return std::make_unique<LoopbackTransport>();
}

}  // namespace ckpt::transport
