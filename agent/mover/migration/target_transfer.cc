// SPDX-License-Identifier: Apache-2.0
#include "agent/mover/migration/target_transfer.h"

#include <fmt/format.h>

#include <algorithm>

#include "libckpt/base/fault.h"
#include "libckpt/net/control/log.h"
#include "libckpt/protocol/wire/ids.h"

namespace ckpt::mover {

TargetTransfer::~TargetTransfer() {
  reclaims_->end();
  receiver_.reset();  // destroyed first, because its threads use all other fields
}

bool TargetTransfer::handle(messages::Packet& packet) {
  if (const auto* gone = std::get_if<messages::RegionsLetGo>(&packet.message)) {
    reclaims_->release_elsewhere(gone->regions);
    return true;
  }
  const auto* request = std::get_if<messages::StartTarget>(&packet.message);
  if (request == nullptr) return false;
  if (auto started = start(*request); !started) fail(started.error());
  return true;
}

Result<void> TargetTransfer::start(const messages::StartTarget& request) {
  if (receiver_) return Error(ErrorCode::kInvalidArgument, "The session has been started already");
  engine::ReceiverOptions options;
  options.id = identity_;
  options.key = secrets_.key;
  options.token = secrets_.token;
  options.lanes = std::min<std::uint32_t>(request.lanes, messages::kMaxLanes);
  options.paths = paths_;
  CKPT_TRYV(use_network());
  CKPT_TRY(receiver, engine::Receiver::create(gpu_.device, *gpu_.staging, *transport_, *this, options));
  receiver_ = std::move(receiver);
  messages::Listening reply;
  reply.session = key_;
  reply.addresses = receiver_->addresses();
  agent_.send(reply);
  return ok();
}

// Releases the receiver. A standby frees no memory while it waits. A resumed standby may free memory, and no
// longer needs the receiver.
void TargetTransfer::release(std::uint64_t region) {
  if (receiver_ && !verified_.load())
    receiver_->cancel(Error(ErrorCode::kAborted, "The standby freed region " + std::to_string(region)));
  receiver_.reset();
}

void TargetTransfer::attached() {
  fault_point(FaultPoint::kTargetMoverAttached);
}

Result<engine::PlanPlaces> TargetTransfer::on_plan(std::span<const std::byte> bytes) {
  CKPT_TRY(plan, image::decode_plan(bytes));
  if (makes_memory_) {
    CKPT_TRYV(make_memory(plan));
    attached();
  }
  const std::lock_guard lock(mutex_);
  const bool first = chunk_bytes_ == 0;
  CKPT_TRY(matched, match(plan, first));
  engine::PlanPlaces result;
  result.chunk_bytes = chunk_bytes_ = plan.chunk_bytes;
  for (const image::Place& place : matched.places) {
    const auto it = regions_.find(place.region);
    if (it == regions_.end() || place.offset > it->second.bytes ||
        place.bytes > it->second.bytes - place.offset)
      return Error(ErrorCode::kInvalidArgument,
                   "A tensor of the standby lies outside the memory that the standby exported");
    result.regions.push_back(
        {place.extent, place.generation, it->second.address + place.offset, place.bytes, it->second.mapping});
  }
  CKPT_TRYV(place_dropped(matched.dropped, result));
  state_bytes_ += plan.state_bytes();
  tensor_count_ += plan.tensors.size();
  messages::PlanAccepted accepted;
  accepted.session = key_;
  accepted.state_bytes = state_bytes_;
  accepted.tensors = tensor_count_;
  agent_.send(accepted);
  return result;
}

Result<image::PlanMatch> TargetTransfer::match(const image::Plan& plan, bool is_first) {
  auto matched = image::match_plan(plan, tensors_, is_first, allowed_differences_);
  if (!matched && is_new_program_ && matched.error().code() == ErrorCode::kRefused)
    return Error(
        ErrorCode::kRefused,
        "The new program's tensors differ (use --allow missing,new,changed to accept the differences): " +
            matched.error().message());
  if (!matched) return std::move(matched).error();
  for (const std::string& difference : matched->differences)
    spdlog::info("new program: id {} allowed: {}", wire::migration_text(key_.migration), difference);
  return matched;
}

// Creates memory for dropped extents. They are received and verified like all others, but into separate
// memory, which is released with the session.
Result<void> TargetTransfer::place_dropped(const std::vector<image::Extent>& dropped,
                                           engine::PlanPlaces& places) {
  if (dropped.empty()) return ok();
  image::Plan plan;
  for (const image::Extent& extent : dropped) {
    image::Extent& whole = plan.extents.emplace_back(extent);
    whole.region = extent.id;
    whole.offset = 0;
  }
  CKPT_TRY(made, make_regions(gpu_, plan, reclaims_));
  for (std::size_t i = 0; i < made.size(); ++i) {
    const image::Extent& extent = dropped[i];
    places.regions.push_back(
        {extent.id, extent.generation, made[i].region.address, extent.bytes, made[i].region.mapping});
  }
  return ok();
}

// Creates the memory of the plan. The plan's tensors are then matched in the same way as those of a standby.
Result<void> TargetTransfer::make_memory(const image::Plan& plan) {
  CKPT_TRY(made, make_once_there_is_memory(plan));
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
  for (const image::Extent& extent : plan.extents) made_[extent.id] = extent.region;
  for (MadeRegion& region : made) {
    if (!regions_.emplace(region.info.id, std::move(region.region)).second)
      return Error(ErrorCode::kProtocol,
                   "The source sent region " + std::to_string(region.info.id) + " twice");
  }
  tensors_.insert(tensors_.end(), plan.tensors.begin(), plan.tensors.end());
  return ok();
}

// Creates the memory, and repeats attempts that fail. Other processes may briefly hold memory here that the
// job has freed at the source.
Result<std::vector<MadeRegion>> TargetTransfer::make_once_there_is_memory(const image::Plan& plan) {
  for (;;) {
    auto made = make_regions(gpu_, plan, reclaims_);
    if (made || made.error().code() != ErrorCode::kOutOfMemory || !reclaims_->wait()) return made;
  }
}

void TargetTransfer::on_dropped(std::uint64_t extent) {
  if (!makes_memory_) return;
  messages::DroppedRegions notice;
  notice.session = key_;
  std::shared_ptr<const void> mapping;
  {
    const std::lock_guard lock(mutex_);
    const auto made = made_.find(extent);
    if (made == made_.end()) return;
    const std::uint64_t id = made->second;
    made_.erase(made);
    if (const auto it = regions_.find(id); it != regions_.end()) {
      mapping = std::move(it->second.mapping);
      regions_.erase(it);
    }
    std::erase_if(tensors_, [id](const wire::TensorInfo& tensor) { return tensor.region == id; });
    notice.regions.push_back(id);
  }
  mapping.reset();
  reclaims_->dropped();
  agent_.send(notice);
}

void TargetTransfer::on_first_chunk() {
  fault_point(FaultPoint::kTargetMoverRound);
}

void TargetTransfer::on_final() {
  fault_point(FaultPoint::kTargetMoverFinal);
}

void TargetTransfer::on_host_state(const std::shared_ptr<engine::HostMemoryReservation>& memory,
                                   std::uint64_t bytes) {
  if (!host_fingerprint_) {
    auto follower =
        track::FingerprintFollower::create(chunk_params(), {memory->memory(), memory->limit()}, memory);
    if (!follower) {
      receiver_->cancel(follower.error());
      return;
    }
    host_fingerprint_ = *std::move(follower);
  }
  host_fingerprint_->grew(bytes);
}

std::shared_ptr<const track::FingerprintParams> TargetTransfer::chunk_params() const {
  return track::FingerprintParams::expand(secrets_.key, track::FingerprintPurpose::kChunks);
}

Result<void> TargetTransfer::on_manifest(std::span<const std::byte> bytes, const track::Fingerprint& root,
                                         const engine::ReceivedHostState& host_state) {
  CKPT_TRY(manifest, image::decode_manifest(bytes));
  if (manifest.migration != identity_.migration || manifest.incarnation != identity_.incarnation ||
      manifest.rank != identity_.rank || manifest.chunk_bytes != chunk_bytes_)
    return Error(ErrorCode::kProtocol, "The manifest belongs to another migration");
  image::HostStateSum sum;
  sum.bytes = host_state.bytes;
  sum.fingerprint = host_fingerprint_ ? host_fingerprint_->finish(host_state.bytes)
                                      : track::fingerprint(*chunk_params(), {});
  host_fingerprint_.reset();  // reset here, because the fingerprint's thread holds the memory
  return image::check_manifest(manifest, root, sum);
}

void TargetTransfer::on_verified(const engine::VerifiedReport& report, engine::ReceivedHostState host_state) {
  fault_point(FaultPoint::kTargetMoverVerified);
  verified_.store(true);
  messages::Verified verified;
  verified.session = key_;
  verified.host_state_bytes = host_state.bytes;
  verified.root = fmt::format("{:016x}{:016x}", report.root.hi, report.root.lo);
  verified.final_heard_ns = report.final_heard_ns;
  verified.scan_begin_ns = report.scan_begin_ns;
  verified.scan_end_ns = report.scan_end_ns;
  verified.last_chunk_ns = report.last_chunk_ns;
  verified.manifest_heard_ns = report.manifest_heard_ns;
  verified.verified_ns = report.verified_ns;
  verified.state_bytes = report.state_bytes;
  const Nanos scan_time = report.scan_end_ns - report.scan_begin_ns;
  if (report.scanned_bytes > 0 && scan_time > 0)
    verified.scan_bytes_per_second = static_cast<std::uint64_t>(static_cast<double>(report.scanned_bytes) *
                                                                1e9 / static_cast<double>(scan_time));
  spdlog::info("verified: id {} root {} host_state_bytes {}", wire::migration_text(key_.migration),
               verified.root, host_state.bytes);
  const int file = host_state.file.get();
  agent_.send(verified, host_state.bytes > 0 ? std::span(&file, 1) : std::span<const int>());
}

}  // namespace ckpt::mover
