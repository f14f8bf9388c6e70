// SPDX-License-Identifier: Apache-2.0
// Lanes between two movers: ordered streams of messages. Each has a header of up to 2 KiB and a payload of
// up to 8 MiB that the receiver places where its handler chooses. Bulk goes one way, small acknowledgements
// the other way on the same lane; both directions carry both. Implementations: loopback (in process), TLS
// over TCP, and UCX.
//
// A lane connects exactly once. The target makes N lanes with listen() and passes their N addresses and the
// session token to the source over the control plane. The source connect()s to each:
//   CKPT_TRY(transport, make_tls_transport({.ip = "10.0.0.5"}));
//   CKPT_TRY(lane, transport->listen(token, handler));   lane->address() -> control plane      (target)
//   CKPT_TRY(lane, transport->connect(address, token, handler));                               (source)
//   while (!done) {
//     if (!lane->progress()) lane->wait(kSecond);         // one thread per lane; no spinning
//   }
// A connection that does not first present the token is dropped; the listening lane waits on for the right
// one.
//
// Threads: a lane is used by one thread at a time; only wake() may come from any thread. Callbacks run inside
// progress() and close() of that thread. Handlers may call send(), wake() and close() from on_open,
// on_message and on_sent, nothing from on_payload_begin, and must not destroy the lane from a callback. A
// Transport outlives its lanes and may be shared.
// Ownership: payload memory stays the caller's. A payload being sent must stay valid and unchanged until its
// on_sent, a span given by on_payload_begin until its on_message. After on_closed the lane touches neither.
// A peer on the same host may still be reading when the sender closes. It may then receive other bytes for a
// message whose on_sent has not come. The other handler may read a payload in an offered memory file
// (SameHostMemory) for as long as the lane lives. The two handlers agree by messages of their own until when
// it stays unchanged.
// Destroying an open lane closes it without a callback.
// Errors: after on_closed (exactly once per lane, also for a listening lane that is closed) send() returns
// its error. Liveness: a killed peer process closes the lane. A silent network is for the control connection
// to see; a TLS lane also ends after about a minute without an answer.
// Trust: the token keeps strangers out of a migration. A TLS lane proves that both ends have it, and
// nothing can be read or changed on the way. UCX itself authenticates no peer and may abort on crafted
// bytes (docs/design.md §5). Use it on trusted networks and in a process that may die.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "libckpt/base/clock.h"
#include "libckpt/base/fd.h"
#include "libckpt/base/result.h"

namespace ckpt::transport {

inline constexpr std::size_t kMaxHeaderBytes = 2048;
inline constexpr std::size_t kMaxPayloadBytes = std::size_t{8} << 20;
// Messages sent and not yet reported by on_sent; send() beyond it is refused.
inline constexpr std::size_t kMaxInFlight = 64;

using SessionToken = std::array<std::byte, 16>;

// The memory that a sender offers to a peer on its host.
struct SameHostMemory {
  // Memory of the kind that payloads are sent from; its first bytes are the lane's until on_open. Empty:
  // none.
  std::span<std::byte> room;
  int file = -1;                      // a memory file that payloads may lie in; the handler's. -1: none
  std::span<const std::byte> mapped;  // all of it, where it is mapped here
};

// How the peer gets payloads that lie in this process's memory.
enum class PayloadAccess : std::uint8_t {
  kSent,   // they are sent
  kReads,  // it reads them
  kMaps    // it reads them, but for those in the file, which it has mapped
};

class LaneHandler {
 public:
  virtual ~LaneHandler() = default;
  // A peer on this machine may then read payloads out of this process's memory (same_host_memory.h), where
  // the transport knows how; those in the file it need not even read. Asked once, when the lane connects.
  virtual SameHostMemory same_host_memory() { return {}; }
  // The peer's file of `bytes` bytes; that length is the peer's claim, and is to be checked. Returns where
  // all of it is mapped, until after the lane's end. Payloads in it are passed to on_message there, without
  // on_payload_begin. Empty: they are read like others. Called at most once, before on_open.
  virtual std::span<const std::byte> map_same_host(UniqueFd /*file*/, std::size_t /*bytes*/) { return {}; }
  // The peer is there and knows the token: from now on send() works. Called before any other callback but
  // on_closed.
  virtual void on_open() {}
  // Where to receive a payload (payload_bytes > 0): a span of exactly that size. Any other size refuses the
  // message and closes the lane with kProtocol.
  virtual std::span<std::byte> on_payload_begin(std::span<const std::byte> header,
                                                std::size_t payload_bytes) = 0;
  // A whole message, in the order of send(). `payload` is the span of on_payload_begin, or lies in that of
  // map_same_host, or is empty.
  virtual void on_message(std::span<const std::byte> header, std::span<const std::byte> payload) = 0;
  // The payload given with `token` may be reused; in the order of send(). Not an acknowledgement: the peer
  // may not have it yet.
  virtual void on_sent(std::uint64_t token) = 0;
  // The end, for any reason; messages without on_sent may or may not have arrived.
  virtual void on_closed(const Error& error) = 0;
};

class Lane {
 public:
  virtual ~Lane() = default;

