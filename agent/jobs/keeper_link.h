// SPDX-License-Identifier: Apache-2.0
// One connection to a keeper (libckpt/inprocess/local/messages.h), with typed requests as coroutines and
// events by callback. A keeper answers every request. A request without an answer within the timeout returns
// kTimedOut. The link then stays usable, and late answers are dropped.
// Threads: the event loop only. Ownership: the link owns the socket. The caller owns received descriptors.
// Errors: a keeper's Failed is returned as its own error. kUnavailable after the keeper has exited (on_closed
// is called once, before or after this error).
#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "agent/io/packet_link.h"
#include "libckpt/base/clock.h"
#include "libckpt/inprocess/local/messages.h"

namespace ckpt::agent {

// The timeout for changes of a running job, between which any time may pass. The handover's state machine has
// the timer for a job that reaches no barrier.
inline constexpr Milliseconds kNoHurry = std::chrono::hours(24 * 365);
inline constexpr std::size_t kMaxTensors = 1u << 16;

// A keeper's message with its descriptors.
struct KeeperMessage {
  local::Message message;
  std::vector<UniqueFd> descriptors;
};

struct JobDescription {
  std::vector<local::TensorRecord> tensors;
  std::vector<local::RegionRecord> regions;
  local::StateSummary summary;
};

struct PausedState {
  local::Paused paused;
  UniqueFd host_state;
};

struct RankGroups {
  std::vector<local::GroupRecord> records;
  bool knows_gang = false;
};

// A part of one of the keeper's memory sets, with copies of its descriptors. The part after the last one is
// empty.
struct HeldRegions {
  std::uint64_t next = 0;  // position at which the next part begins
  std::vector<local::RegionRecord> records;
  std::vector<UniqueFd> descriptors;
};

class KeeperLink : public std::enable_shared_from_this<KeeperLink> {
 public:
  struct Handlers {
    std::function<void(const local::Message&)> event;  // callback for messages with request 0: Ready,
                                                       // StandbyReady, RankExited, ...
    std::function<void(Error)> closed;
  };

  // Receives the answers to one request while this object exists. The answers to an Export continue until
  // StopExport.
  class Exchange {
   public:
    explicit Exchange(std::shared_ptr<KeeperLink> link);
    ~Exchange();
    Exchange(const Exchange&) = delete;
    Exchange& operator=(const Exchange&) = delete;

    [[nodiscard]] std::uint64_t request() const noexcept { return request_; }
    // Sends a body. A body that does not fit into one message is not sent, and next() then returns
    // kInvalidArgument.
    void send(local::Body body, std::vector<UniqueFd> descriptors = {});
    // Returns the next answer. A Failed becomes an error.
    Task<Result<KeeperMessage>> next(Milliseconds timeout);
    // Makes a waiting next(), and every later next(), fail with kAborted.
    void cancel();
    // Returns the next answer, which must be of type T.
    template <class T>
    Task<Result<T>> expect(Milliseconds timeout);

   private:
    friend class KeeperLink;
    std::shared_ptr<KeeperLink> link_;
    std::uint64_t request_;
    std::deque<KeeperMessage> answers_;
    AsyncEvent arrived_;
    bool cancelled_ = false;
    std::optional<Error> unsent_;
  };

  // Connects to `socket_path` without waiting. The error is kUnavailable if no keeper listens there.
  static Result<std::shared_ptr<KeeperLink>> connect(const asio::any_io_executor& executor,
                                                     const std::string& socket_path, Milliseconds timeout,
                                                     Handlers handlers);

