// SPDX-License-Identifier: Apache-2.0
#include "agent/mover/snapshots/snapshot_transfer.h"

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "agent/mover/session/copy_options.h"
#include "libckpt/base/clock.h"
#include "libckpt/base/fault.h"
#include "libckpt/base/fd.h"
#include "libckpt/base/machine/cores.h"
#include "libckpt/net/control/log.h"

namespace ckpt::mover {
namespace {

// A round ahead that copies no more than this amount is the last one. The copy of so little at the barrier is
// short.
constexpr std::uint64_t kLittleBytes = std::uint64_t{16} << 20;
constexpr int kMaxRoundsAhead = 3;
constexpr std::uint64_t kLittleDirtyBytes = std::uint64_t{64} << 20;
constexpr std::uint64_t kMaxRecordBytes = std::uint64_t{64} << 20;
constexpr std::size_t kLargestMeminfo = std::size_t{64} << 10;
constexpr std::chrono::milliseconds kLockPause{20};
constexpr std::chrono::minutes kLongestLock{5};
constexpr unsigned kMaxWriters = 4;
constexpr int kWriterNice = 10;

Result<std::vector<std::byte>> read_memory_file(const UniqueFd& file, std::uint64_t bytes) {
  struct stat status {};
  if (::fstat(file.get(), &status) != 0) return Error::from_errno("Cannot read the size of a job's record");
  if (bytes > kMaxRecordBytes || static_cast<std::uint64_t>(status.st_size) < bytes)
    return Error(ErrorCode::kInvalidArgument,
                 "A job's record cannot have " + std::to_string(bytes) + " bytes");
  std::vector<std::byte> out(bytes);
  for (std::uint64_t at = 0; at < bytes;) {
    const ssize_t got = ::pread(file.get(), out.data() + at, bytes - at, static_cast<off_t>(at));
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return Error::from_errno("Cannot read a job's record");
    at += static_cast<std::uint64_t>(got);
  }
  return out;
}

checkpoint_store::Route route_of(const messages::StartSnapshot& request) {
  checkpoint_store::Route route;
  route.folder = request.folder;
  route.limit_bytes = request.checkpoint_store_limit_bytes;
  route.memory = request.access.memory;
  route.memory_limit_bytes = request.access.memory_limit_bytes;
  route.peer_address = request.access.peer_address;
  route.peer_token = request.access.peer_token;
  return route;
}

}  // namespace

SnapshotTransfer::~SnapshotTransfer() {
  wind_up();
  if (thread_.joinable()) thread_.join();
}

void SnapshotTransfer::wind_up() {
  orders_.end();
}

// ---- the control loop's thread

bool SnapshotTransfer::handle(messages::Packet& packet) {
  UniqueFd file = packet.fds.empty() ? UniqueFd() : std::move(packet.fds.front());
  if (const auto* request = std::get_if<messages::StartSnapshot>(&packet.message)) {
    start(*request, std::move(file));
    return true;
  }
  return orders_.apply(packet.message, std::move(file));
}

void SnapshotTransfer::start(const messages::StartSnapshot& request, UniqueFd record) {
  if (thread_.joinable())
    return fail(Error(ErrorCode::kInvalidArgument, "The session has been started already"));
  request_ = request;
  record_file_ = std::move(record);
  working_.store(true);
  thread_ = std::thread([this] { run(); });
}

// Waits until no scan or copy reads the region, which was already removed from regions_. Afterwards nothing
// reads the region.
void SnapshotTransfer::release(std::uint64_t) {
  const std::lock_guard held(held_);
}

std::optional<FoundRegion> SnapshotTransfer::find(std::uint64_t region) {
  const std::lock_guard lock(mutex_);
  const auto found = regions_.find(region);
  if (found == regions_.end()) return std::nullopt;
  return FoundRegion{found->second.address, found->second.generation, found->second.bytes};
}

// ---- the session's thread

void SnapshotTransfer::run() {
  const Result<void> captured = capture();
  (void)orders_.set_memory(nullptr);
  memory_.reset();
  if (last_) shelf_.put({request_.folder, request_.image_job}, std::move(last_));
  if (!captured) {
    writer_.reset();
    checkpoint_store_.reset();
    files_.reset();
    if (!orders_.is_ending()) fail(captured.error());
  } else {
    collect();
  }
  working_.store(false);
}

Result<void> SnapshotTransfer::capture() {
  CKPT_TRYV(read_record());
  CKPT_TRYV(find_last());
  SnapshotMemoryOptions options;
  options.chunk_bytes = gpu_.chunk_bytes;
  options.staging_bytes = request_.staging_bytes;
  if (options.staging_bytes == 0) {
    const auto meminfo = read_file("/proc/meminfo", kLargestMeminfo);
    options.staging_bytes = shadow_memory(~std::uint64_t{0}, meminfo ? *meminfo : "");
  }
  options.duty = duty_of(request_.slowdown_permille);
  CKPT_TRY(memory, SnapshotMemory::create(gpu_.device, *last_, *this, options));
  memory_ = std::move(memory);
  CKPT_TRYV(orders_.set_memory(memory_.get()));
  CKPT_TRYV(run_ahead());
  CKPT_TRY(final_round, orders_.wait_for_final_round());
  CKPT_TRYV(run_final(final_round));
  return write();
}

Result<void> SnapshotTransfer::read_record() {
  CKPT_TRY(bytes, read_memory_file(record_file_, request_.record_bytes));
  CKPT_TRY(stored, image::decode_stored_job(bytes));
  stored_ = std::move(stored);
  record_file_.reset();
  return ok();
}

// Takes the record of the last snapshot. The record counts only if it belongs to the newest version of the
// checkpoint store.
Result<void> SnapshotTransfer::find_last() {
  last_ = shelf_.extract({request_.folder, request_.image_job});
  if (!last_) {
    CKPT_TRY(fresh, LastSnapshot::create(gpu_.device));
    last_ = std::move(fresh);
  }
  last_->job = stored_.spec.job;
  CKPT_TRYV(last_->prepare_scan(gpu_.device));
  if (request_.full || last_->incarnation != stored_.spec.incarnation) last_->forget();
  last_->incarnation = stored_.spec.incarnation;
  if (last_->version == 0) return ok();
  auto opened = checkpoint_store::open_checkpoint_store(route_of(request_), false);
  auto newest = opened ? opened->checkpoint_store->open_version(request_.image_job)
                       : Result<std::unique_ptr<checkpoint_store::VersionReader>>(opened.error());
  if (newest && (*newest)->version().number == last_->version) return ok();
  spdlog::info(
      "snapshot copies all memory: the checkpoint store's newest version of job {} is not version {}",
      request_.image_job, last_->version);
  last_->forget();
  return ok();
}

Result<image::Plan> SnapshotTransfer::plan() {
  const std::lock_guard lock(mutex_);
  return image::build_plan(tensors_, gpu_.chunk_bytes, 1, 1);
}

// Checks whether few bytes differ. A round ahead reads all memory while the job runs. For so few bytes, this
// would slow the job more than the copy at the barrier.
Result<bool> SnapshotTransfer::is_little_dirty() {
  if (last_->version == 0) return false;
  CKPT_TRY(now, plan());
  const auto dirty = memory_->estimate_dirty(now);
  // This error means that memory was freed in the meantime.
  if (!dirty && dirty.error().code() == ErrorCode::kAborted) return false;
  if (!dirty) return dirty.error();
  if (*dirty > kLittleDirtyBytes) return false;
  memory_->reserve(2 * *dirty);
  return true;
}

Result<void> SnapshotTransfer::run_ahead() {
  std::uint64_t before = ~std::uint64_t{0};
  CKPT_TRY(little, is_little_dirty());
  for (int round = 0; !little && round < kMaxRoundsAhead; ++round) {
    CKPT_TRY(now, plan());
    const auto ran = memory_->run_ahead(now);
    CKPT_TRYV(orders_.check());
    if (!ran && ran.error().code() != ErrorCode::kAborted) return ran;
    const std::uint64_t staged = memory_->staged_bytes();
    if (staged <= kLittleBytes || staged > before / 2) break;
    before = staged;
  }
  fault_point(FaultPoint::kSnapshotMoverReady);
  messages::SnapshotReady ready;
  ready.session = key_;
  ready.state_bytes = memory_->state_bytes();
  ready.dirty_bytes = memory_->dirty_bytes();
  ready.staged_bytes = memory_->staged_bytes();
  agent_.send(ready);
  return ok();
}

Result<void> SnapshotTransfer::run_final(const messages::FinalRound& order) {
  barrier_ms_ = wall_clock_ms();
  if (const Nanos entered = order.barrier_entered_ns; entered > 0)
    barrier_ms_ -= (now_ns() - entered) / kNanosPerMs;
  CKPT_TRY(final_plan, plan());
  final_plan_ = std::move(final_plan);
  CKPT_TRYV(memory_->run_final(final_plan_));
  dirty_bytes_ = memory_->dirty_bytes();
  waited_bytes_ = memory_->waiting_bytes();
  fault_point(FaultPoint::kSnapshotMoverStaged);
  if (!memory_->waits()) report_staged();
  return ok();
}

// Reports the staged snapshot. The job continues, and nothing reads its memory from this point on. Unmapping
// takes as long as the scan, so it runs while the job runs.
void SnapshotTransfer::report_staged() {
  messages::SnapshotStaged staged;
  staged.session = key_;
  staged.state_bytes = memory_->state_bytes();
  staged.dirty_bytes = dirty_bytes_;
  staged.waited_bytes = waited_bytes_;
  staged.scan_ns = memory_->scan_ns();
  staged.copy_ns = memory_->copy_ns();
  agent_.send(staged);
  release_all();
}

// Releases all memory of the job. A region that the job frees in the meantime is reported as dropped after
// its release (release()).
void SnapshotTransfer::release_all() {
  {
    const std::lock_guard held(held_);
    std::vector<std::shared_ptr<const void>> mine;
    {
      const std::lock_guard lock(mutex_);
      for (auto& [id, region] : regions_) mine.push_back(std::move(region.mapping));
    }
    mine.clear();
    const std::lock_guard lock(mutex_);
    regions_.clear();
  }
  messages::DroppedRegions notice;
  notice.session = key_;
  agent_.send(notice);
}

Result<void> SnapshotTransfer::write() {
  CKPT_TRY(opened, open_checkpoint_store());
  files_ = std::move(opened.files);
  checkpoint_store_ = std::move(opened.checkpoint_store);
  CKPT_TRYV(begin_version());
  CKPT_TRYV(put(memory_->staged()));
  while (memory_->waits()) {
    CKPT_TRY(more, memory_->stage_waiting());
    if (!memory_->waits()) report_staged();
    CKPT_TRYV(put(more));
  }
  CKPT_TRYV(keep_unchanged());
  CKPT_TRY(host_state, orders_.wait_for_host_state());
  CKPT_TRYV(put_host_state(std::move(host_state)));
  fault_point(FaultPoint::kSnapshotMoverWritten);
  CKPT_TRY(version, commit());
  fault_point(FaultPoint::kSnapshotMoverCommitted);
  remember(*version);
  if (auto retained = checkpoint_store_->retain_newest(request_.image_job, std::max(request_.keep, 1u));
      !retained)
    spdlog::warn("older versions not removed: job {} reason {}", request_.image_job,
                 retained.error().to_string());
  messages::SnapshotDone done;
  done.session = key_;
  done.version = version->number;
  done.parent = version->parent;
  done.written_bytes = version->written_bytes;
  done.host_bytes = host_bytes_;
  agent_.send(done);
  spdlog::info(
      "snapshot: job {} version {} parent {} dirty_bytes {} written_bytes {} waited_bytes {} scan_ms {:.1f} "
      "copy_ms {:.1f}",
      request_.image_job, version->number, version->parent, dirty_bytes_, version->written_bytes,
      waited_bytes_, static_cast<double>(memory_->scan_ns()) / 1e6,
      static_cast<double>(memory_->copy_ns()) / 1e6);
  return ok();
}

// Opens the checkpoint store, which allows one writer. The mover of another GPU, or a node that shares the
// folder, may be writing, so the call retries for up to kLongestLock.
Result<checkpoint_store::OpenCheckpointStore> SnapshotTransfer::open_checkpoint_store() {
  const auto until = std::chrono::steady_clock::now() + kLongestLock;
  while (true) {
    // The job's own node stores its images on the disk.
    auto opened = checkpoint_store::open_checkpoint_store(route_of(request_), true, request_.image_job);
    if (opened || opened.error().code() != ErrorCode::kRefused || std::chrono::steady_clock::now() >= until)
      return opened;
    CKPT_TRYV(orders_.pause(kLockPause));
  }
}

Result<void> SnapshotTransfer::begin_version() {
  stored_.plan = final_plan_;
  checkpoint_store::VersionInput input;
  input.first_number = request_.first_version;
  if (last_->version == 0) input.parent = 0;
  input.chunk_bytes = gpu_.chunk_bytes;
  input.incarnation = stored_.spec.incarnation;
  input.job_record = wire::encode(stored_);
  CKPT_TRY(writer, checkpoint_store_->begin_version(request_.image_job, std::move(input)));
  writer_ = std::move(writer);
  if (writer_->parent() != last_->version)
    return Error(ErrorCode::kAborted,
                 "The checkpoint store's newest version was removed during the snapshot");
  std::uint64_t next_id = last_->next_id;
  for (const SnapshotMemory::Extent* extent : memory_->extents()) {
    const std::uint64_t id = extent->known != nullptr ? extent->known->id : next_id++;
    const checkpoint_store::Region region(0, id, extent->place.generation, extent->place.bytes, extent->name);
    CKPT_TRY(index, writer_->add_region(region));
    regions_in_version_[extent] = index;
    ids_[extent] = id;
  }
  last_->next_id = next_id;
  return ok();
}

Result<void> SnapshotTransfer::put(const std::vector<SnapshotMemory::Chunk>& chunks) {
  std::atomic<std::size_t> next{0};
  std::mutex failure_mutex;
  std::optional<Error> failure;
  const auto stop = [&](const Error& error) {
    const std::lock_guard lock(failure_mutex);
    if (!failure) failure = error;
    next.store(chunks.size());
  };
  const auto work = [&] {
    // The write has a low priority, because the job and its host threads have precedence.
    (void)::setpriority(PRIO_PROCESS, static_cast<id_t>(::gettid()), kWriterNice);
    for (std::size_t i = next++; i < chunks.size(); i = next++) {
      const SnapshotMemory::Chunk& chunk = chunks[i];
      auto written = memory_->check(chunk);
      if (written)
        written =
            writer_->put_chunk(regions_in_version_.at(chunk.extent), chunk.index, memory_->bytes(chunk));
      if (!written) return stop(written.error());
      if (const auto going_on = orders_.check(); !going_on) return stop(going_on.error());
    }
  };
  const unsigned writers = std::clamp(usable_cores() / 2, 1u, kMaxWriters);
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < writers && i < chunks.size(); ++i) threads.emplace_back(work);
  for (std::thread& thread : threads) thread.join();
  if (failure) return *failure;
  return ok();
}

