// SPDX-License-Identifier: Apache-2.0
// Lanes between two movers: ordered streams of messages. Each message has a header of up to 2 KiB and a
// payload of up to 8 MiB. The receiver's handler chooses the destination of the payload. Bulk data is sent in
// one direction, and small acknowledgements in the other direction on the same lane; each direction can carry
// both. Implementations: loopback (in process), TLS over TCP, and UCX.
//
// A lane connects exactly once. The target makes N lanes with listen() and passes their N addresses and the
// session token to the source over the control plane. The source connect()s to each:
//   CKPT_TRY(transport, make_tls_transport({.ip = "10.0.0.5"}));
//   CKPT_TRY(lane, transport->listen(token, handler));   lane->address() -> control plane      (target)
//   CKPT_TRY(lane, transport->connect(address, token, handler));                               (source)
//   while (!done) {
//     if (!lane->progress()) lane->wait(kSecond);         // one thread per lane; no spinning
//   }
// A connection that does not first present the token is dropped. The listening lane continues to wait for the
// right connection.
//
// Threads: a lane is used by one thread at a time; only wake() may be called from any thread. Callbacks run
// inside progress() and close() of that thread. Handlers may call send(), wake() and close() from on_open,
// on_message and on_sent. They must call nothing from on_payload_begin, and must not destroy the lane from a
// callback. A Transport outlives its lanes and may be shared. Ownership: the caller owns payload memory. A
// payload being sent must stay valid and unchanged until its on_sent. A span returned by on_payload_begin
// must stay valid until its on_message. After on_closed the lane uses neither. A peer on the same host may
// still be reading when the sender closes. The peer may then receive other bytes for a message without
// on_sent. The other handler may read a payload in an offered memory file (SameHostMemory) as long as the
// lane exists. The two handlers agree by their own messages how long the payload stays unchanged. Destroying
// an open lane closes it without a callback. Errors: after on_closed (exactly once per lane, also for a
// listening lane that is closed) send() returns its error. Liveness: a killed peer process closes the lane.
// The control connection must detect a silent network; a TLS lane also ends after about a minute without an
// answer. Trust: the token excludes unknown peers from a migration. A TLS lane proves that both ends have the
// token, and nothing can be read or changed in transit. UCX itself authenticates no peer and may abort on
// malicious bytes (docs/design.md §5). Use UCX on trusted networks and in a process that may crash.
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
// The maximum number of messages sent and not yet reported by on_sent. send() beyond it is refused.
inline constexpr std::size_t kMaxInFlight = 64;

using SessionToken = std::array<std::byte, 16>;

// The memory that a sender offers to a peer on its host.
struct SameHostMemory {
  // Memory of the kind from which payloads are sent; the lane uses its first bytes until on_open. Empty if
  // there is none.
  std::span<std::byte> room;
  int file = -1;  // a memory file that payloads may be in, owned by the handler; -1 if there is none
  std::span<const std::byte> mapped;  // the whole file, if it is mapped here
};

// The peer's access to payloads that are in this process's memory.
enum class PayloadAccess : std::uint8_t {
  kSent,   // payloads are sent over the connection
  kReads,  // the peer reads payloads from this process's memory
  kMaps    // the peer reads payloads, except those in the file, which it has mapped
};

class LaneHandler {
 public:
  virtual ~LaneHandler() = default;
  // Returns the memory that a peer on this machine may read payloads from (same_host_memory.h), if the
  // transport supports that. Payloads in the memory's file need not even be read. Called once, when the lane
  // connects.
  virtual SameHostMemory same_host_memory() { return {}; }
  // Maps the peer's file of `bytes` bytes. The length is the peer's claim and must be checked. Returns the
  // mapping of the whole file, which must be valid beyond the lane's end. Payloads in it are passed to
  // on_message there, without on_payload_begin. If the result is empty, these payloads are read like all
  // other payloads. Called at most once, before on_open.
  virtual std::span<const std::byte> map_same_host(UniqueFd /*file*/, std::size_t /*bytes*/) { return {}; }
  // Runs when the peer has connected and proved that it has the token: from now on send() works. It runs
  // before any other callback except on_closed.
  virtual void on_open() {}
  // Returns the destination of a payload (payload_bytes > 0): a span of exactly that size. Any other size
  // refuses the message and closes the lane with kProtocol.
  virtual std::span<std::byte> on_payload_begin(std::span<const std::byte> header,
                                                std::size_t payload_bytes) = 0;
  // Receives a whole message, in the order of send(). `payload` is the span of on_payload_begin, or is within
  // that of map_same_host, or is empty.
  virtual void on_message(std::span<const std::byte> header, std::span<const std::byte> payload) = 0;
  // Runs when the payload of `token` may be reused, in the order of send(). This is not an acknowledgement:
  // the peer may not have the payload yet.
  virtual void on_sent(std::uint64_t token) = 0;
  // Runs when the lane is closed, for any reason. Messages without on_sent may or may not have arrived.
  virtual void on_closed(const Error& error) = 0;
};

