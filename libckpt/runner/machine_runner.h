// SPDX-License-Identifier: Apache-2.0
// Runs the pure machines of a commit protocol (protocol.h; libckpt/protocol/handover/driver.md): queues of
// events, records before effects, timers.
//
// Each event belongs to a queue. Events of a queue are handled one after another, in the order of their
// arrival. Queues run concurrently. Inside a batch the actions are executed strictly in order. Actions after
// a WriteRecord wait until the record is durable, and so does every later event of the queue (SW-2). If a
// queue has nothing to wait for, everything is done before enqueue() returns.
//
// Threads: the loop. append() and other disk work run on `disk`, a pool of one thread. Ownership: owns queues
// and timers; borrows protocol and pool. The pool's owner joins the pool before this object is destroyed,
// because records that are being written refer to it. Their later actions are left to the next start, as in a
// crash. Errors: an impossible event is logged and changes nothing. A record that was refused cleanly goes
// back to its machine. A record with an unknown result calls `fatal`, which must terminate the process: its
// restart reads the journal.
#pragma once

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "libckpt/base/clock.h"
#include "libckpt/base/log_throttle.h"
#include "libckpt/net/control/asio.h"
#include "libckpt/protocol/wire/ids.h"
#include "libckpt/runner/protocol.h"
#include "libckpt/runner/remote_messages.h"

namespace ckpt::runner {

template <class Types>
class MachineRunner {
 public:
  using ItsProtocol = Protocol<Types>;
  using Event = typename ItsProtocol::Event;
  using Batch = typename ItsProtocol::Batch;
  using Batches = typename ItsProtocol::Batches;
  using Key = typename ItsProtocol::Key;
  using Record = typename ItsProtocol::Record;
  using Timer = typename ItsProtocol::Timer;
  using MigrationId = wire::MigrationId;
  using Fatal = std::function<void(const Error&)>;

  MachineRunner(control::asio::any_io_executor executor, control::asio::thread_pool& disk,
                ItsProtocol& protocol, RemoteMessages::Limits limits, Fatal fatal)
      : executor_(std::move(executor)),
        disk_(disk),
        protocol_(protocol),
        remote_(limits),
        fatal_(std::move(fatal)) {}
  MachineRunner(const MachineRunner&) = delete;
  MachineRunner& operator=(const MachineRunner&) = delete;

  // Adds an event of this process, which is never dropped.
  void enqueue(MigrationId migration, Event event) { enqueue_item({migration, std::move(event), {}, false}); }
  // Adds a message of another process. This message or another one is dropped when too many wait
  // (remote_messages.h).
  void enqueue_remote(MigrationId migration, Event message);
  // Adds actions that no event causes: those of a restart, or of a machine that was just made.
  void enqueue_batches(MigrationId migration, Batches batches) {
    enqueue_item({migration, std::move(batches), {}, false});
  }
  // Adds the actions of a restart, or returns the reason why there are none. Waits until all actions are
  // done.
  control::Task<Result<void>> restore(MigrationId migration, Result<Batches> batches);
  // Waits until everything that the event causes is done. Returns an error if the event is impossible.
  control::Task<Result<void>> enqueue_and_wait(MigrationId migration, Event event);
  // Waits until everything is done that was in the migration's queue at the call.
  control::Task<> caught_up(MigrationId migration);

  // Returns whether the migration's queue has unfinished work.
  [[nodiscard]] bool is_busy(MigrationId migration) const {
    return queues_.contains(protocol_.queue_of(migration));
  }
  // Returns the number of waiting events in the migration's queue.
  [[nodiscard]] std::size_t waiting(MigrationId migration) const;

  // Disarms the timers of machines for whose key `which` returns true.
  void disarm(const std::function<bool(const Key&)>& which);
  // Fires now the armed timers for which `which` returns true.
  void fire_now(const std::function<bool(Timer)>& which);

