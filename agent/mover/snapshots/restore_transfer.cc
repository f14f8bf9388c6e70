// SPDX-License-Identifier: Apache-2.0
#include "agent/mover/snapshots/restore_transfer.h"

#include <algorithm>

#include "libckpt/base/fault.h"
#include "libckpt/base/fd.h"
#include "libckpt/net/control/log.h"
#include "libckpt/store/peer/route.h"

namespace ckpt::mover {
namespace {

constexpr std::size_t kMaxSkippedTold = 16;
constexpr std::size_t kMaxReason = 500;

Error was_ended() {
  return {ErrorCode::kAborted, "The restore was canceled"};
}

}  // namespace

RestoreTransfer::~RestoreTransfer() {
  wind_up();
  if (thread_.joinable()) thread_.join();
}

void RestoreTransfer::wind_up() {
  ending_.store(true);
  reclaims_->end();
}

bool RestoreTransfer::handle(messages::Packet& packet) {
  if (const auto* gone = std::get_if<messages::RegionsLetGo>(&packet.message)) {
    reclaims_->release_elsewhere(gone->regions);
    return true;
  }
  const auto* request = std::get_if<messages::StartRestore>(&packet.message);
  if (request == nullptr) return false;
  start(*request);
  return true;
}

void RestoreTransfer::start(const messages::StartRestore& request) {
  if (thread_.joinable())
    return fail(Error(ErrorCode::kInvalidArgument, "The session has been started already"));
  request_ = request;
  working_.store(true);
  thread_ = std::thread([this] { run(); });
}

// Aborts the restore, because a standby frees no memory while it waits.
void RestoreTransfer::release(std::uint64_t) {
  ending_.store(true);
}

void RestoreTransfer::run() {
  const Result<void> restored = restore();
  places_.clear();
  if (!restored && !ending_.load()) fail(restored.error());
  working_.store(false);
}

Result<void> RestoreTransfer::restore() {
  params_ = track::FingerprintParams::expand(secrets_.key, track::FingerprintPurpose::kChunks);
  checkpoint_store::Route route;
  route.folder = request_.folder;
  route.memory = request_.access.memory;
  route.peer_address = request_.access.peer_address;
  route.peer_token = request_.access.peer_token;
  CKPT_TRY(opened, checkpoint_store::open_checkpoint_store(route, false));
  std::optional<std::uint64_t> version;
  if (request_.version != 0) version = request_.version;
  CKPT_TRY(report, opened.checkpoint_store->restore(request_.image_job, version, *this, {}));
  fault_point(FaultPoint::kRestoreMoverFilled);
  report_done(report);
  return ok();
}

void RestoreTransfer::report_done(const checkpoint_store::RestoreReport& report) {
  messages::RestoreDone done;
  done.session = key_;
  done.version = report.version->number;
  done.state_bytes = report.version->state_bytes();
  done.host_state_bytes = host_bytes_;
  for (const checkpoint_store::SkippedVersion& skipped : report.skipped) {
    spdlog::warn("damaged version skipped: job {} version {} reason {}", request_.image_job, skipped.number,
                 skipped.reason.to_string());
    if (done.skipped.size() < kMaxSkippedTold)
      done.skipped.push_back("version " + std::to_string(skipped.number) + ": " +
                             skipped.reason.to_string().substr(0, kMaxReason));
  }
  spdlog::info("restored: job {} version {} state_bytes {} host_state_bytes {}", request_.image_job,
               done.version, done.state_bytes, host_bytes_);
  const int file = host_file_.get();
  agent_.send(done, host_bytes_ > 0 ? std::span(&file, 1) : std::span<const int>());
}

// ---- reading the version into memory

Result<void> RestoreTransfer::begin(const checkpoint_store::Version& version) {
  if (ending_.load()) return was_ended();
  CKPT_TRY(stored, image::decode_stored_job(version.job_record));
  if (version.regions.size() != stored.plan.extents.size())
    return Error(ErrorCode::kCorrupt, "The version's memory does not match its plan");
  for (std::size_t i = 0; i < version.regions.size(); ++i)
    if (version.regions[i].list.bytes != stored.plan.extents[i].bytes)
      return Error(ErrorCode::kCorrupt,
                   "Region " + std::to_string(i) + " of the version does not match its plan");
  if (makes_memory_) {
    CKPT_TRYV(make_memory(stored.plan));
  }
  return find_places(version, stored);
}

// Creates the plan's memory. Regions that were created for an earlier, damaged version are used again where
// they fit.
Result<void> RestoreTransfer::make_memory(const image::Plan& plan) {
  drop_made(plan);
  image::Plan missing = plan;
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(missing.extents, [this](const image::Extent& e) { return regions_.contains(e.region); });
    tensors_ = plan.tensors;
  }
  CKPT_TRY(made, make_regions(gpu_, missing, reclaims_));
  for (std::size_t at = 0; at < made.size(); at += messages::kMaxRegions) {
    messages::MadeRegions notice;
    notice.session = key_;
    std::vector<int> descriptors;
    for (std::size_t i = at; i < std::min(made.size(), at + messages::kMaxRegions); ++i) {
      notice.regions.push_back(made[i].info);
      descriptors.push_back(made[i].descriptor.get());
    }
    agent_.send(notice, descriptors);
  }
  reclaims_->made(made.size());
  const std::lock_guard lock(mutex_);
  for (MadeRegion& region : made) regions_.emplace(region.info.id, std::move(region.region));
  return ok();
}