class Lane {
 public:
  virtual ~Lane() = default;

  // Returns the address for the peer to connect to (in listening lanes; otherwise empty). It is printable,
  // with at most 256 characters.
  [[nodiscard]] virtual std::string address() const = 0;
  // Sends a message. Never blocks, and copies the header. Returns kInvalidArgument if it is too long, and
  // kRefused if kMaxInFlight is reached or no peer has connected yet.
  virtual Result<void> send(std::span<const std::byte> header, std::span<const std::byte> payload,
                            std::uint64_t token) = 0;
  // Returns the peer's access to this side's payloads, once the lane is open.
  [[nodiscard]] virtual PayloadAccess payload_access() const noexcept { return PayloadAccess::kSent; }
  // Drives the lane and its callbacks. Returns true if anything happened.
  virtual bool progress() = 0;
  // Sleeps until progress() may have work, wake() was called, or the time has passed. May return early.
  virtual void wait(Nanos timeout) = 0;
  // Ends the current or the next wait(). Any thread may call it.
  virtual void wake() noexcept = 0;
  // Closes the lane now. Messages that on_sent has not reported may be lost. Calls on_closed (kAborted) at
  // once or, when called from a callback, at the end of progress().
  virtual void close() = 0;
  [[nodiscard]] virtual bool closed() const noexcept = 0;
};

class Transport {
 public:
  virtual ~Transport() = default;
  virtual Result<std::unique_ptr<Lane>> listen(const SessionToken& token, LaneHandler& handler) = 0;
  // Connects a lane. `address` may come from any source: kInvalidArgument if it is not an address of this
  // transport. Returns before the peer has answered; a missing peer is reported by on_closed.
  virtual Result<std::unique_ptr<Lane>> connect(const std::string& address, const SessionToken& token,
                                                LaneHandler& handler) = 0;
};

// Creates a transport for lanes between threads of this process that use the same Transport object. The
// number of lanes is not limited.
std::unique_ptr<Transport> make_loopback_transport();

// Makes a transport that uses the given ones in turn: the first lane uses the first of them, the next lane
// the next one. Both ends must make their lanes in the same order. There must be at least one of them, and
// they must outlive the result.
std::unique_ptr<Transport> make_spread_transport(std::vector<Transport*> over);

// The ports at which lanes listen. A lane takes an unused port of the range.
struct PortRange {
  std::uint16_t first = 0;  // the first port of the range; 0 if the kernel chooses the port
  std::uint16_t last = 0;
};

struct UcxOptions {
  std::string ip = "127.0.0.1";  // the IP address of the device on which lanes listen and from which they
                                 // connect
  PortRange ports{};             // the ports of the listeners, and of the connections that UCX makes
  // If false, TCP is used. If true, the RDMA device that belongs to that network device is used, by rc_verbs
  // and connected by rdmacm. Both exclude shared memory: UCX 1.13 has no peer failure detection for it.
  bool rdma = false;
  // Additional settings, such as "TX_SEG_SIZE" = "64k". For a transport's settings, UCX 1.13 requires the
  // name without the transport's name. UCX only warns of a name that it does not know. The environment's
  // UCX_* variables are not read for these settings.
  std::vector<std::pair<std::string, std::string>> settings;
};
// Creates the transport. Returns kNotSupported if no RDMA device belongs to the device of `ip`, or UCX cannot
// use it.
Result<std::unique_ptr<Transport>> make_ucx_transport(const UcxOptions& options);

struct TlsOptions {
  std::string ip = "127.0.0.1";  // an IPv4 or IPv6 address to listen on and connect from
  PortRange ports{};
  // The time from a connection's arrival to the end of its greeting. The connection is dropped after that.
  Nanos greeting_nanos = 10'000'000'000;
  std::uint64_t rekey_bytes = std::uint64_t{64}
                              << 30;  // the bytes in one direction of a lane after which the key is replaced
};
// Makes a transport for lanes over TCP with TLS 1.3, keyed by the session token (docs/adr/0027). Returns
// kInvalidArgument for text that is not an interface's IP address, or errno if this machine does not have the
// address.
Result<std::unique_ptr<Transport>> make_tls_transport(const TlsOptions& options);

}  // namespace ckpt::transport
