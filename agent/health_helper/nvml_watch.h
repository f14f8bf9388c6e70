// SPDX-License-Identifier: Apache-2.0
// NVML's events and states of every GPU. Calls may never return, so only a process that may be abandoned
// should use this class.
// Threads: one. Ownership: the library stays loaded. Errors: kNotSupported if the library or an entry point
// is missing, kUnavailable otherwise. The native code is nvmlReturn_t. A GPU without events is only polled.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "agent/gpus/nvml.h"
#include "agent/health_helper/messages.h"

namespace ckpt::health_helper {

namespace messages = agent::nvml_watch;
namespace nvml = agent::nvml;

class NvmlWatch {
 public:
  static Result<std::unique_ptr<NvmlWatch>> create(const std::string& library);
  ~NvmlWatch();
  NvmlWatch(const NvmlWatch&) = delete;
  NvmlWatch& operator=(const NvmlWatch&) = delete;

  [[nodiscard]] const std::vector<messages::Report>& gpus() const noexcept { return gpus_; }
  // Registers the events of all GPUs that are not lost. A new event set replaces the previous one.
  Result<void> register_events();
  [[nodiscard]] bool has_events() const noexcept { return registered_ > 0; }
  [[nodiscard]] messages::Report state(std::uint32_t gpu) const;

  enum class Woken { kEvent, kTimeout, kBroken };
  // Waits for an event, the timeout, or a broken event set, which must be created again. An Xid is stored in
  // `report`. For another event, the kind of `report` is kState, and the states must be read.
  Woken wait(std::uint32_t timeout_ms, messages::Report* report);

 private:
  struct Table;
  NvmlWatch(void* library, std::unique_ptr<Table> table);
  Result<void> find_gpus();
  Error error(const char* call, nvml::Return code) const;
  nvml::Return read_fields(nvml::Device device, messages::Report& report) const;
  nvml::Return read_rows(nvml::Device device, messages::Report& report) const;

  void* library_;
  std::unique_ptr<Table> table_;
  std::vector<nvml::Device> devices_;
  std::vector<messages::Report> gpus_;
  void* set_ = nullptr;
  std::size_t registered_ = 0;
};

}  // namespace ckpt::health_helper
