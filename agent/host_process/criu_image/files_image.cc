// SPDX-License-Identifier: Apache-2.0
#include "agent/host_process/criu_image/files_image.h"

#include "agent/host_process/criu_image/criu_records.h"
#include "libckpt/base/fd.h"

namespace ckpt::agent::host {
namespace {

constexpr std::uint32_t kFilesMagic = 0x56303138;
constexpr std::size_t kMaxFilesBytes = 64u << 20;

}  // namespace

Result<std::string> with_changed_records(const std::string& files, const ChangeRecord& change) {
  if (word_at(files, 0) != kImageMagic || word_at(files, 4) != kFilesMagic)
    return strange_image("files.img has a wrong magic number");
  CKPT_TRY(records, records_of(files, 8));
  std::string changed = files.substr(0, 8);
  for (const std::string& record : records) {
    CKPT_TRY(other, change(record));
    put_record(changed, other);
  }
  return changed;
}

Result<void> change_files_image(const std::string& images, const ChangeRecord& change) {
  const std::string path = images + "/files.img";
  CKPT_TRY(files, read_file(path, kMaxFilesBytes));
  CKPT_TRY(changed, with_changed_records(files, change));
  return changed == files ? ok() : write_file_durably(path, changed);
}

}  // namespace ckpt::agent::host
