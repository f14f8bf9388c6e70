// SPDX-License-Identifier: Apache-2.0
#include "agent/keeper/memory/memory_exchange.h"

#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <utility>

#include "libckpt/base/fault.h"
#include "libckpt/base/random.h"
#include "libckpt/inprocess/local/reattach.h"

namespace ckpt::keeper {
namespace {

using local::MemorySet;
using local::MemoryState;
using local::MessageType;
using local::Phase;

// Finds the process and thread of `pids` that wait to be called back.
Result<std::pair<pid_t, pid_t>> find_service_thread(const std::vector<pid_t>& pids) {
  for (const pid_t pid : pids) {
    const std::string tasks = "/proc/" + std::to_string(pid) + "/task/";
    for (const pid_t thread : threads_of(pid)) {
      const Result<std::string> name = read_file(tasks + std::to_string(thread) + "/comm", 64);
      if (name.has_value() && *name == std::string(local::kServiceThreadName) + "\n")
        return std::pair(pid, thread);
    }
  }
  return Error(ErrorCode::kNotFound, "No process of the job waits for a request to reconnect");
}

Result<void> call_back(std::pair<pid_t, pid_t> thread, std::uint64_t token) {
  siginfo_t info{};
  info.si_signo = local::reattach_signal();
  info.si_code = SI_QUEUE;
  info.si_pid = ::getpid();
  info.si_uid = ::getuid();
  info.si_value.sival_ptr = reinterpret_cast<void*>(token);
  if (::syscall(SYS_rt_tgsigqueueinfo, thread.first, thread.second, info.si_signo, &info) != 0)
    return Error::from_errno("Cannot signal the job's process to reconnect");
  return ok();
}

}  // namespace

void MemoryExchange::handle_request(local::Received received) {
  const std::uint64_t request = received.message.request;
  const MessageType type = type_of(received.message.body);
  if (!parts_.is_transparent)
    return parts_.agent.refuse(request, type, ErrorCode::kInvalidArgument,
                               "The request is not valid for a job in cooperative mode");
  if (handle_set_request(received) || !admit_request(request, type)) return;
  switch (type) {
    case MessageType::kRelease:
      return release(request);
    case MessageType::kMap:
      return map(request, std::get<local::Map>(received.message.body));
    case MessageType::kMake:
      return make(std::move(received));
    case MessageType::kPrepareDump:
      return prepare_dump(request);
    default:
      return reattach(request, std::get<local::Reattach>(received.message.body));
  }
}

// Answers a request that needs only the sets. Returns false for another kind of request.
bool MemoryExchange::handle_set_request(local::Received& received) {
  const std::uint64_t request = received.message.request;
  const local::Body& body = received.message.body;
  switch (type_of(body)) {
    case MessageType::kDeposit:
      return deposit(std::move(received)), true;
    case MessageType::kWithdraw:
      sets_.withdraw(std::get<local::Withdraw>(body).migration);
      return parts_.agent.answer(request, local::Done{}), true;
    case MessageType::kWithdrawRegions:
      sets_.withdraw_regions(std::get<local::WithdrawRegions>(body));
      return parts_.agent.answer(request, local::Done{}), true;
    case MessageType::kFetch:
      return fetch(request, std::get<local::Fetch>(body)), true;
    case MessageType::kReplace:
      return replace(std::move(received)), true;
    default:
      return false;
  }
}

// Checks whether a request may begin. Returns false if the function has refused the request, or if the
// pending request answers it.
bool MemoryExchange::admit_request(std::uint64_t request, MessageType type) {
  if (pending_.type == type && pending_.asker == 0) {
    pending_.asker = request;  // a later agent repeats the request and gets the answer
    return false;
  }
  const Phase wanted = type == MessageType::kReattach ? Phase::kDumped : Phase::kPaused;
  if (pending_.type != MessageType{}) {
    parts_.agent.refuse(
        request, type, ErrorCode::kRefused,
        "The keeper is still processing another request (" + std::string(to_string(pending_.type)) + ")");
    return false;
  }
  if (parts_.state.phase != wanted) {
    parts_.agent.refuse(request, type, ErrorCode::kRefused,
                        "Only a " + std::string(to_string(wanted)) +
                            " rank can carry out this request (phase " +
                            std::string(to_string(parts_.state.phase)) + ")");
    return false;
  }
  return true;
}

void MemoryExchange::finish(local::Body body, std::vector<UniqueFd> descriptors) {
  const Pending done = std::exchange(pending_, {});
  if (done.asker == 0)
    return parts_.agent.send_status(0);  // informs the currently connected agent that the request is complete
  parts_.agent.send({0, done.asker, std::move(body)}, std::move(descriptors));
}

void MemoryExchange::deposit(local::Received received) {
  const std::uint64_t request = received.message.request;
  const bool in_use = pending_.type == MessageType::kMap && mapping_.map.set == MemorySet::kArrived;
  if (in_use)
    return parts_.agent.refuse(request, MessageType::kDeposit, ErrorCode::kRefused,
                               "The memory set that has arrived is being mapped");
  if (Result<void> added = sets_.deposit(received); !added.has_value())
    return parts_.agent.answer(request, to_failed(MessageType::kDeposit, added.error()));
  parts_.agent.answer(request, local::Done{});
  fault_point(FaultPoint::kKeeperDeposited);
}

void MemoryExchange::fetch(std::uint64_t request, const local::Fetch& fetch) {
  Result<MemorySets::Part> part = sets_.fetch(fetch);
  if (!part.has_value()) return parts_.agent.answer(request, to_failed(MessageType::kFetch, part.error()));
  if (part->held.records.empty()) return parts_.agent.answer(request, local::Done{});
  parts_.agent.answer(request, std::move(part->held), std::move(part->descriptors));
}

void MemoryExchange::replace(local::Received received) {
  const std::uint64_t request = received.message.request;
  if (memory_ != MemoryState::kMapping || !is_idle())
    return parts_.agent.refuse(request, MessageType::kReplace, ErrorCode::kRefused,
                               "Only memory that the rank has created can replace the memory of a set");
  if (const Result<void> replaced = sets_.replace(received); !replaced.has_value())
    return parts_.agent.answer(request, to_failed(MessageType::kReplace, replaced.error()));
  parts_.agent.answer(request, local::Done{});
}

// Releases the rank's memory. Memory that a rank has mapped since its last Release, without continuing, is
// also in a set here. Therefore the rank may release it in any state.
void MemoryExchange::release(std::uint64_t request) {
  if (memory_ == MemoryState::kReleased) return parts_.agent.answer(request, local::Released{released_ns_});
  const bool discard = memory_ == MemoryState::kMapping;
  if (!discard && !sets_.exported().missing().empty()) {
    return parts_.agent.refuse(
        request, MessageType::kRelease, ErrorCode::kRefused,
        "The keeper does not hold all of the job's device memory: " + sets_.exported().missing());
  }
  begin(MessageType::kRelease, request);
  memory_before_ = std::exchange(memory_, MemoryState::kReleasing);
  parts_.rank.send(
      {0, request, local::Release{sets_.exported().size(), sets_.exported().digest(), discard ? 1u : 0u, 0}});
}

void MemoryExchange::map(std::uint64_t request, const local::Map& map) {
  if (memory_ == MemoryState::kMapped) return parts_.agent.answer(request, local::Mapped{mapped_ns_});
  if (map.set == MemorySet::kArrived && sets_.find(map.set, map.migration) == nullptr) {
    return parts_.agent.refuse(request, MessageType::kMap, ErrorCode::kRefused,
                               "No memory of this migration has arrived");
  }
  begin(MessageType::kMap, request);
  memory_ = MemoryState::kMapping;
  mapping_ = {map, 0, mapping_.sequence};
  send_map_batch();
}

// Sends the next batch of the set that is being mapped. After the last batch the function sends the order
// itself.
void MemoryExchange::send_map_batch() {
  const local::Map& map = mapping_.map;
  MemoryBank::Batch batch;
  if (map.set != MemorySet::kMade) {
    const MemoryBank& set = map.set == MemorySet::kArrived ? sets_.arrived() : sets_.exported();
    Result<MemoryBank::Batch> next = set.batch_after(mapping_.last_id);
    if (!next.has_value()) {
      memory_ = MemoryState::kMapping;  // mapped memory stays until Release or another Map
      return finish(to_failed(MessageType::kMap, next.error()));
    }
    batch = *std::move(next);
  }
  if (batch.records.empty()) return parts_.rank.send({0, pending_.request, map});
  mapping_.last_id = batch.records.back().id;
  local::MapBatch message{++mapping_.sequence, std::move(batch.records)};
  parts_.rank.send({0, pending_.request, std::move(message)}, std::move(batch.descriptors));
}

void MemoryExchange::make(local::Received received) {
  const std::uint64_t request = received.message.request;
  if (memory_ == MemoryState::kMapped) {
    return parts_.agent.refuse(request, MessageType::kMake, ErrorCode::kRefused,
                               "The rank's device memory is already mapped");
  }
  begin(MessageType::kMake, request);
  memory_ = MemoryState::kMapping;
  parts_.rank.send(received.message);
}

void MemoryExchange::prepare_dump(std::uint64_t request) {
  if (memory_ != MemoryState::kReleased) {
    return parts_.agent.refuse(request, MessageType::kPrepareDump, ErrorCode::kRefused,
                               "A process can be dumped only while its device memory is released");
  }
  begin(MessageType::kPrepareDump, request);
  parts_.rank.send({0, request, local::PrepareDump{}});
}

void MemoryExchange::reattach(std::uint64_t request, const local::Reattach& how) {
  const auto called = [this, &how]() -> Result<void> {
    std::uint64_t token = 0;
    CKPT_TRYV(fill_random(std::as_writable_bytes(std::span(&token, 1))));
    CKPT_TRY(listener, local::Listener::create(local::reattach_address(token)));
    CKPT_TRY(thread, find_service_thread(parts_.process.members()));
    if (how.restore_thread != 0) {
      const std::vector<pid_t> workers = {thread.second, static_cast<pid_t>(how.restore_thread)};
      CKPT_TRYV(parts_.hold.acquire(thread.first, workers, how.hold_ms * kNanosPerMs));
    }
    CKPT_TRYV(call_back(thread, token));
    reattach_.emplace(std::move(listener));
    return ok();
  }();
  if (!called.has_value())
    return parts_.agent.answer(request, to_failed(MessageType::kReattach, called.error()));
  begin(MessageType::kReattach, request);
  if (!parts_.lease.is_over()) parts_.hold.go_on();
}

void MemoryExchange::handle_answer(local::Received received) {
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
    parts_.state.restored = true;
    finish(message.body);
  } else if (answers(MessageType::kMake, MessageType::kMade)) {
    finish(message.body, std::move(received.descriptors));
  } else if (answers(MessageType::kPrepareDump, MessageType::kDumpReady)) {
    dump_ready_ = true;  // the readiness is reported when the rank's connection closes
  }
}

