// SPDX-License-Identifier: Apache-2.0
// A commit protocol in the form that MachineRunner runs: pure machines, a journal, and effects. A protocol
// decides what an event means and what an action does. The runner ensures the order.
//
// `Types` names the protocol's types:
//   Event        the input of its machines
//   Batch        the actions of one step of one machine, in order: `key` (with `key.migration`) and `actions`
//   Action       a variant of, among others, these three
//   WriteRecord  with `record`, a Record
//   ArmTimer, DisarmTimer   with `timer`, a Timer
//
// Threads: the loop, except append() and the work of a DiskWork, which run on the disk thread, one at a time.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "libckpt/base/result.h"
#include "libckpt/protocol/wire/commit_messages.h"

namespace ckpt::runner {

// Work that must be done on the disk thread before the effects of an event are known. Later events of the
// queue wait.
template <class Batch>
struct DiskWork {
  std::function<Result<void>()> work;
  // A function that runs on the loop and receives the result of the work.
  std::function<Result<std::vector<Batch>>(const Result<void>&)> then;
};
template <class Batch>
using Step = std::variant<std::vector<Batch>, DiskWork<Batch>>;

template <class Batch>
Result<Step<Batch>> as_step(Result<std::vector<Batch>> batches) {
  if (!batches) return std::move(batches).error();
  return Step<Batch>(*std::move(batches));
}

template <class Types>
class Protocol {
 public:
  using Event = typename Types::Event;
  using Batch = typename Types::Batch;
  using Batches = std::vector<Batch>;
  using Key = std::decay_t<decltype(Batch::key)>;
  using Action = typename Types::Action;
  using Record = typename Types::Record;
  using Timer = typename Types::Timer;

  virtual ~Protocol() = default;

  // Returns the queue of the migration. Events of one queue are handled one after another.
  [[nodiscard]] virtual std::uint64_t queue_of(wire::MigrationId migration) const = 0;
  // Passes the event to its machine. On an error, the event is impossible and nothing has changed. `event`
  // exists until on_event_done().
  virtual Result<Step<Batch>> step(wire::MigrationId migration, const Event& event) = 0;
  [[nodiscard]] virtual Event timer_fired(const Key& key, Timer timer) const = 0;
  // Handles a cleanly refused record: nothing is written. The result replaces the rest of the batch.
  virtual Result<Batches> record_refused(const Batch& batch, const Record& record, const Error& reason) = 0;

  // Writes the record, on the disk thread. kRefused: nothing is written. After every other error, the result
  // is unknown.
  virtual Result<void> append(const Batch& batch, const Record& record) = 0;
  // Runs when the record is durable. No later action of the queue has been executed.
  virtual void appended(const Batch& batch, const Record& record) = 0;
  // Performs an action that is neither a record nor a timer. Returns at once; the action's results are
  // enqueued in the runner.
  virtual void perform(const Batch& batch, const Action& action) = 0;
  [[nodiscard]] virtual std::chrono::milliseconds duration(const Batch& batch,
                                                           const typename Types::ArmTimer& timer) const = 0;
  // Runs when all actions of the batch are executed.
  virtual void executed(const Batch& /*batch*/) {}
  // Runs when everything that the event causes is done, or `outcome` has the reason why the event is
  // impossible. `event` is null for batches that were enqueued directly.
  virtual void on_event_done(wire::MigrationId migration, const Event* event,
                             const Result<void>& outcome) = 0;

  [[nodiscard]] virtual std::string name_of(const Record& record) const = 0;
};

}  // namespace ckpt::runner
