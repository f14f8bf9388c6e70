// SPDX-License-Identifier: Apache-2.0
#include "agent/host_process/criu_image/image_size.h"

#include <filesystem>

namespace ckpt::agent::host {
namespace {

// The sizes of entries in the images of CRIU 3.17 to 4.2.
constexpr std::uint64_t kMappingBytes = 48;     // size of an entry in mm-PID.img
constexpr std::uint64_t kDescriptorBytes = 12;  // size of an entry in fdinfo-N.img

}  // namespace

TreeSize size_of_image(const std::string& folder) {
  TreeSize size;
  std::error_code failed;
  std::filesystem::directory_iterator file(folder, failed);
  for (; !failed && file != std::filesystem::directory_iterator(); file.increment(failed)) {
    const std::string name = file->path().filename().string();
    std::error_code unknown;
    const std::uintmax_t bytes = file->file_size(unknown);
    if (unknown) continue;
    if (name.starts_with("core-")) ++size.threads;
    if (name.starts_with("mm-")) {
      ++size.processes;
      size.mappings += bytes / kMappingBytes;
    }
    if (name.starts_with("fdinfo-")) size.descriptors += bytes / kDescriptorBytes;
  }
  return size;
}

}  // namespace ckpt::agent::host
