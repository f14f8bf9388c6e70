// SPDX-License-Identifier: Apache-2.0
#include "agent/host_process/files/file_compare.h"

#include <sys/stat.h>

#include <algorithm>
#include <filesystem>
#include <set>

#include "agent/host_process/files/build_id.h"

namespace ckpt::agent::host {
namespace {

constexpr const char* kShareIt = ": put it on a file system that both nodes mount";

bool has_kind(const struct stat& facts, FileUse use) {
  switch (use) {
    case FileUse::kFolder:
      return S_ISDIR(facts.st_mode);
    case FileUse::kDevice:
      return S_ISCHR(facts.st_mode);
    case FileUse::kOther:
      return S_ISFIFO(facts.st_mode);
    default:
      return S_ISREG(facts.st_mode);
  }
}

std::string size_text(const FileFact& fact, std::uint64_t here) {
  return fact.path + " has " + std::to_string(here) + " bytes at the target and " +
         std::to_string(fact.bytes) + " at the source";
}

// Compares only the length, for two cases. An older source sends only the length, and a program continues to
// write after its image was saved. A file that is open for writing may be longer at the target.
std::string difference_of_length(const FileFact& fact, std::uint64_t here) {
  const bool fits = fact.use == FileUse::kWritten ? here >= fact.bytes : here == fact.bytes;
  return fits ? "" : size_text(fact, here);
}

}  // namespace

bool FileComparison::is_same(const FolderFact& folder) {
  struct stat facts {};
  return ::stat(folder.path.c_str(), &facts) == 0 && S_ISDIR(facts.st_mode) &&
         compare(folder.identity, systems_.identity_of(folder.path, facts), one_kernel_) == Sameness::kSame;
}

std::string FileComparison::difference(const FileFact& fact, bool& is_same) {
  struct stat facts {};
  if (::stat(fact.path.c_str(), &facts) != 0) return fact.path + " does not exist at the target";
  if (!has_kind(facts, fact.use)) return fact.path + " has a different file type at the target";
  if (fact.use == FileUse::kDevice)
    return facts.st_rdev == fact.device ? "" : fact.path + " is a different device at the target";
  if (!has_content(fact.use)) return {};
  if (fact.kernels_own)
    return is_kernels_own(fact.path) ? "" : fact.path + " is not provided by the kernel at the target";
  return difference_of_file(fact, facts, is_same);
}

std::string FileComparison::difference_of_file(const FileFact& fact, const struct stat& facts,
                                               bool& is_same) {
  if (is_same_file(fact, facts)) {
    is_same = true;
    return {};
  }
  const auto here = static_cast<std::uint64_t>(facts.st_size);
  if (fact.use == FileUse::kProgram) {
    if (here != fact.bytes) return size_text(fact, here);
    return build_id_of(fact.path) == fact.build_id ? "" : fact.path + " is a different build at the target";
  }
  const bool writes_since = when_ == Compared::kStored && fact.use == FileUse::kWritten;
  if (fact.identity.inode == 0 || writes_since) return difference_of_length(fact, here);
  if (fact.shares_memory)
    return fact.path + " is a different file at the target, and the program has mapped the file for writing" +
           kShareIt;
  return difference_of_content(fact, facts);
}

// Checks whether both descriptions are of the same file. If the file system has no handles, a file that has
// changed in the meantime must begin with the source's content.
bool FileComparison::is_same_file(const FileFact& fact, const struct stat& facts) {
  const FileIdentity here = systems_.identity_of(fact.path, facts);
  const Sameness found = compare(fact.identity, here, one_kernel_);
  if (when_ == Compared::kStored)
    return found == Sameness::kSame && is_unchanged(fact.identity, here) &&
           static_cast<std::uint64_t>(facts.st_size) == fact.bytes;
  if (found != Sameness::kPerhaps) return found == Sameness::kSame;
  return !fact.digest.empty() && !fact.sampled && reader_.whole(fact.path, fact.bytes) == fact.digest;
}

std::string FileComparison::difference_of_content(const FileFact& fact, const struct stat& facts) {
  const auto here = static_cast<std::uint64_t>(facts.st_size);
  if (here != fact.bytes) return size_text(fact, here);
  const bool is_written = fact.use == FileUse::kWritten;
  if (fact.digest.empty() || (is_written && fact.sampled))
    return fact.path + " is a different file at the target, and its content cannot be compared (" +
           (is_written && fact.bytes > kMaxWholeBytes ? "the file is large and open for writing)"
                                                      : "the file was changed or not read)") +
           kShareIt;
  if (fact.sampled && systems_.identity_of(fact.path, facts).written_ns != fact.identity.written_ns)
    return fact.path +
           " has a different modification time at the target, and is too large to be compared in full: copy "
           "it with its time (cp -p, rsync -a), or put it on a file system that both nodes mount";
  const std::string digest =
      fact.sampled ? reader_.sampled(fact.path, fact.bytes) : reader_.whole(fact.path, fact.bytes);
  if (digest == fact.digest) return {};
  if (digest.empty())
    return fact.path + " cannot be read at the target in time, so its content cannot be compared" + kShareIt;
  return fact.path +
         " has different content at the target: copy the source's file there, or put it on a file system "
         "that both nodes mount";
}

void describe_content(std::vector<FileFact>& facts, ContentReader& reader, bool written) {
  for (FileFact& fact : facts) {
    const bool wanted = fact.use == FileUse::kRead || (fact.use == FileUse::kWritten && written);
    if (!wanted || fact.kernels_own || fact.shares_memory) continue;
    fact.digest = reader.whole(fact.path, fact.bytes);
    if (!fact.digest.empty() || fact.use == FileUse::kWritten) continue;
    fact.sampled = true;
    fact.digest = reader.sampled(fact.path, fact.bytes);
  }
  std::erase_if(facts, [](const FileFact& fact) {
    struct stat now {};
    return has_content(fact.use) && ::lstat(fact.path.c_str(), &now) != 0;
  });
}

std::vector<FolderFact> folders_of(const std::vector<FileFact>& facts) {
  std::set<std::string> paths;
  for (const FileFact& fact : facts) {
    if (has_content(fact.use)) paths.insert(std::filesystem::path(fact.path).parent_path().string());
  }
  FileSystems systems;
  std::vector<FolderFact> folders;
  for (const std::string& path : paths) {
    struct stat now {};
    if (::stat(path.c_str(), &now) != 0) continue;
    FolderFact& folder = folders.emplace_back();
    folder.path = path;
    folder.identity = systems.identity_of(path, now);
  }
  return folders;
}

}  // namespace ckpt::agent::host
