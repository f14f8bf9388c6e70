// SPDX-License-Identifier: Apache-2.0
#include "agent/mover/session/session.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "libckpt/inprocess/memory/device_memory.h"
#include "libckpt/net/control/log.h"
#include "libckpt/protocol/wire/ids.h"
#include "libckpt/protocol/wire/mover_session_messages.h"
#include "libckpt/protocol/wire/mover_values.h"

namespace ckpt::mover {

Result<SessionSecrets> secrets_of(const messages::OpenSession& open) {
  SessionSecrets secrets;
  if (open.fingerprint_key.size() != secrets.key.size() || open.session_token.size() != secrets.token.size())
    return Error(ErrorCode::kInvalidArgument, "A session's key or token has a wrong length");
  std::memcpy(secrets.key.data(), open.fingerprint_key.data(), secrets.key.size());
  std::memcpy(secrets.token.data(), open.session_token.data(), secrets.token.size());
  return secrets;
}

void Session::attach_regions(const messages::AttachRegions& request, std::vector<UniqueFd> descriptors) {
  if (auto imported = import_all(request, descriptors); !imported) return fail(imported.error());
  descriptors.clear();
  attached();
  messages::Attached reply;
  reply.session = key_;
  reply.batch = request.batch;
  agent_.send(reply);
}

Result<void> Session::import_all(const messages::AttachRegions& request, std::vector<UniqueFd>& descriptors) {
  const ContextScope scope(gpu_.device);
  for (std::size_t i = 0; i < request.regions.size(); ++i) {
    const messages::RegionInfo& info = request.regions[i];
    if (info.id == 0 || info.bytes == 0)
      return Error(ErrorCode::kInvalidArgument, "A region has no id or no size");
    CKPT_TRY(memory, ImportedMemory::import(gpu_.device.api(), gpu_.device.device(), descriptors[i].get(),
                                            info.bytes));
    AttachedRegion region;
    region.generation = info.generation;
    region.bytes = info.bytes;
    region.address = memory.pointer();
    region.mapping = std::shared_ptr<const ImportedMemory>(
        new ImportedMemory(std::move(memory)), [&device = gpu_.device](const ImportedMemory* held) {
          const ContextScope unmapping(device);
          delete held;
        });
    const std::lock_guard lock(mutex_);
    if (!regions_.emplace(info.id, std::move(region)).second)
      return Error(ErrorCode::kInvalidArgument, "Region " + std::to_string(info.id) + " is attached already");
  }
  return ok();
}

void Session::drop_regions(const messages::DropRegions& request) {
  for (const std::uint64_t id : request.regions) {
    std::shared_ptr<const void> mapping;
    {
      const std::lock_guard lock(mutex_);
      const auto it = regions_.find(id);
      if (it == regions_.end()) continue;
      mapping = std::move(it->second.mapping);
      regions_.erase(it);
      std::erase_if(tensors_, [id](const wire::TensorInfo& tensor) { return tensor.region == id; });
    }
    release(id);
  }
  messages::Dropped reply;
  reply.session = key_;
  reply.regions = request.regions;
  agent_.send(reply);
}

void Session::attach_tensors(const messages::AttachTensors& request) {
  const std::lock_guard lock(mutex_);
  tensors_.insert(tensors_.end(), request.tensors.begin(), request.tensors.end());
}

void Session::drop_tensors(const messages::DropTensors& request) {
  const std::lock_guard lock(mutex_);
  std::erase_if(tensors_, [&](const wire::TensorInfo& tensor) {
    return std::find(request.names.begin(), request.names.end(), tensor.name) != request.names.end();
  });
}

Result<void> Session::use_network() {
  CKPT_TRY(lanes, gpu_.lanes_over(network_, first_path_, paths_));
  transport_ = std::move(lanes);
  return ok();
}

void Session::fail(const Error& error) {
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(failed_, true)) return;
  }
  spdlog::warn("session failed: id {} rank {} reason {}", wire::migration_text(key_.migration), key_.rank,
               error.to_string());
  messages::SessionFailed failed;
  failed.session = key_;
  failed.failure = messages::Failure(error);
  agent_.send(failed);
  if (error.code() != ErrorCode::kDevice) return;
  // The context is lost for every session of this process, so a new mover is needed.
  messages::MoverFailed lost;
  lost.failure = messages::Failure(error);
  agent_.send(lost);
  spdlog::error("exiting: the GPU's context is lost");
  std::_Exit(3);
}

}  // namespace ckpt::mover
