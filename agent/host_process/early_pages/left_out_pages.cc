// SPDX-License-Identifier: Apache-2.0
#include "agent/host_process/early_pages/left_out_pages.h"

#include <spdlog/spdlog.h>

#include <filesystem>

#include "agent/host_process/trusted_program.h"

namespace ckpt::agent::host {

std::string left_out_pages_library() {
  std::error_code unknown;
  const auto self = std::filesystem::read_symlink("/proc/self/exe", unknown);
  if (unknown) return "";
  const std::string path = (self.parent_path() / "../lib/libckpt_criu_pages.so").lexically_normal().string();
  auto trusted = check_trusted_program(path);
  if (trusted) return path;
  spdlog::warn("CRIU also dumps pages that were copied ahead: reason {}", trusted.error().to_string());
  return "";
}

}  // namespace ckpt::agent::host