 private:
  using Then = std::function<void(const Result<void>&)>;
  using TimerKey = std::pair<Key, Timer>;
  struct Mark {};  // an item without work, whose turn in the queue is awaited
  struct Item {
    MigrationId migration = 0;
    std::variant<Mark, Event, Batches> what;
    Then then;
    bool is_remote = false;
  };
  struct Queue {
    std::deque<Item> items;
    bool is_busy = false;
    Item current;
    Result<void> outcome = ok();
    std::deque<Batch> batches;  // the batches of the current item
    std::size_t next = 0;       // the index of the next action in the first batch
  };
  struct Armed {
    std::unique_ptr<control::asio::steady_timer> timer;
    std::uint64_t generation = 0;
  };

  void enqueue_item(Item item);
  control::Task<Result<void>> enqueue_item_and_wait(Item item);
  void drop_newest_of(MigrationId migration);
  void go_on(std::uint64_t id);
  // start_next() handles the next item of the queue, and execute() executes actions. Both functions return
  // false while the disk works.
  bool start_next(std::uint64_t id, Queue& queue);
  bool execute(std::uint64_t id, Queue& queue);
  void finish(Queue& queue);
  void set_batches(Queue& queue, Result<Batches> batches);
  void write(std::uint64_t id, const Batch& batch, const Record& record);
  void written(std::uint64_t id, const Record& record, const Result<void>& outcome);
  void refused(Queue& queue, const Record& record, const Error& error);
  void work(std::uint64_t id, DiskWork<Batch> asked);
  // Runs work() on the disk thread, and then done(result) on the loop.
  template <class Work, class Done>
  void on_disk(Work work, Done done);
  void arm(const Batch& batch, const typename Types::ArmTimer& action);
  void fire(const TimerKey& key);