  // Attaches to the keeper. `timeout` is longer than the link's own timeout if a keeper may be stopped.
  Task<Result<local::Status>> attach(std::optional<Milliseconds> timeout = {});
  Task<Result<JobDescription>> describe();
  // Starts the stream of tensors, regions and descriptors. The caller reads the stream from the exchange and
  // acknowledges batches.
  [[nodiscard]] std::unique_ptr<Exchange> begin_export();
  Task<Result<void>> stop_export();
  // Requests a pause at the next barrier. The job answers when it reaches a barrier. To withdraw the request,
  // cancel() the exchange, then call resume(). For a gang's rank, `at_barrier` is the barrier that stop_at()
  // has returned. Otherwise it is 0.
  [[nodiscard]] std::unique_ptr<Exchange> begin_pause(std::uint64_t at_barrier = 0);
  Task<Result<PausedState>> finish_pause(Exchange& exchange);
  // Stops a gang's rank at `barrier`, or at its next barrier. 0 means that this attempt is abandoned.
  Task<Result<local::Counted>> stop_at(std::uint64_t attempt, std::uint64_t barrier);
  // Continues a paused source (without host state), or starts a standby from `host_state`.
  Task<Result<local::Running>> resume(local::Resume resume, UniqueFd host_state);
  // Lets a standby take over the state and wait behind its gate until a resume() without a state.
  Task<Result<void>> enter_gate(local::Resume resume, UniqueFd host_state);
  // Returns the groups of the rank that get other communicators, with the tickets that the rank creates. The
  // result also contains whether the rank knows its gang.
  Task<Result<RankGroups>> ask_groups(const local::AskGroups& order, Milliseconds timeout);
  // Waits until the new communicators have been created.
  Task<Result<void>> join_groups(local::JoinGroups order, Milliseconds timeout);
  void discard_groups(std::uint64_t epoch);
  Task<Result<void>> set_deadline(Nanos deadline);
  // Starts a step of transparent mode, with a paused rank. Each step can be repeated safely. `timeout` covers
  // the driver's work to unmap and map memory.
  Task<Result<local::Released>> release(Milliseconds timeout);
  Task<Result<void>> deposit(std::uint64_t migration, std::vector<local::RegionRecord> records,
                             std::vector<UniqueFd> descriptors);
  Task<Result<void>> withdraw(std::uint64_t migration);
  Task<Result<void>> withdraw_regions(std::uint64_t migration, std::vector<local::RegionKey> regions);
  // Returns the regions of the set kArrived of `migration`, or of kExported (migration 0), from `from` on.
  Task<Result<HeldRegions>> fetch(local::MemorySet set, std::uint64_t migration, std::uint64_t from);
  // Returns the rank's own new memory for the regions, in their order.
  Task<Result<std::vector<UniqueFd>>> make(local::Make order, Milliseconds timeout);
  Task<Result<void>> replace(std::uint64_t migration, std::vector<local::RegionRecord> records,
                             std::vector<UniqueFd> descriptors);
  Task<Result<local::Mapped>> map(local::Map map, Milliseconds timeout);
  // Waits until the program's host memory is complete. The memory may follow a restored program.
  Task<Result<void>> await_memory(Milliseconds timeout);
  Task<Result<void>> prepare_dump(Milliseconds timeout);
  Task<Result<void>> reattach(local::Reattach how, Milliseconds timeout);
  Task<Result<void>> moved();
  Task<Result<void>> stop(Milliseconds grace);
  Task<Result<void>> kill();
  Task<Result<void>> shut_down();

  [[nodiscard]] bool is_open() const noexcept { return packets_->is_open(); }
  void close();

 private:
  KeeperLink(const asio::any_io_executor& executor, std::shared_ptr<PacketLink> packets, Milliseconds timeout,
             Handlers handlers);
  void start();
  void on_packet(Packet packet);
  void on_closed(Error error);
  Task<Result<void>> simple(local::Body body);

  asio::any_io_executor executor_;
  std::shared_ptr<PacketLink> packets_;
  Milliseconds timeout_;
  Handlers handlers_;
  // The next request number. It begins at a number that no earlier agent of this machine has reached, because
  // answers to that agent's requests may still arrive.
  std::uint64_t next_request_ = static_cast<std::uint64_t>(now_ns());
  std::map<std::uint64_t, Exchange*> exchanges_;
};

template <class T>
Task<Result<T>> KeeperLink::Exchange::expect(Milliseconds timeout) {
  auto answer = co_await next(timeout);
  if (!answer) co_return std::move(answer).error();
  if (T* body = std::get_if<T>(&answer->message.body)) co_return std::move(*body);
  co_return Error(ErrorCode::kProtocol,
                  "The keeper answered with " +
                      std::string(local::to_string(local::type_of(answer->message.body))) + " instead of " +
                      std::string(local::to_string(T::kType)));
}

}  // namespace ckpt::agent
