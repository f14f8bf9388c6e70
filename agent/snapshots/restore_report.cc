// SPDX-License-Identifier: Apache-2.0
#include "agent/snapshots/restore_report.h"

#include "libckpt/base/fd.h"

namespace ckpt::agent::protect {
namespace {

constexpr const char* kFile = "/restored";
constexpr std::size_t kMaxBytes = 64 << 10;

}  // namespace

Result<void> write_restore_report(const std::string& instance_folder, const wire::RestoreReport& report) {
  const auto bytes = wire::encode(report);
  return write_file_durably(instance_folder + kFile,
                            std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()));
}

Result<wire::RestoreReport> read_restore_report(const std::string& instance_folder) {
  CKPT_TRY(text, read_file(instance_folder + kFile, kMaxBytes));
  return wire::decode<wire::RestoreReport>(std::as_bytes(std::span(text.data(), text.size())));
}

}  // namespace ckpt::agent::protect