Result<void> SnapshotTransfer::keep_unchanged() {
  for (const auto& [extent, index] : regions_in_version_) {
    CKPT_TRYV(writer_->reuse_rest(index));
    const auto missing = writer_->missing(index);
    if (missing.empty()) continue;
    return Error(ErrorCode::kCorrupt, "Version " + std::to_string(last_->version) + " is damaged in " +
                                          std::to_string(missing.size()) + " chunks of tensor \"" +
                                          extent->name + "\" that have not changed since then");
  }
  return ok();
}

Result<void> SnapshotTransfer::put_host_state(SnapshotOrders::SavedHostState state) {
  host_bytes_ = state.bytes;
  if (host_bytes_ == 0) return ok();
  CKPT_TRY(view, HostStateView::open(std::move(state.file), host_bytes_, last_->params));
  return writer_->put_blob(image::kHostBlob, view.bytes());
}

Result<std::shared_ptr<const checkpoint_store::Version>> SnapshotTransfer::commit() {
  checkpoint_store::VersionLabels labels;
  labels.labels.emplace_back("barrier_ms", std::to_string(barrier_ms_));
  labels.labels.emplace_back("node", stored_.node);
  return writer_->commit(labels);
}

void SnapshotTransfer::remember(const checkpoint_store::Version& version) {
  std::map<MemoryPlace, KnownExtent> extents;
  for (const SnapshotMemory::Extent* extent : memory_->extents())
    extents[extent->place] = KnownExtent{ids_.at(extent), extent->scanned};
  last_->extents = std::move(extents);
  last_->version = version.number;
}

void SnapshotTransfer::collect() {
  writer_.reset();
  auto collected = checkpoint_store_->collect(request_.image_job);
  if (!collected)
    spdlog::warn("space of removed versions not freed: job {} reason {}", request_.image_job,
                 collected.error().to_string());
  checkpoint_store_.reset();
  files_.reset();
}

}  // namespace ckpt::mover
