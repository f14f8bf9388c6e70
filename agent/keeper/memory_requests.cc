// SPDX-License-Identifier: Apache-2.0
// A transparent rank's device memory while it moves: what the agent asks, what the rank answers, and the two
// sets of descriptors.
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <filesystem>
#include <utility>

#include "agent/keeper/keeper.h"
#include "libckpt/base/fault.h"
#include "libckpt/base/random.h"
#include "libckpt/inprocess/local/reattach.h"

namespace ckpt::keeper {
namespace {

using local::MemorySet;
using local::MemoryState;
using local::MessageType;
using local::Phase;

// A mover gets two descriptors for each, and a message has no more than kMaxDescriptors.
constexpr std::size_t kMaxFetched = local::kMaxDescriptors / 2;

// The thread of `pids` that waits to be called back.
Result<std::pair<pid_t, pid_t>> find_service_thread(const std::vector<pid_t>& pids) {
  for (const pid_t pid : pids) {
    std::error_code ignored;
    const std::string tasks = "/proc/" + std::to_string(pid) + "/task";
    for (const auto& entry : std::filesystem::directory_iterator(tasks, ignored)) {
      const Result<std::string> name = read_file(entry.path().string() + "/comm", 64);
      if (!name.has_value() || name.assume_value() != std::string(local::kServiceThreadName) + "\n") continue;
      return std::pair(pid, static_cast<pid_t>(std::atoi(entry.path().filename().c_str())));
    }
  }
  return Error(ErrorCode::kNotFound, "No process of the job waits to be called back");
}

Result<void> call_back(const std::vector<pid_t>& pids, std::uint64_t token) {
  CKPT_TRY(thread, find_service_thread(pids));
  siginfo_t info{};
  info.si_signo = local::reattach_signal();
  info.si_code = SI_QUEUE;
  info.si_pid = ::getpid();
  info.si_uid = ::getuid();
  info.si_value.sival_ptr = reinterpret_cast<void*>(token);
  if (::syscall(SYS_rt_tgsigqueueinfo, thread.first, thread.second, info.si_signo, &info) != 0)
    return Error::from_errno("Calling the job's process back");
  return ok();
}

}  // namespace

void Keeper::handle_memory_request(local::Received received) {
  const std::uint64_t request = received.message.request;
  const MessageType type = type_of(received.message.body);
  if (!is_transparent()) {
    return refuse(request, type, ErrorCode::kInvalidArgument, "The job moves the cooperative way");
  }
  switch (type) {
    case MessageType::kDeposit:
      return on_deposit(std::move(received));
    case MessageType::kWithdraw:
      if (std::get<local::Withdraw>(received.message.body).migration == arrived_migration_) arrived_.clear();
      return answer(request, local::Done{});
    case MessageType::kWithdrawRegions:
      on_withdraw_regions(std::get<local::WithdrawRegions>(received.message.body));
      return answer(request, local::Done{});
    case MessageType::kFetch:
      return on_fetch(request, std::get<local::Fetch>(received.message.body));
    case MessageType::kReplace:
      return on_replace(std::move(received));
    default:
      break;
  }
  if (!may_begin(request, type)) return;
  switch (type) {
    case MessageType::kRelease:
      return on_release(request);
    case MessageType::kMap:
      return on_map(request, std::get<local::Map>(received.message.body));
    case MessageType::kMake:
      return on_make(std::move(received));
    case MessageType::kPrepareDump:
      return on_prepare_dump(request);
    default:
      return on_reattach(request);
  }
}

// False if the request was answered here.
bool Keeper::may_begin(std::uint64_t request, MessageType type) {
  if (pending_.type == type && pending_.asker == 0) {
    pending_.asker = request;  // the same, asked again by a later agent: it gets the answer
    return false;
  }
  const Phase wanted = type == MessageType::kReattach ? Phase::kDumped : Phase::kPaused;
  if (pending_.type != MessageType{}) {
    refuse(request, type, ErrorCode::kRefused,
           "The keeper waits for the end of another request (" + std::string(to_string(pending_.type)) + ")");
    return false;
  }
  if (phase_ != wanted) {
    refuse(request, type, ErrorCode::kRefused,
           "Only a " + std::string(to_string(wanted)) + " rank can be asked for this (phase " +
               std::string(to_string(phase_)) + ")");
    return false;
  }
  return true;
}

void Keeper::finish(local::Body body, std::vector<UniqueFd> descriptors) {
  const Pending done = std::exchange(pending_, {});
  if (done.asker == 0) return answer(0, status());  // whoever is there now learns that it is over
  send_agent({0, done.asker, std::move(body)}, std::move(descriptors));
}

void Keeper::on_deposit(local::Received received) {
  const auto& deposit = std::get<local::Deposit>(received.message.body);
  const bool in_use = pending_.type == MessageType::kMap && mapping_.map.set == MemorySet::kArrived;
  if (in_use) {
    return refuse(received.message.request, MessageType::kDeposit, ErrorCode::kRefused,
                  "The set that has arrived is being mapped");
  }
  if (deposit.migration != arrived_migration_) arrived_.clear();
  arrived_migration_ = deposit.migration;
  if (Result<void> added = arrived_.add(deposit.records, received.descriptors); !added.has_value())
    return answer(received.message.request, to_failed(MessageType::kDeposit, added.assume_error()));
  answer(received.message.request, local::Done{});
  fault_point(FaultPoint::kKeeperDeposited);
}

void Keeper::on_withdraw_regions(const local::WithdrawRegions& gone) {
  if (gone.migration != arrived_migration_) return;
  for (const local::RegionKey& region : gone.records) arrived_.drop(region.id, region.generation);
}

bool Keeper::has_set(MemorySet set, std::uint64_t migration) const {
  if (set == MemorySet::kArrived) return migration == arrived_migration_ && !arrived_.empty();
  return set == MemorySet::kExported;
}

// Largest first: then no batch holds more than the first region alone, which has to be there twice in any
// case.
void Keeper::on_fetch(std::uint64_t request, const local::Fetch& fetch) {
  if (!has_set(fetch.set, fetch.migration))
    return refuse(request, MessageType::kFetch, ErrorCode::kRefused, "There is no such set of memory here");
  const MemoryBank& set = fetch.set == MemorySet::kArrived ? arrived_ : exported_;
  if (fetch.from == 0 || fetch_order_.empty()) fetch_order_ = set.by_size();
  if (fetch.from >= fetch_order_.size()) {
    fetch_order_.clear();
    return answer(request, local::Done{});
  }
  std::size_t taken = 0;
  Result<MemoryBank::Batch> batch = set.batch_of(std::span(fetch_order_).subspan(fetch.from), kMaxFetched,
                                                 set.bytes_of(fetch_order_.front()), taken);
  if (!batch.has_value()) return answer(request, to_failed(MessageType::kFetch, batch.assume_error()));
  if (batch.assume_value().records.empty()) return answer(request, local::Done{});
  local::Held held{fetch.from + taken, std::move(batch.assume_value().records)};
  send_agent({0, request, std::move(held)}, std::move(batch.assume_value().descriptors));
}

void Keeper::on_replace(local::Received received) {
  const std::uint64_t request = received.message.request;
  const auto& replace = std::get<local::Replace>(received.message.body);
  const MemorySet which = replace.migration == 0 ? MemorySet::kExported : MemorySet::kArrived;
  if (memory_ != MemoryState::kMapping || pending_.type != MessageType{} ||
      !has_set(which, replace.migration)) {
    return refuse(request, MessageType::kReplace, ErrorCode::kRefused,
                  "Only memory that the rank has made can take the place of a set's");
  }
  MemoryBank& set = which == MemorySet::kArrived ? arrived_ : exported_;
  const Result<void> replaced = set.replace(replace.records, received.descriptors);
  if (!replaced.has_value())
    return answer(request, to_failed(MessageType::kReplace, replaced.assume_error()));
  answer(request, local::Done{});
}

// What a rank has mapped since its last Release, and has not gone on with, is in a set here: it may go
// whatever the rank has.
void Keeper::on_release(std::uint64_t request) {
  if (memory_ == MemoryState::kReleased) return answer(request, local::Released{released_ns_});
  const bool discard = memory_ == MemoryState::kMapping;
  if (!discard && !exported_.missing().empty()) {
    return refuse(request, MessageType::kRelease, ErrorCode::kRefused,
                  "Not all of the job's device memory is held here: " + exported_.missing());
  }
  begin(MessageType::kRelease, request);
  memory_before_ = std::exchange(memory_, MemoryState::kReleasing);
  send_rank({0, request, local::Release{exported_.size(), exported_.digest(), discard ? 1u : 0u, 0}});
}

void Keeper::on_map(std::uint64_t request, const local::Map& map) {
  if (memory_ == MemoryState::kMapped) return answer(request, local::Mapped{mapped_ns_});
  if (map.set == MemorySet::kArrived && (map.migration != arrived_migration_ || arrived_.empty())) {
    return refuse(request, MessageType::kMap, ErrorCode::kRefused, "No memory of this migration has arrived");
  }
  begin(MessageType::kMap, request);
  memory_ = MemoryState::kMapping;
  mapping_ = {map, 0, mapping_.sequence};
  send_map_batch();
}

// The next batch of the set that is being mapped; after the last one the order itself.
void Keeper::send_map_batch() {
  const local::Map& map = mapping_.map;
  MemoryBank::Batch batch;
  if (map.set != MemorySet::kMade) {
    const MemoryBank& set = map.set == MemorySet::kArrived ? arrived_ : exported_;
    Result<MemoryBank::Batch> next = set.batch_after(mapping_.last_id);
    if (!next.has_value()) {
      memory_ = MemoryState::kMapping;  // what has been mapped stays until Release or another Map
      return finish(to_failed(MessageType::kMap, next.assume_error()));
    }
    batch = std::move(next).assume_value();
  }
  if (batch.records.empty()) return send_rank({0, pending_.request, map});
  mapping_.last_id = batch.records.back().id;
  local::MapBatch message{++mapping_.sequence, std::move(batch.records)};
  send_rank({0, pending_.request, std::move(message)}, std::move(batch.descriptors));
}

void Keeper::on_make(local::Received received) {
  const std::uint64_t request = received.message.request;
  if (memory_ == MemoryState::kMapped) {
    return refuse(request, MessageType::kMake, ErrorCode::kRefused, "The rank's device memory is mapped");
  }
  begin(MessageType::kMake, request);
  memory_ = MemoryState::kMapping;
  send_rank(received.message);
}

void Keeper::on_prepare_dump(std::uint64_t request) {
  if (memory_ != MemoryState::kReleased) {
    return refuse(request, MessageType::kPrepareDump, ErrorCode::kRefused,
                  "A process can be dumped only while its device memory is released");
  }
  begin(MessageType::kPrepareDump, request);
  send_rank({0, request, local::PrepareDump{}});
}

void Keeper::on_reattach(std::uint64_t request) {
  const auto called = [this]() -> Result<void> {
    std::uint64_t token = 0;
    CKPT_TRYV(fill_random(std::as_writable_bytes(std::span(&token, 1))));
    CKPT_TRY(listener, local::Listener::create(local::reattach_address(token)));
    CKPT_TRYV(call_back(parts_.process.members(), token));
    reattach_.emplace(std::move(listener));
    return ok();
  }();
  if (!called.has_value()) return answer(request, to_failed(MessageType::kReattach, called.assume_error()));
  begin(MessageType::kReattach, request);
  if (!lease_over_) parts_.process.signal_group(SIGCONT);
}

void Keeper::handle_memory_answer(local::Received received) {
  const local::Message& message = received.message;
  if (pending_.type == MessageType{} || message.request != pending_.request) return;
  const MessageType type = type_of(message.body);
  const auto answers = [&](MessageType request, MessageType reply) {
    return pending_.type == request && type == reply;
  };
  if (answers(MessageType::kRelease, MessageType::kReleased)) {
    memory_ = MemoryState::kReleased;
    released_ns_ = std::get<local::Released>(message.body).at_ns;
    finish(message.body);
  } else if (answers(MessageType::kMap, MessageType::kMapAck)) {
    if (std::get<local::MapAck>(message.body).sequence == mapping_.sequence) send_map_batch();
  } else if (answers(MessageType::kMap, MessageType::kMapped)) {
    memory_ = MemoryState::kMapped;
    mapped_ns_ = std::get<local::Mapped>(message.body).at_ns;
    restored_ = true;
    finish(message.body);
  } else if (answers(MessageType::kMake, MessageType::kMade)) {
    finish(message.body, std::move(received.descriptors));
  } else if (answers(MessageType::kPrepareDump, MessageType::kDumpReady)) {
    dump_ready_ = true;  // told when its connection is closed
  }
}

// kRefused: nothing was touched. After anything else the memory is in pieces: Release or Map puts it right.
void Keeper::on_memory_failed(const local::Message& message) {
  const auto& failed = std::get<local::Failed>(message.body);
  const bool untouched = failed.code == static_cast<std::uint32_t>(ErrorCode::kRefused);
  if (pending_.type == MessageType::kRelease) memory_ = untouched ? memory_before_ : MemoryState::kMapping;
  if (pending_.type == MessageType::kMap) memory_ = MemoryState::kReleased;
  finish(failed);
}

void Keeper::keep_exported(const local::Received& received) {
  const local::Body& body = received.message.body;
  if (const auto* batch = std::get_if<local::ExportBatch>(&body)) {
    if (Result<void> added = exported_.add(batch->records, received.descriptors); !added.has_value())
      ::dprintf(2, "%s\n", added.assume_error().to_string().c_str());
  } else if (const auto* freed = std::get_if<local::RegionFreed>(&body)) {
    exported_.drop(freed->id, freed->generation);
  }
}

// Not while the job lives from it.
void Keeper::drop_exported() {
  if (memory_ == MemoryState::kMapped && pending_.type != MessageType::kRelease) exported_.clear();
}

}  // namespace ckpt::keeper
