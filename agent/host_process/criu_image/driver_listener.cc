// SPDX-License-Identifier: Apache-2.0
#include "agent/host_process/criu_image/driver_listener.h"

#include <sys/random.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>

#include "agent/host_process/criu_image/criu_records.h"
#include "agent/host_process/criu_image/files_image.h"
#include "criu_images.pb.h"
#include "libckpt/base/fd.h"

namespace ckpt::agent::host {
namespace {

const std::string kDriverName = std::string(1, '\0') + "cuda-uvmfd-";

// Checks whether a socket of `type` is bound to `name`. Sockets of other types may have the same abstract
// name. The driver's socket is of type SOCK_SEQPACKET (580.159.04).
bool is_bound_as(int type, const std::string& name) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (name.size() + 1 > sizeof address.sun_path) return false;
  name.copy(address.sun_path + 1, name.size());
  const UniqueFd socket(::socket(AF_UNIX, type | SOCK_CLOEXEC, 0));
  const auto bytes = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  return socket && ::bind(socket.get(), reinterpret_cast<sockaddr*>(&address), bytes) != 0 &&
         errno == EADDRINUSE;
}

bool is_bound(const std::string& name) {
  return is_bound_as(SOCK_SEQPACKET, name) || is_bound_as(SOCK_STREAM, name);
}

std::string random_ending() {
  std::uint64_t number = 0;
  (void)!::getrandom(&number, sizeof number, 0);
  char text[20];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(number));
  return text;
}

// Returns the record with a free name in place of a taken one. Most records are of other kinds and stay
// unchanged, byte for byte.
Result<std::string> with_free_name(const std::string& record, const IsTaken& is_taken,
                                   const OtherName& other) {
  if (record.find(kDriverName) == std::string::npos) return record;
  CKPT_TRY(file, parse_record<criu::file_entry>(record, "files.img"));
  const std::string name = file.has_usk() ? file.usk().name() : "";
  if (!name.starts_with(kDriverName) || !is_taken(name.substr(1))) return record;
  file.mutable_usk()->set_name(kDriverName + other());
  return file.SerializeAsString();
}

}  // namespace

Result<std::string> with_free_driver_names(const std::string& files, const IsTaken& is_taken,
                                           const OtherName& other) {
  return with_changed_records(
      files, [&](const std::string& record) { return with_free_name(record, is_taken, other); });
}

Result<void> free_driver_names(const std::string& images) {
  return change_files_image(
      images, [](const std::string& record) { return with_free_name(record, is_bound, random_ending); });
}

}  // namespace ckpt::agent::host
