// SPDX-License-Identifier: Apache-2.0
// A backup: the files of a coordinator's folder in one file, with a checksum after each mebibyte.
//
//   "GPMBACK1" | header bytes u32 | crc32 of the header u32 | header: Contents (wire/codec.h)
//   then each part, in the header's order, in blocks of kBlockBytes (the last one shorter): bytes | crc32 u32
//
// The journal is copied after the store, so it may be newer than the store but is never older. A coordinator
// accepts journal records of migrations that its table does not know. With a journal older than the store, a
// migration that is open in the store would lack the record of its decision.
//
// Threads: any, one at a time for an object. Errors: kCorrupt for a file that is not a complete backup;
// kNotSupported for a file of a newer version; kIo. The file is untrusted: all sizes are compared with the
// file's size before they are used.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "libckpt/base/fd.h"
#include "libckpt/base/result.h"

namespace ckpt::backup {

inline constexpr std::string_view kMagic = "GPMBACK1";
inline constexpr std::size_t kPrefixBytes = 16;  // the size of magic, header size and header checksum
inline constexpr std::size_t kMaxHeaderBytes = 64 * 1024;
inline constexpr std::size_t kBlockBytes = std::size_t{1} << 20;
inline constexpr std::uint64_t kMaxPartBytes = std::uint64_t{1} << 40;

inline constexpr std::string_view kStore = "state.db";
inline constexpr std::string_view kJournal = "journal";
// The parts of a backup, each once and in this order: files of the coordinator's folder. The last two are
// files of the certificate authority, wherever its folder is.
inline constexpr std::array<std::string_view, 10> kParts = {
    kStore,          kJournal,         "token",        "agent-token", "peer-token",
    "metrics-token", "operator-token", "viewer-token", "ca.pem",      "ca.key"};
// The number of parts that every backup has. The other parts are empty if the file did not exist, and missing
// in old backups.
inline constexpr std::size_t kRequiredParts = 6;

struct Contents {
  static constexpr std::uint8_t kVersion = 1;
  static constexpr std::uint8_t kCompat = 1;
  std::string cluster;   // the id of the cluster
  std::string software;  // the version of the coordinator
  std::int64_t made_ms = 0;
  std::uint64_t jobs = 0;
  std::uint64_t migrations = 0;
  std::vector<std::uint64_t> sizes;  // the sizes of the parts, in the order of kParts
  [[nodiscard]] bool has(std::size_t part) const { return part < kRequiredParts || sizes[part] > 0; }

  template <class Archive>
  decltype(auto) fields(Archive& archive) {
    return archive(cluster, software, made_ms, jobs, migrations, sizes);
  }
};

// A backup's header. The file of `file_bytes` begins with `bytes`: the whole header, unless the file is
// truncated.
struct Beginning {
  Contents contents;
  std::uint64_t header_end = 0;
};
Result<Beginning> parse_beginning(std::span<const std::byte> bytes, std::uint64_t file_bytes);

// Writes the file (mode 0600, synced) and then renames it to its final name, which may already exist. `parts`
// are descriptors of kParts, which are read from their beginning up to contents.sizes.
Result<void> write_backup(const std::string& path, Contents contents, std::span<const UniqueFd> parts);

class BackupFile {
 public:
  static Result<BackupFile> open(const std::string& path);

  [[nodiscard]] const Contents& contents() const noexcept { return beginning_.contents; }
  // Reads the whole file and checks it.
  Result<void> verify() const;
  // Writes the contents of part `part` of kParts to the descriptor `to`.
  Result<void> extract(std::size_t part, int to) const;
  // Copies the file unchanged (mode 0600, synced) to a different name.
  Result<void> copy_to(const std::string& path) const;

 private:
  BackupFile(UniqueFd fd, Beginning beginning) : fd_(std::move(fd)), beginning_(std::move(beginning)) {}
  template <class Take>
  Result<void> read_part(std::size_t part, Take sink) const;
  UniqueFd fd_;
  Beginning beginning_;
};

}  // namespace ckpt::backup