void RestoreTransfer::drop_made(const image::Plan& plan) {
  messages::DroppedRegions notice;
  notice.session = key_;
  std::vector<std::shared_ptr<const void>> gone;
  places_.clear();
  {
    const std::lock_guard lock(mutex_);
    std::erase_if(regions_, [&](const auto& entry) {
      const bool fits = std::any_of(plan.extents.begin(), plan.extents.end(), [&](const image::Extent& e) {
        return e.region == entry.first && e.generation == entry.second.generation && e.offset == 0 &&
               e.bytes <= entry.second.bytes;
      });
      if (fits || notice.regions.size() >= messages::kMaxRegions) return false;
      notice.regions.push_back(entry.first);
      gone.push_back(entry.second.mapping);
      return true;
    });
  }
  if (notice.regions.empty()) return;
  gone.clear();
  for (std::size_t i = 0; i < notice.regions.size(); ++i) reclaims_->dropped();
  agent_.send(notice);
}

Result<void> RestoreTransfer::find_places(const checkpoint_store::Version& version,
                                          const image::StoredJob& stored) {
  const std::lock_guard lock(mutex_);
  CKPT_TRY(match, image::match_plan(stored.plan, tensors_, true));
  const std::vector<image::Place>& found = match.places;
  chunk_bytes_ = version.chunk_bytes;
  places_.assign(found.size(), Place());
  for (std::size_t i = 0; i < found.size(); ++i) {
    // The regions are in the plan's order, which is also the version's order.
    const auto region = regions_.find(found[i].region);
    if (region == regions_.end() || found[i].offset > region->second.bytes ||
        found[i].bytes > region->second.bytes - found[i].offset)
      return Error(ErrorCode::kInvalidArgument,
                   "A tensor of the standby lies outside the memory that the standby exported");
    Place& place = places_[i];
    place.address = region->second.address + found[i].offset;
    place.bytes = found[i].bytes;
    place.mapping = region->second.mapping;
    place.written.resize((place.bytes + chunk_bytes_ - 1) / chunk_bytes_);
  }
  return ok();
}

Result<void> RestoreTransfer::chunk(std::uint32_t region, std::uint64_t chunk,
                                    std::span<const std::byte> bytes) {
  if (ending_.load()) return was_ended();
  Place& place = places_[region];
  place.written[chunk] = track::fingerprint(*params_, bytes);
  const ContextScope scope(gpu_.device);
  CKPT_CUDA_TRY(gpu_.device.api(),
                cuMemcpyHtoD_v2(place.address + chunk * chunk_bytes_, bytes.data(), bytes.size()));
  return ok();
}

Result<void> RestoreTransfer::zero_chunk(std::uint32_t region, std::uint64_t chunk, std::uint64_t bytes) {
  if (ending_.load()) return was_ended();
  Place& place = places_[region];
  place.written[chunk] = track::fingerprint_of_zeroes(*params_, bytes);
  const ContextScope scope(gpu_.device);
  CKPT_CUDA_TRY(gpu_.device.api(), cuMemsetD8_v2(place.address + chunk * chunk_bytes_, 0, bytes));
  return ok();
}

Result<void> RestoreTransfer::finish(checkpoint_store::VersionReader& reader) {
  CKPT_TRYV(read_host_state(reader));
  return compare();
}

// Compares the memory itself, as the device reads it.
Result<void> RestoreTransfer::compare() {
  {
    const ContextScope scope(gpu_.device);
    CKPT_CUDA_TRY(gpu_.device.api(), cuCtxSynchronize());
  }
  CKPT_TRY(kernels, track::TrackKernels::create(gpu_.device, params_));
  CKPT_TRY(scan, WideScan::create(kernels));
  std::vector<track::ChunkRange> ranges;
  for (const Place& place : places_) track::append_chunks(place.address, place.bytes, chunk_bytes_, ranges);
  std::vector<track::Fingerprint> found(ranges.size());
  CKPT_TRYV(scan->scan(ranges, found));
  auto now = found.begin();
  for (std::size_t i = 0; i < places_.size(); ++i) {
    for (std::size_t chunk = 0; chunk < places_[i].written.size(); ++chunk, ++now) {
      if (*now == places_[i].written[chunk]) continue;
      // The code is not kCorrupt, because an older version would fail as well.
      return Error(ErrorCode::kIo,
                   "The GPU's memory does not contain the data that was written to it: region " +
                       std::to_string(i) + ", chunk " + std::to_string(chunk) +
                       "; the image is intact, so restore it on another GPU");
    }
  }
  return ok();
}

Result<void> RestoreTransfer::read_host_state(checkpoint_store::VersionReader& reader) {
  host_file_.reset();
  host_bytes_ = 0;
  const checkpoint_store::Blob* blob = reader.find_blob(image::kHostBlob);
  if (blob == nullptr) return ok();
  const std::uint64_t bytes = blob->list.bytes;
  CKPT_TRY(file, make_memory_file("host-state", bytes));
  CKPT_TRYV(reader.read_blob(image::kHostBlob, [&](std::span<const std::byte> piece) -> Result<void> {
    if (ending_.load()) return was_ended();
    return write_all(file.get(), piece);
  }));
  host_file_ = std::move(file);
  host_bytes_ = bytes;
  return ok();
}

}  // namespace ckpt::mover
