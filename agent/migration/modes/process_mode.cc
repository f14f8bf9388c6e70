// SPDX-License-Identifier: Apache-2.0
#include "agent/migration/modes/process_mode.h"

#include <spdlog/spdlog.h>

#include <algorithm>

#include "agent/host_process/criu_image/driver_listener.h"
#include "agent/host_process/criu_image/lazy_pages_choice.h"
#include "agent/host_process/criu_image/stopped_processes.h"
#include "agent/host_process/file_list.h"
#include "agent/host_process/image_pack.h"
#include "agent/host_process/memory_folder.h"
#include "agent/host_process/processes/process_tree.h"
#include "agent/migration/modes/kept_criu_logs.h"
#include "agent/migration/modes/latest_growth.h"
#include "agent/migration/modes/process_files.h"
#include "agent/migration/modes/process_image.h"
#include "agent/migration/modes/restored_process.h"
#include "agent/migration/modes/thin_rank.h"
#include "agent/migration/modes/tree_work.h"
#include "libckpt/base/fault.h"
#include "libckpt/datapath/engine/shared/lane_messages.h"
#include "libckpt/protocol/wire/ids.h"

namespace ckpt::agent {
namespace {

// Space for memory that a process allocates in the meantime, and for its other images.
constexpr std::uint64_t kSpareBytes = std::uint64_t{64} << 20;
constexpr std::uint64_t kMaxHostState = engine::kMaxHostState;
// The length that older movers accept. A longer file is announced only if necessary.
constexpr std::uint64_t kUsualHostState = std::uint64_t{4} << 30;
// The minimum number of bytes that a dump reads of memory that was copied ahead. The program has written
// these bytes since, or the agent reads them at the end in any case.
constexpr std::uint64_t kRestBytes = std::uint64_t{4} << 20;
// The rates for pages that CRIU does not keep, in bytes per nanosecond. CRIU writes such pages to a
// discarding file (0.12 s for 1 GiB), or leaves them out. In the second case, both CRIU and the agent still
// check the pages (0.03 s for 1 GiB).
constexpr std::uint64_t kDrainedPerNano = 9;
constexpr std::uint64_t kLookedAtPerNano = 32;

double ms(Nanos span) {
  return static_cast<double>(span) / 1e6;
}

}  // namespace

Nanos dump_cost(const host::TreeSize& size) {
  return static_cast<Nanos>(size.threads + size.descriptors / 4) * (kNanosPerMs / 2) +
         static_cast<Nanos>(size.mappings) * (kNanosPerMs / 32) +
         static_cast<Nanos>(size.processes) * 10 * kNanosPerMs;
}

Nanos restore_cost(const host::TreeSize& size) {
  return static_cast<Nanos>(size.threads + size.descriptors / 4) * (kNanosPerMs / 4) +
         static_cast<Nanos>(size.mappings) * (kNanosPerMs / 32) +
         static_cast<Nanos>(size.processes) * 10 * kNanosPerMs;
}

std::uint64_t context_bytes(const MigrationContext& context, const host::TreeSize& tree,
                            std::uint64_t region_bytes) {
  std::uint64_t counted = 0;
  for (const pid_t pid : tree.members) counted += context.gpus.device_bytes_of(pid);
  return counted > region_bytes ? counted - region_bytes : 0;
}

HostMemoryWork host_memory_work(const host::TreeSize& size, std::uint64_t region_bytes,
                                std::uint64_t named_bytes) {
  const std::uint64_t named = std::min(named_bytes, size.private_bytes);
  const std::uint64_t can_follow = size.private_bytes - named;
  HostMemoryWork work;
  work.read = size.without_shared(region_bytes);
  work.restored = host::restored_bytes(can_follow, can_follow) + (work.read - can_follow);
  return work;
}

HostMemoryWork copied_ahead(HostMemoryWork work, std::uint64_t ahead, std::uint64_t rest, bool leaves_out) {
  const std::uint64_t there = std::min(ahead, work.read);
  work.read -= there - std::min(there, std::max(rest, kRestBytes));
  work.scan = static_cast<Nanos>(ahead / (leaves_out ? kLookedAtPerNano : kDrainedPerNano));
  return work;
}

PauseWork process_work(const host::TreeSize& size, const HostMemoryWork& memory, std::uint64_t region_bytes,
                       bool streams, bool imports) {
  PauseWork work = common_work(PauseKind::kProcess);
  const std::uint64_t bytes = memory.read;
  work.add(PauseTerm::kContextSave).add(PauseTerm::kContextRestore);
  work.add(PauseTerm::kDump, bytes, dump_cost(size), memory.scan);
  work.add(PauseTerm::kHostRestore, memory.restored, restore_cost(size)).add(PauseTerm::kVerify, bytes);
  if (streams) {
    work.add(PauseTerm::kFinal, bytes).save_beside_copy();
  } else {
    work.add(PauseTerm::kFinal, bytes, 0,
             static_cast<Nanos>(bytes));  // 1 ns per byte, because all bytes are sent after the dump
  }
  if (!imports) work.add(PauseTerm::kFill, region_bytes);
  return work;
}

namespace {

// Returns the maximum size of the file. Unused length costs nothing. The size of a saved context is known
// only after its save. A log contains a page twice if the page was written again after its copy.
std::uint64_t longest_state(std::uint64_t expected) {
  return std::max(kUsualHostState, expected + expected / 2 + kSpareBytes);
}

}  // namespace

bool can_stream(std::uint64_t largest_bytes) {
  return longest_state(largest_bytes) <= kMaxHostState &&
         host::check_memory_left(2 * largest_bytes).has_value();
}

Task<Result<void>> ProcessSource::check(std::shared_ptr<Job> job) {
  CKPT_CO_TRY(facts, co_await context_.contexts.ready());
  if (!facts.can_checkpoint)
    co_return Error(ErrorCode::kRefused,
                    "This node's driver cannot save a context: " + facts.missing_support());
  CKPT_CO_TRYV(co_await context_.remap.prepare());
  CKPT_CO_TRY(criu, co_await find_criu(context_));
  criu_ = std::move(criu);
  const auto keeper = job->keeper();  // the job may have ended in the meantime
  if (!keeper) co_return Error(ErrorCode::kUnavailable, "The job's process has exited");
  CKPT_CO_TRY(status, co_await keeper->attach());
  const Milliseconds limit = co_await time_limit_of(context_, static_cast<pid_t>(status.rank_pid));
  auto whole = co_await keeper->await_memory(limit);
  if (!whole) {
    const bool is_late = whole.error().code() == ErrorCode::kTimedOut;
    co_return Error(ErrorCode::kRefused,
                    is_late ? "The program's memory is still arriving from its last move: try again later"
                            : "The program's memory has not arrived from its last move")
        .caused_by(std::move(whole).error());
  }
  if (status.session_pid == status.rank_pid)
    co_return Error(ErrorCode::kRefused,
                    "The job was started while its node could not move processes, so it has no PID namespace "
                    "of its own. The job can move only to another GPU of this node");
  const auto root = static_cast<pid_t>(status.rank_pid);
  rules_ = rules_of_transparent(context_, *job, status, *criu_);
  own_ = rules_.own;
  rules_.for_image = operation_.kind() == JobOperation::Kind::kSnapshot;
  rules_.ends_connections = operation_.resets_connections();
  CKPT_CO_TRY(files, co_await collect_files(context_, root, rules_));
  files_ = wire::encode(files);
  has_connections_ = !files.connected.empty();
  named_bytes_ = files.named.bytes() + files.cached.bytes();
  own_bytes_ = 0;
  CKPT_CO_TRYV(co_await measure_own_memory(root));
  listed_ = std::move(files);
  size_ = co_await size_of_tree(context_, root);
  limit_ = host::time_limit(size_.private_bytes + size_.shared_bytes);
  const std::uint64_t context = context_bytes(context_, size_, job->summary().region_bytes);
  size_.private_bytes += context + named_bytes_;
  co_return co_await open_stream(root, context + named_bytes_);
}

// Allocates the stream's memory before the pause. Otherwise the pause would wait while the kernel finds and
// clears so much memory.
Task<Result<void>> ProcessSource::open_stream(pid_t root, std::uint64_t beside_bytes) {
  if (operation_.copies_ahead()) {
    const bool follows = co_await follow_memory(root, beside_bytes);
    if (follows) co_return ok();
  }
  CKPT_CO_TRY(estimate, co_await estimate_dump(context_, root));
  const std::uint64_t expected = estimate.largest_bytes + beside_bytes;
  if (!can_stream(expected)) co_return host::check_memory_left(estimate.bytes + beside_bytes);
  const auto make = [expected] { return host::PageStream::create(longest_state(expected), expected); };
  CKPT_CO_TRY(stream, co_await offload(context_.images, make));
  stream_ = std::move(stream);
  co_return ok();
}

// Starts to copy host memory ahead. Returns false if host memory is read in the pause.
Task<bool> ProcessSource::follow_memory(pid_t root, std::uint64_t context_bytes) {
  if (!can_stream(size_.private_bytes)) co_return false;
  const auto follow = [root, context_bytes, max_bytes = longest_state(size_.private_bytes)] {
    return host::EarlyPages::create(root, max_bytes, context_bytes);
  };
  auto pages = co_await offload(context_.images, follow);
  if (!pages) {
    spdlog::info("host memory is not copied ahead: id {} reason {}", operation_.name(),
                 pages.error().to_string());
    co_return false;
  }
  rounds_ = std::make_shared<MemoryRounds>(context_, *std::move(pages));
  co_return true;
}

PauseWork ProcessSource::pause_work(const Job&, const local::StateSummary& summary) const {
  const std::uint64_t device = summary.region_bytes;
  HostMemoryWork memory = host_memory_work(size_, device, named_bytes_);
  if (rounds_) {
    const std::uint64_t followed = std::min(rounds_->pages().followed_bytes(), size_.private_bytes);
    const bool leaves_out = !rounds_->pages().criu_library().empty();
    memory = copied_ahead(memory, followed, rounds_->remaining_bytes(), leaves_out);
  }
  return process_work(size_, memory, device, rounds_ || stream_, context_.remap.imports());
}

std::optional<GrowingHostState> ProcessSource::growing_host_state(HostGrowth grew, bool target_reads_log) {
  if (rounds_ && !target_reads_log) {  // an older target receives all host memory in the pause
    asio::post(context_.images, [unused = std::exchange(rounds_, nullptr)] { unused->close(); });
  }
  if (!rounds_ && !stream_) return std::nullopt;
  auto file = log().duplicate_file();
  if (!file) return std::nullopt;
  GrowingHostState state;
  state.file = *std::move(file);
  state.limit = log().limit();
  state.expected = log().expected();
  grew_ = grew;
  if (rounds_) rounds_->start(std::move(grew));
  return state;
}

const host::MemoryLog& ProcessSource::log() const {
  return rounds_ ? rounds_->pages().log() : stream_->log();
}

// Begins the reports of pages. The progress of the stream's thread is reported to the mover on the loop.
Result<void> ProcessSource::begin_pages(const std::string& folder, const host::DumpEstimate& estimate) {
  if (rounds_) return rounds_->pages().begin_dump(folder, estimate);
  const auto grew = latest_growth(
      context_.executor, [report_growth = grew_](std::uint64_t filled) { report_growth(filled, false); });
  return stream_->begin(folder, estimate.largest_position, grew);
}

Result<host::PlacedPages> ProcessSource::finish_pages(const std::string& folder) {
  if (rounds_) return rounds_->pages().finish(folder, rounds_->growth());
  return stream_->finish();
}

void ProcessSource::host_state_sent(std::uint64_t bytes) {
  if (rounds_) rounds_->sent(bytes);
}

HostProgress ProcessSource::host_progress() const {
  return rounds_ ? rounds_->progress() : HostProgress();
}

Task<> ProcessSource::settle_host_state() {
  const auto rounds = rounds_;  // copied, because rounds_ may be released in the meantime
  if (rounds) co_await rounds->settle();
}

wire::MoveNeeds ProcessSource::needs() const {
  wire::MoveNeeds needs;
  needs.files = files_;
  needs.most_mappings = size_.most_mappings;
  needs.has_connections = has_connections_;
  needs.ended_connections = listed_.ended_connections;
  needs.resets_connections = rules_.ends_connections;
  needs.has_own_namespaces = own_.present;
  return needs;
}

Result<void> ProcessSource::check_target(const EndpointPayload& target) {
  return check_needs(needs(), target);
}

Task<Result<HostState>> ProcessSource::save(std::shared_ptr<Job> job, PausedState,
                                            wire::SourceReport& report) {
  CKPT_CO_TRYV(co_await end_rounds(job));
  CKPT_CO_TRYV(co_await save_context(context_, job));
  report.context_saved_ns = now_ns();
  CKPT_CO_TRY(state, co_await dump(job));
  report.host_saved_ns = now_ns();
  co_return state;
}

// Stops the rounds. The rank is paused, so it gives no more memory to devices.
Task<Result<void>> ProcessSource::end_rounds(std::shared_ptr<Job> job) {
  const auto rounds = rounds_;
  if (!rounds) co_return ok();
  co_await rounds->stop();
  const auto keeper = job->keeper();
  if (!keeper) co_return Error(ErrorCode::kUnavailable, "The job's process has exited");
  CKPT_CO_TRY(status, co_await keeper->attach());
  CKPT_CO_TRY(description, co_await keeper->describe());
  if (description.summary.host_state_bytes > 0)
    rounds->pages().distrust(static_cast<pid_t>(status.session_pid));
  co_return ok();
}

Task<Result<void>> ProcessSource::measure_own_memory(pid_t root) {
  if (!own_.present) co_return ok();
  const auto measure = [root, this] { return host::own_memory(root, own_); };
  CKPT_CO_TRY(memory, co_await offload(context_.images, measure));
  if (std::string reason = host::why_too_much(memory, own_); !reason.empty())
    co_return Error(ErrorCode::kRefused, std::move(reason));
  named_bytes_ += memory.bytes - own_bytes_;
  own_bytes_ = memory.bytes;
  co_return ok();
}

Result<void> ProcessSource::write_notes(const Job& job, const std::string& folder, bool has_connections) {
  CKPT_TRY(gpu, context_.gpus.identity_of(job.gpu()));
  const JobRecord& record = job.record();
  ImageNotes notes;
  notes.gpu = record.context_gpu.empty() ? to_text(gpu.uuid) : record.context_gpu;
  notes.connections = has_connections;
  notes.log = job.log_path();
  return write_image_notes(folder, notes);
}

Task<Result<HostState>> ProcessSource::dump(std::shared_ptr<Job> job) {
  const Nanos began = now_ns();
  const auto keeper = job->keeper();
  if (!keeper || !criu_) co_return Error(ErrorCode::kUnavailable, "The job's process has exited");
  CKPT_CO_TRY(status, co_await keeper->attach());
  const auto root = static_cast<pid_t>(status.rank_pid);
  CKPT_CO_TRYV(co_await keeper->prepare_dump(limit_));
  CKPT_CO_TRY(estimate, co_await estimate_dump(context_, root));
  CKPT_CO_TRYV(co_await measure_own_memory(root));  // the program may have written since the check
  const std::uint64_t held = rounds_ ? rounds_->held_bytes() : 0;
  const std::uint64_t again = rounds_ ? rounds_->remaining_bytes() : 0;
  CKPT_CO_TRYV(
      host::check_memory_left(estimate.bytes - std::min(held, estimate.bytes) + again + named_bytes_));
  CKPT_CO_TRY(place, host::find_memory_place());
  CKPT_CO_TRY(folder, host::MemoryFolder::create(place, image_folder_name(context_, operation_, "source"),
                                                 estimate.bytes - estimate.largest_bytes + named_bytes_));
  host::PlacedPages pages;
  host::DumpOptions options;
  if (grew_) {
    CKPT_CO_TRYV(begin_pages(folder.path(), estimate));
    options.may_repeat = [this] { return rounds_ || !stream_->has_any(); };
  } else {
    CKPT_CO_TRY(placed, host::place_pages(folder.path(), estimate.largest_position));
    pages = std::move(placed);
  }
  options.images = folder.path();
  options.work = folder.path();  // CRIU's logs are stored here, because only root may access this folder
  options.timeout = host::criu_timeout(estimate.bytes);
  if (rounds_) options.preload = rounds_->pages().criu_library();
  const NamedResources named = co_await find_named(context_, job);
  options.makes_links = own_.present || named.memory.needs_links();
  options.own_namespaces = own_.present;
  CKPT_CO_TRY(links, co_await acquire_dump_links(context_, named.memory));
  CKPT_CO_TRYV(co_await prepare_connections(context_, root, has_connections_, rules_.ends_connections,
                                            repair_, options));
  const Nanos prepared = now_ns();
  auto tried = co_await criu_->dump(root, options);
  if (!tried)
    co_return co_await save_criu_log(context_, operation_, host::Criu::dump_log(options), tried.error());
  const host::DumpFacts dumped = *tried;
  fault_point(FaultPoint::kSourceDumped);
  if (options.ends_connections) {
    CKPT_CO_TRYV(co_await end_connections(context_, root, repair_, folder.path(), options.connections));
  }
  const auto share = [this, root] { return ports_.share(root); };
  CKPT_CO_TRYV(co_await offload(context_.images, share));
  CKPT_CO_TRYV(write_notes(*job, folder.path(), options.connections));
  // The arguments are named and passed by reference, because g++ 12 destroys captures of a lambda inside
  // co_await twice.
  CKPT_CO_TRYV(co_await save_named(context_, job, root, folder.path()));
  CKPT_CO_TRYV(co_await save_handover(context_, root, folder.path(), listed_, rules_));
  links.release();
  const auto pack = [this, &job, &folder, &pages]() -> Result<host::PackedImage> {
    host::store_stopped(job->folder(), host::stopped_in(folder.path()));
    if (grew_) {
      CKPT_TRY(streamed, finish_pages(folder.path()));
      pages = std::move(streamed);
    }
    return host::pack_folder(folder.path(), std::move(pages));
  };
  CKPT_CO_TRY(packed, co_await offload(context_.images, pack));
  if (grew_ && packed.bytes > log().limit())
    co_return Error(ErrorCode::kOutOfMemory,
                    "The memory of the process has grown too much since its move began");
  spdlog::info("process dumped: id {} bytes {} packed {} prepare_ms {:.1f} criu_ms {:.1f} pack_ms {:.1f}",
               operation_.name(), dumped.bytes, packed.bytes, ms(prepared - began), ms(dumped.took_ns),
               ms(now_ns() - prepared - dumped.took_ns));
  if (!grew_) co_return HostState(std::move(packed.file), packed.bytes);
  grew_(packed.bytes, true);
  co_return HostState();
}

Task<Result<void>> ProcessSource::go_back(std::shared_ptr<Job> job) {
  const auto keeper = job->keeper();
  if (!keeper) {
    remove_images_of_source(context_, operation_.job());
    co_return Error(ErrorCode::kUnavailable, "The job's process has exited");
  }
  CKPT_CO_TRY(status, co_await keeper->attach());
  if (status.phase == local::Phase::kDumped) {
    const auto root = static_cast<pid_t>(status.rank_pid);
    const auto wait = [root] { return host::wait_for_dump(root, host::kDumpCheck); };
    CKPT_CO_TRYV(co_await offload(context_.images, wait));
    const auto take = [folder = job->folder()] { return host::pop_stopped(folder); };
    const std::set<pid_t> stopped = co_await offload(context_.images, take);
    remove_images_of_source(context_, operation_.job());
    co_await remove_dump_links(context_, job);
    ports_.take_back();
    CKPT_CO_TRYV(co_await end_repair(context_, root, repair_));
    CKPT_CO_TRYV(co_await resume_source(context_, root, stopped));
    const Milliseconds limit = co_await time_limit_of(context_, root);
    CKPT_CO_TRYV(co_await keeper->reattach(local::Reattach{}, limit));
  } else if (status.phase != local::Phase::kPaused) {
    co_return ok();
  }
  CKPT_CO_TRY(gpu, context_.gpus.identity_of(job->gpu()));
  CKPT_CO_TRYV(co_await place_context(context_, job, gpu, MemoryChoice(local::MemorySet::kExported, 0)));
  co_return ok();
}

// Frees the log in a thread other than the event loop, because this takes milliseconds.
Task<> ProcessSource::release() {
  grew_ = {};
  auto stream = std::exchange(stream_, nullptr);
  auto rounds = std::exchange(rounds_, nullptr);
  if (rounds) co_await rounds->stop();
  if (!stream && !rounds) co_return;
  const auto close = [&stream, &rounds] {
    stream.reset();
    if (rounds) rounds->close();
    return true;
  };
  co_await offload(context_.images, close);
}

Task<> ProcessSource::leave(std::shared_ptr<Job> job) {
  remove_image_folder(context_, operation_, "source");
  auto named = co_await find_all_named(context_, job);
  if (operation_.resets_connections()) co_await reset_connections(context_, job);
  co_await job->leave();
  co_await remove_named(context_, std::move(named));
}

}  // namespace ckpt::agent