// Handles a failure. kRefused means that nothing was changed. After any other error the memory is incomplete
// until Release or Map repairs it.
bool MemoryExchange::on_failed(const local::Message& message) {
  if (is_idle() || message.request != pending_.request) return false;
  const auto& failed = std::get<local::Failed>(message.body);
  const bool untouched = failed.code == static_cast<std::uint32_t>(ErrorCode::kRefused);
  if (pending_.type == MessageType::kRelease) memory_ = untouched ? memory_before_ : MemoryState::kMapping;
  if (pending_.type == MessageType::kMap) memory_ = MemoryState::kReleased;
  finish(failed);
  return true;
}

// ---- the export ----

void MemoryExchange::begin_export(std::uint64_t request) {
  sets_.exported().clear();
  if (parts_.rank.is_open()) export_request_ = request;
}

void MemoryExchange::stop_export() {
  drop_exported();
  if (export_request_ == 0) return;
  parts_.rank.send({0, export_request_, local::StopExport{}});
  export_request_ = 0;
}

bool MemoryExchange::on_export(local::Received& received) {
  if (received.message.request != export_request_) return false;
  if (parts_.is_transparent) store_exported(received);
  if (auto* end = std::get_if<local::ExportEnd>(&received.message.body))
    parts_.rank.mark_not_movable(end->summary);
  return true;
}