  control::asio::any_io_executor executor_;
  control::asio::thread_pool& disk_;
  ItsProtocol& protocol_;
  RemoteMessages remote_;
  Fatal fatal_;
  std::map<std::uint64_t, Queue> queues_;  // the queues that have work
  std::map<TimerKey, Armed> timers_;
  std::uint64_t next_generation_ = 1;
  LogThrottle dropped_;
  LogThrottle impossible_;
};

template <class Types>
void MachineRunner<Types>::enqueue_remote(MigrationId migration, Event message) {
  const RemoteMessages::Verdict verdict = remote_.add(migration);
  if (verdict.loses_newest) drop_newest_of(*verdict.loses_newest);
  if (!verdict.is_accepted || verdict.loses_newest) {
    if (const auto left_out = dropped_.turn(now_ns()))
      spdlog::warn(
          "migration {}: {} messages are queued for the machines, one was dropped, {} similar lines "
          "suppressed",
          wire::migration_text(verdict.loses_newest.value_or(migration)), remote_.in_all(), *left_out);
  }
  if (verdict.is_accepted) enqueue_item({migration, std::move(message), {}, true});
}

template <class Types>
void MachineRunner<Types>::drop_newest_of(MigrationId migration) {
  std::deque<Item>& items = queues_.at(protocol_.queue_of(migration)).items;
  const auto newest = std::find_if(items.rbegin(), items.rend(), [migration](const Item& item) {
    return item.is_remote && item.migration == migration;
  });
  items.erase(std::prev(newest.base()));
}

template <class Types>
control::Task<Result<void>> MachineRunner<Types>::enqueue_and_wait(MigrationId migration, Event event) {
  Item item{migration, std::move(event), {}, false};
  co_return co_await enqueue_item_and_wait(std::move(item));
}

template <class Types>
control::Task<Result<void>> MachineRunner<Types>::restore(MigrationId migration, Result<Batches> batches) {
  if (!batches) co_return std::move(batches).error();
  enqueue_batches(migration, *std::move(batches));
  co_await caught_up(migration);
  co_return ok();
}

template <class Types>
control::Task<> MachineRunner<Types>::caught_up(MigrationId migration) {
  if (!is_busy(migration)) co_return;
  Item mark{migration, Mark{}, {}, false};
  co_await enqueue_item_and_wait(std::move(mark));
}

template <class Types>
control::Task<Result<void>> MachineRunner<Types>::enqueue_item_and_wait(Item item) {
  std::optional<Result<void>> result;
  const auto executor = co_await control::asio::this_coro::executor;
  co_await control::asio::async_initiate<const control::asio::use_awaitable_t<>, void()>(
      [&](auto handler) {
        const auto shared = std::make_shared<decltype(handler)>(std::move(handler));
        item.then = [&result, executor, shared](const Result<void>& outcome) {
          result = outcome;
          control::asio::post(executor, std::move(*shared));
        };
        enqueue_item(std::move(item));
      },
      control::asio::use_awaitable);
  co_return std::move(*result);
}

template <class Types>
std::size_t MachineRunner<Types>::waiting(MigrationId migration) const {
  const auto queue = queues_.find(protocol_.queue_of(migration));
  return queue == queues_.end() ? 0 : queue->second.items.size();
}

template <class Types>
void MachineRunner<Types>::enqueue_item(Item item) {
  const std::uint64_t id = protocol_.queue_of(item.migration);
  Queue& queue = queues_[id];
  queue.items.push_back(std::move(item));
  if (std::exchange(queue.is_busy, true)) return;
  if (start_next(id, queue)) go_on(id);
}

template <class Types>
void MachineRunner<Types>::go_on(std::uint64_t id) {
  Queue& queue = queues_.at(id);
  while (execute(id, queue)) {
    finish(queue);
    if (queue.items.empty()) {
      queues_.erase(id);
      return;
    }
    if (!start_next(id, queue)) return;
  }
}

template <class Types>
bool MachineRunner<Types>::start_next(std::uint64_t id, Queue& queue) {
  queue.current = std::move(queue.items.front());
  queue.items.pop_front();
  if (queue.current.is_remote) remote_.remove(queue.current.migration);
  queue.outcome = ok();
  if (auto* batches = std::get_if<Batches>(&queue.current.what)) {
    set_batches(queue, std::move(*batches));
    return true;
  }
  const auto* event = std::get_if<Event>(&queue.current.what);
  if (event == nullptr) return true;
  auto step = protocol_.step(queue.current.migration, *event);
  if (!step) {
    set_batches(queue, std::move(step).error());
    return true;
  }
  if (auto* batches = std::get_if<Batches>(&*step)) {
    set_batches(queue, std::move(*batches));
    return true;
  }
  work(id, std::get<DiskWork<Batch>>(std::move(*step)));
  return false;
}

template <class Types>
void MachineRunner<Types>::set_batches(Queue& queue, Result<Batches> batches) {
  if (batches) {
    Batches& found = *batches;
    queue.batches.assign(std::make_move_iterator(found.begin()), std::make_move_iterator(found.end()));
    return;
  }
  queue.outcome = batches.error();
  if (const auto left_out = impossible_.turn(now_ns()))
    spdlog::warn("migration {}: {} ({} similar lines suppressed)",
                 wire::migration_text(queue.current.migration), batches.error().to_string(), *left_out);
}

template <class Types>
void MachineRunner<Types>::finish(Queue& queue) {
  protocol_.on_event_done(queue.current.migration, std::get_if<Event>(&queue.current.what), queue.outcome);
  if (const Then then = std::exchange(queue.current.then, {})) then(queue.outcome);
}

template <class Types>
bool MachineRunner<Types>::execute(std::uint64_t id, Queue& queue) {
  while (!queue.batches.empty()) {
    const Batch& batch = queue.batches.front();
    if (queue.next == batch.actions.size()) {
      protocol_.executed(batch);
      queue.batches.pop_front();
      queue.next = 0;
      continue;
    }
    const auto& action = batch.actions[queue.next++];
    if (const auto* record = std::get_if<typename Types::WriteRecord>(&action)) {
      write(id, batch, record->record);
      return false;
    }
    if (const auto* timer = std::get_if<typename Types::ArmTimer>(&action))
      arm(batch, *timer);
    else if (const auto* disarmed = std::get_if<typename Types::DisarmTimer>(&action))
      timers_.erase(TimerKey(batch.key, disarmed->timer));
    else
      protocol_.perform(batch, action);
  }
  return true;
}

// Writes the record on the disk thread. Batch and record stay in place meanwhile, because their queue is
// busy.
template <class Types>
void MachineRunner<Types>::write(std::uint64_t id, const Batch& batch, const Record& record) {
  on_disk([this, &batch, &record] { return protocol_.append(batch, record); },
          [this, id, &record](const Result<void>& outcome) { written(id, record, outcome); });
}

template <class Types>
void MachineRunner<Types>::written(std::uint64_t id, const Record& record, const Result<void>& outcome) {
  Queue& queue = queues_.at(id);
  if (outcome) {
    protocol_.appended(queue.batches.front(), record);
    return go_on(id);
  }
  const Error& error = outcome.error();
  if (error.code() != ErrorCode::kRefused)
    return fatal_(
        Error(ErrorCode::kIo, "It is unknown whether a record of the journal was written").caused_by(error));
  refused(queue, record, error);
  go_on(id);
}

template <class Types>
void MachineRunner<Types>::refused(Queue& queue, const Record& record, const Error& error) {
  const std::string migration = wire::migration_text(queue.batches.front().key.migration);
  spdlog::error("migration {}: record {} refused: {}", migration, protocol_.name_of(record),
                error.to_string());
  auto answer = protocol_.record_refused(queue.batches.front(), record, error);
  queue.batches.pop_front();
  queue.next = 0;
  if (!answer) return spdlog::error("migration {}: {}", migration, answer.error().to_string());
  Batches& batches = *answer;
  queue.batches.insert(queue.batches.begin(), std::make_move_iterator(batches.begin()),
                       std::make_move_iterator(batches.end()));
}

template <class Types>
void MachineRunner<Types>::work(std::uint64_t id, DiskWork<Batch> asked) {
  on_disk(std::move(asked.work), [this, id, then = std::move(asked.then)](const Result<void>& outcome) {
    set_batches(queues_.at(id), then(outcome));
    go_on(id);
  });
}

// Runs the work on the disk thread. The guard keeps the loop from running out of work meanwhile.
template <class Types>
template <class Work, class Done>
void MachineRunner<Types>::on_disk(Work work, Done done) {
  control::asio::post(disk_, [executor = executor_, guard = control::asio::make_work_guard(executor_),
                              work = std::move(work), done = std::move(done)]() mutable {
    control::asio::post(executor, [outcome = work(), done = std::move(done)] { done(outcome); });
  });
}

template <class Types>
void MachineRunner<Types>::arm(const Batch& batch, const typename Types::ArmTimer& action) {
  const TimerKey key(batch.key, action.timer);
  Armed& armed = timers_[key];
  // A timer that has already fired cannot be canceled. The generation lets its handler detect that.
  armed.generation = next_generation_++;
  armed.timer = std::make_unique<control::asio::steady_timer>(executor_, protocol_.duration(batch, action));
  armed.timer->async_wait([this, key, generation = armed.generation](boost::system::error_code code) {
    if (code) return;
    const auto at = timers_.find(key);
    if (at == timers_.end() || at->second.generation != generation) return;
    fire(key);
  });
}

template <class Types>
void MachineRunner<Types>::fire(const TimerKey& key) {
  if (timers_.erase(key) == 0) return;  // the effects of another timer have disarmed this one
  enqueue(key.first.migration, protocol_.timer_fired(key.first, key.second));
}

template <class Types>
void MachineRunner<Types>::disarm(const std::function<bool(const Key&)>& which) {
  std::erase_if(timers_, [&which](const auto& armed) { return which(armed.first.first); });
}

template <class Types>
void MachineRunner<Types>::fire_now(const std::function<bool(Timer)>& which) {
  std::vector<TimerKey> due;
  for (const auto& [key, armed] : timers_)
    if (which(key.second)) due.push_back(key);
  for (const TimerKey& key : due) fire(key);
}

}  // namespace ckpt::runner
