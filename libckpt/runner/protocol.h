// SPDX-License-Identifier: Apache-2.0
// A commit protocol as MachineRunner runs it: pure machines, a journal, and effects. A protocol decides what an event
// means and what an action does; the runner keeps the order.
//
// `Types` names the protocol's types:
//   Event        what its machines are fed with
//   Batch        the actions of one step of one machine, in order: `key` (with `key.migration`) and `actions`
//   Action       a variant of, among others, these three
//   WriteRecord  with `record`, a Record
//   ArmTimer, DisarmTimer   with `timer`, a Timer
//
// Threads: the loop, but for append() and the work of a DiskWork, which run on the disk thread, one at a time.
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

// Something must be done on the disk thread before it is known what an event leads to. Later events of the queue wait.
template <class Batch>
struct DiskWork {
  std::function<Result<void>()> work;
  std::function<Result<std::vector<Batch>>(const Result<void>&)> then;  // on the loop
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

  // Events of one queue are handled one after the other.
  [[nodiscard]] virtual std::uint64_t queue_of(wire::MigrationId migration) const = 0;
  // Hands the event to its machine. An error: the event cannot be, and nothing has changed. `event` stays until handled().
  virtual Result<Step<Batch>> step(wire::MigrationId migration, const Event& event) = 0;
  [[nodiscard]] virtual Event timer_fired(const Key& key, Timer timer) const = 0;
  // The record was refused cleanly: nothing is written. The rest of the batch is dropped for what this returns.
  virtual Result<Batches> record_refused(const Batch& batch, const Record& record, const Error& why) = 0;

  // On the disk thread. kRefused: nothing is written; every other error: the record's fate is unknown.
  virtual Result<void> append(const Batch& batch, const Record& record) = 0;
  // The record is durable; no later action of the queue has been executed.
  virtual void appended(const Batch& batch, const Record& record) = 0;
  // Every action but records and timers. Returns at once; what comes of it is put into the runner.
  virtual void perform(const Batch& batch, const Action& action) = 0;
  [[nodiscard]] virtual std::chrono::milliseconds duration(const Batch& batch,
                                                           const typename Types::ArmTimer& timer) const = 0;
  // All actions of the batch are executed.
  virtual void executed(const Batch& /*batch*/) {}
  // Everything that the event led to is done, or `outcome` has the reason why it cannot be. `event`: null for batches that were
  // put in.
  virtual void handled(wire::MigrationId migration, const Event* event, const Result<void>& outcome) = 0;

  [[nodiscard]] virtual std::string name_of(const Record& record) const = 0;
};

}  // namespace ckpt::runner
