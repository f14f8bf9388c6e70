// SPDX-License-Identifier: Apache-2.0
#include "libckpt/datapath/engine/source/sender_core.h"

#include <algorithm>
#include <numeric>

#include "libckpt/base/check.h"
#include "libckpt/datapath/engine/source/source_codec.h"

namespace ckpt::engine {
namespace {

constexpr std::uint32_t kMaxTimes = 3;  // a chunk that arrives wrong this many times terminates the session

}  // namespace

SenderCore::SenderCore(const Device& device, const SessionIdentity& id, std::uint64_t chunk_bytes,
                       std::uint64_t message_bytes, std::shared_ptr<const track::TrackKernels> kernels,
                       track::SentMap map, FaultHooks* hooks, SenderObserver* observer)
    : device(device),
      id(id),
      chunk_bytes(chunk_bytes),
      message_bytes(message_bytes),
      kernels(std::move(kernels)),
      hooks(hooks),
      zero_chunk(track::fingerprint_of_zeroes(this->kernels->params(), chunk_bytes)),
      observer_(observer),
      map_(std::move(map)) {}

SenderCore::~SenderCore() = default;

bool SourceRegion::enter() noexcept {
  users_.fetch_add(1);
  if (!dropped_.load()) return true;
  leave();
  return false;
}

void SourceRegion::leave() noexcept {
  if (users_.fetch_sub(1) == 1 && dropped_.load()) users_.notify_all();
}

void SourceRegion::finish_drop() {
#if CKPT_WITHOUT_RULE != 7
  for (std::uint32_t users = users_.load(); users != 0; users = users_.load()) users_.wait(users);
  region_.backing.reset();
#endif
}

Result<SourceRegion*> SenderCore::add_region(TransferRegion region) {
  if (region.id == 0 || region.generation == 0 || region.bytes == 0 || region.address % 16 != 0)
    return Error(ErrorCode::kInvalidArgument,
                 "Region " + std::to_string(region.id) + " is empty, unaligned or without a generation");
  const std::lock_guard lock(region_mutex_);
  {
    const std::lock_guard map_lock(map_mutex_);
    CKPT_TRYV(map_.add_region(region.id, region.generation, region.bytes));
  }
  ChunkHistory history = codec ? codec->history(region.bytes) : ChunkHistory();
  regions_.push_back(std::make_unique<SourceRegion>(std::move(region), chunk_bytes, std::move(history)));
  return regions_.back().get();
}

SourceRegion* SenderCore::find_region(std::uint64_t id) const {
  const std::lock_guard lock(region_mutex_);
  for (const auto& region : regions_)
    if (region->get().id == id && !region->dropped()) return region.get();
  return nullptr;
}

void SenderCore::erase_region(const SourceRegion& region) {
  const std::lock_guard lock(map_mutex_);
  map_.drop_region(region.get().id, region.get().generation);
}

std::vector<SourceRegion*> SenderCore::live_regions() const {
  const std::lock_guard lock(region_mutex_);
  std::vector<SourceRegion*> live;
  for (const auto& region : regions_)
    if (!region->dropped()) live.push_back(region.get());
  return live;
}

std::uint64_t SenderCore::state_bytes() const {
  std::uint64_t bytes = 0;
  for (const SourceRegion* region : live_regions()) bytes += region->get().bytes;
  return bytes;
}

Result<void> SenderCore::diff(const SourceRegion& region, std::span<const track::Fingerprint> scanned,
                              std::uint32_t first, std::vector<std::uint32_t>& dirty) const {
  const std::lock_guard lock(map_mutex_);
  auto result = map_.diff(region.get().id, region.get().generation, scanned, first, dirty);
  // kNotFound means that the region was dropped meanwhile, which is not an error.
  if (!result && result.error().code() == ErrorCode::kNotFound) return ok();
  return result;
}

Result<track::Fingerprint> SenderCore::root() const {
  const std::lock_guard lock(map_mutex_);
  return map_.root();
}

void SenderCore::refresh_root() const {
  const std::lock_guard lock(map_mutex_);
  map_.refresh_root();
}

void SenderCore::forget(std::span<const DirtyChunk> chunks) {
  const std::lock_guard lock(map_mutex_);
  for (const DirtyChunk& c : chunks)  // kNotFound means that the region was dropped meanwhile
    (void)map_.forget(c.region->get().id, c.region->get().generation, c.chunk);
}

void SenderCore::acknowledge(const DirtyChunk& chunk, const track::Fingerprint& from_target) {
  const TransferRegion& region = chunk.region->get();
#if CKPT_WITHOUT_RULE == 1
  (void)from_target;
  (void)map_.acknowledge(region.id, region.generation, chunk.chunk, chunk.scanned);
#else
  (void)map_.acknowledge(region.id, region.generation, chunk.chunk, from_target);
#endif
}

void SenderCore::mismatch(const ChunkId& chunk) {
  std::uint32_t times = 0;
  {
    const std::lock_guard lock(event_mutex_);
    times = ++mismatches_[chunk];
  }
  if (observer_ != nullptr) observer_->on_mismatch({chunk, times});
  if (times >= kMaxTimes)
    fail(Error(ErrorCode::kCorrupt, "Chunk " + std::to_string(chunk.chunk) + " of extent " +
                                        std::to_string(chunk.region) + " arrived wrong " +
                                        std::to_string(times) +
                                        " times: the link, a copy engine or memory corrupts data"));
  else
    counters.resent_chunks.fetch_add(1);
}

void SenderCore::finish(std::uint64_t chunks) {
  if (chunks == 0) return;
  const std::uint64_t before = outstanding_.fetch_sub(chunks);
  CKPT_CHECK(before >= chunks, "ENG-2: no more chunks arrive than are in flight");
  if (before == chunks) notify();
}

void SenderCore::notify() {
  { const std::lock_guard lock(event_mutex_); }
  event_.notify_all();
}

void SenderCore::lane_opened(transport::PayloadAccess payload_access) {
  {
    const std::lock_guard lock(event_mutex_);
    ++events_.open_lanes;
    ++events_.by_nearness.at(static_cast<std::size_t>(payload_access));
  }
  event_.notify_all();
}

void SenderCore::answer(LaneMessage kind, const VerdictRecord& record, std::string text) {
  {
    const std::lock_guard lock(event_mutex_);
    auto& answer = kind == LaneMessage::kPlanAnswer ? events_.plan_answer : events_.verdict;
    answer.emplace(record, std::move(text));
  }
  event_.notify_all();
}

void SenderCore::scan_done() {
  {
    const std::lock_guard lock(event_mutex_);
    events_.scan_done = true;
  }
  event_.notify_all();
}

Result<void> SenderCore::stale(const AckRecord& record) {
  const SourceRegion* region = find_region(record.region);
  if (region == nullptr || region->get().generation != record.generation) return ok();
  if (record.chunk >= region->chunks())
    return Error(ErrorCode::kProtocol, "The target named a chunk that does not exist");
  const std::lock_guard lock(event_mutex_);
  stale_.insert({record.region, record.generation, record.chunk});
  return ok();
}

std::set<ChunkId> SenderCore::take_stale() {
  const std::lock_guard lock(event_mutex_);
  return std::exchange(stale_, {});
}

std::size_t SenderCore::same_host_lanes(transport::PayloadAccess least) const {
  const std::lock_guard lock(event_mutex_);
  return std::accumulate(events_.by_nearness.begin() + static_cast<std::ptrdiff_t>(least),
                         events_.by_nearness.end(), std::size_t{0});
}

void SenderCore::blob_sent() {
  {
    const std::lock_guard lock(event_mutex_);
    events_.blob_sent = true;
  }
  event_.notify_all();
}

void SenderCore::host_state_sent() {
  {
    const std::lock_guard lock(event_mutex_);
    events_.host_state_sent = true;
  }
  event_.notify_all();
}

void SenderCore::clock_measured(const ClockOffset& offset) {
  {
    const std::lock_guard lock(event_mutex_);
    events_.clock = offset;
  }
  event_.notify_all();
}

void SenderCore::calibrated() {
  {
    const std::lock_guard lock(event_mutex_);
    ++events_.calibrated;
  }
  event_.notify_all();
}

void SenderCore::fail(const Error& error) {
  {
    const std::lock_guard lock(event_mutex_);
    if (error_) return;
    error_ = error;
    failed_.store(true);
  }
  event_.notify_all();
  if (observer_ != nullptr) observer_->on_failed(error);
}

std::optional<Error> SenderCore::error() const {
  const std::lock_guard lock(event_mutex_);
  return error_;
}

}  // namespace ckpt::engine