void MemoryExchange::on_export_failed(const local::Message& message) {
  const auto refused = static_cast<MessageType>(std::get<local::Failed>(message.body).refused_type);
  if (refused == MessageType::kExport) export_request_ = 0;
}

void MemoryExchange::store_exported(const local::Received& received) {
  const local::Body& body = received.message.body;
  if (const auto* batch = std::get_if<local::ExportBatch>(&body)) {
    if (Result<void> added = sets_.exported().add(batch->records, received.descriptors); !added.has_value())
      ::dprintf(2, "%s\n", added.error().to_string().c_str());
  } else if (const auto* freed = std::get_if<local::RegionFreed>(&body)) {
    sets_.exported().drop(freed->id, freed->generation);
  }
}

// Drops the exported set, unless the set is the job's only memory.
void MemoryExchange::drop_exported() {
  if (is_mapped() && pending_.type != MessageType::kRelease) sets_.exported().clear();
}

// ---- ends ----

void MemoryExchange::on_agent_gone() {
  stop_export();
  pending_.asker = 0;
}

bool MemoryExchange::on_dumped() {
  if (!std::exchange(dump_ready_, false)) return false;
  parts_.state.phase = Phase::kDumped;
  export_request_ = 0;
  fault_point(FaultPoint::kKeeperDumped);
  finish(local::DumpReady{});
  return true;
}

void MemoryExchange::on_rank_gone(const std::string& reason) {
  const Error gone(ErrorCode::kUnavailable, reason);
  if (export_request_ != 0) parts_.agent.answer(export_request_, to_failed(MessageType::kExport, gone));
  export_request_ = 0;
  if (!is_idle()) finish(to_failed(pending_.type, gone));
  memory_ = MemoryState::kMapped;  // a later session starts with no exported memory
  sets_.exported().clear();
}

void MemoryExchange::on_exited() {
  export_request_ = 0;
  sets_.clear();
  reattach_.reset();
  if (!is_idle()) finish(to_failed(pending_.type, Error(ErrorCode::kUnavailable, "The program has exited")));
}

void MemoryExchange::on_called_back() {
  reattach_.reset();
  parts_.state.phase = Phase::kPaused;
  finish(local::Done{});
}

}  // namespace ckpt::keeper
