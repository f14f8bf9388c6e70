// SPDX-License-Identifier: Apache-2.0
#include "agent/pauses/pause_memory.h"

#include <spdlog/spdlog.h>

#include <filesystem>
#include <fstream>
#include <span>

#include "libckpt/base/fd.h"

namespace ckpt::agent {
namespace {

constexpr std::size_t kMaxCostBytes = std::size_t{1} << 20;

void write_costs(const std::string& path, const std::vector<std::byte>& bytes) {
  const std::string fresh = path + ".new";
  {
    std::ofstream file(fresh, std::ios::binary | std::ios::trunc);
    file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    if (!file.flush()) return spdlog::warn("measurements of pauses not saved: file {}", fresh);
  }
  std::error_code error;
  std::filesystem::rename(fresh, path, error);
  if (error) spdlog::warn("measurements of pauses not saved: file {} reason {}", path, error.message());
}

}  // namespace

PauseMemory::PauseMemory(asio::thread_pool& pool, const std::string& home)
    : pool_(pool), path_(home + "/pause_costs") {
  const auto text = read_file(path_, kMaxCostBytes);
  if (!text) return;  // the file is missing before the first move
  auto costs = PauseCosts::decode(std::as_bytes(std::span(*text)));
  if (costs) {
    costs_ = *std::move(costs);
  } else {
    spdlog::warn("measurements of pauses not read: file {} reason {}", path_, costs.error().to_string());
  }
}

void PauseMemory::learn(const PauseWork& work, const wire::PauseNumbers& took, bool at_target) {
  learn_pause(costs_, work, took, at_target);
  write();
}

void PauseMemory::learn_copy(std::uint64_t state_bytes, Nanos took) {
  costs_.learn_copy(state_bytes, took);
}

void PauseMemory::record(const Result<RehearsalFacts>& facts, const std::string& of) {
  if (facts) record_rehearsal(costs_, *facts);
  costs_.learn_rehearsal(of, facts ? "" : facts.error().to_string());
  write();
}

void PauseMemory::record_context(Nanos save, Nanos restore) {
  for (const PauseKind kind : {PauseKind::kSwap, PauseKind::kProcess}) {
    costs_.assume(kind, PauseTerm::kContextSave, {save, 0});
    costs_.assume(kind, PauseTerm::kContextRestore, {restore, 0});
  }
}

void PauseMemory::write() {
  asio::post(pool_, [path = path_, bytes = costs_.encode()] { write_costs(path, bytes); });
}

}  // namespace ckpt::agent
