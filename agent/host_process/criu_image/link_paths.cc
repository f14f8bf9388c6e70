// SPDX-License-Identifier: Apache-2.0
#include "agent/host_process/criu_image/link_paths.h"

#include <algorithm>

#include "agent/host_process/criu_image/criu_records.h"
#include "agent/host_process/criu_image/files_image.h"
#include "criu_images.pb.h"

namespace ckpt::agent::host {
namespace {

constexpr std::string_view kFolder = "/dev/shm/";

// Returns the record with the new path of its link. Most records are of other kinds and stay unchanged, byte
// for byte.
Result<std::string> with_path(const std::string& record, const std::vector<LinkPath>& links) {
  if (record.find(kFolder) == std::string::npos) return record;
  CKPT_TRY(file, parse_record<criu::file_entry>(record, "files.img"));
  if (!file.has_reg() || !file.reg().name().starts_with(kFolder)) return record;
  const std::string name = file.reg().name().substr(kFolder.size());
  const auto link = std::find_if(links.begin(), links.end(),
                                 [&name](const LinkPath& candidate) { return candidate.link == name; });
  if (link == links.end()) return record;
  file.mutable_reg()->set_name(link->path);
  return file.SerializeAsString();
}

}  // namespace

Result<std::string> with_link_paths(const std::string& files, const std::vector<LinkPath>& links) {
  return with_changed_records(files,
                              [&links](const std::string& record) { return with_path(record, links); });
}

Result<void> set_link_paths(const std::string& images, const std::vector<LinkPath>& links) {
  return change_files_image(images, [&links](const std::string& record) { return with_path(record, links); });
}

}  // namespace ckpt::agent::host