  // Where the peer connects to (listening lanes; else empty). Printable, at most 256 characters.
  [[nodiscard]] virtual std::string address() const = 0;
  // Never blocks. The header is copied. kInvalidArgument: too long; kRefused: kMaxInFlight reached, or no
  // peer yet.
  virtual Result<void> send(std::span<const std::byte> header, std::span<const std::byte> payload,
                            std::uint64_t token) = 0;
  // The peer's access to this side's payloads, once the lane is open.
  [[nodiscard]] virtual PayloadAccess payload_access() const noexcept { return PayloadAccess::kSent; }
  // Drives the lane and its callbacks; true if anything happened.
  virtual bool progress() = 0;
  // Sleeps until progress() may have something to do, wake() was called, or the time is over. May return
  // early.
  virtual void wait(Nanos timeout) = 0;
  // Ends a present or the next wait(). Any thread.
  virtual void wake() noexcept = 0;
  // Ends the lane now; what has not been reported by on_sent may be lost. Calls on_closed (kAborted), at once
  // or, when called from a callback, at the end of progress().
  virtual void close() = 0;
  [[nodiscard]] virtual bool closed() const noexcept = 0;
};

class Transport {
 public:
  virtual ~Transport() = default;
  virtual Result<std::unique_ptr<Lane>> listen(const SessionToken& token, LaneHandler& handler) = 0;
  // `address` may come from anywhere: kInvalidArgument if it is not one of this transport. Returns before the
  // peer has answered; a peer that is not there is an on_closed.
  virtual Result<std::unique_ptr<Lane>> connect(const std::string& address, const SessionToken& token,
                                                LaneHandler& handler) = 0;
};

// Lanes between threads of this process that use the same Transport object. Any number of lanes.
std::unique_ptr<Transport> make_loopback_transport();

// The first lane goes over the first of them, the next one over the next, and so on in turn. Both ends make
// their lanes in one order. They outlive it; they are at least one.
std::unique_ptr<Transport> make_spread_transport(std::vector<Transport*> over);

// Where lanes listen. A lane takes a port of the range that nothing listens at.
struct PortRange {
  std::uint16_t first = 0;  // 0: the kernel chooses
  std::uint16_t last = 0;
};

struct UcxOptions {
  std::string ip = "127.0.0.1";  // listen on, and connect from, the device that has this address
  PortRange ports{};             // of the connections that UCX makes, too
  // False: TCP. True: the RDMA device that stands on that device, by rc_verbs and connected by rdmacm.
  // Shared memory is left out of both: UCX 1.13 has no peer failure detection for it.
  bool rdma = false;
  // Set besides, as in "TX_SEG_SIZE" = "64k": of a transport's settings, UCX 1.13 wants the name without the
  // transport's, and only warns of one that it does not know. The environment's UCX_* variables are not read
  // for those set here.
  std::vector<std::pair<std::string, std::string>> settings;
};
// kNotSupported: no RDMA device stands on the device of `ip`, or UCX cannot use it.
Result<std::unique_ptr<Transport>> make_ucx_transport(const UcxOptions& options);

struct TlsOptions {
  std::string ip = "127.0.0.1";  // IPv4 or IPv6: listen on it, and connect from it
  PortRange ports{};
  // From a connection's arrival to the end of its greeting; it is dropped then.
  Nanos greeting_nanos = 10'000'000'000;
  std::uint64_t rekey_bytes = std::uint64_t{64}
                              << 30;  // of one direction of a lane; then the key is replaced
};
// Lanes over TCP with TLS 1.3, keyed by the session token (docs/adr/0027). kInvalidArgument: no IP address of
// an interface; errno: this machine does not have it.
Result<std::unique_ptr<Transport>> make_tls_transport(const TlsOptions& options);

}  // namespace ckpt::transport
