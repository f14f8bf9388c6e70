// SPDX-License-Identifier: Apache-2.0
// Whether a file of the source's list is at the target what it is at the source. One and the same file is
// (file_identity.h), whatever others write to it meanwhile. A file that each node has for itself must have the same
// content: a build id for programs, else a digest. Memory that is mapped from a file for writing must be the same file.
// Threads: any; reads files (offload()). Errors: none; a difference is a text for the user.
#pragma once

#include <string>
#include <vector>

#include "agent/host_process/files/content_digest.h"
#include "agent/host_process/files/file_fact.h"

namespace ckpt::agent::host {

enum class Compared : std::uint8_t {
  kNow,     // the program runs at the source
  kStored,  // it was saved at some time: one and the same file may have changed since
};

class FileComparison {
 public:
  // `one_kernel`: source and target are one machine. `seed`: the list's.
  FileComparison(Compared when, bool one_kernel, std::uint64_t seed)
      : when_(when), one_kernel_(one_kernel), reader_(seed) {}

  // Empty: it is here what it is there. `is_same`: it is one and the same file.
  [[nodiscard]] std::string difference(const FileFact& fact, bool& is_same);
  // The folder is one and the same: a file that it lacks is gone at the source, too.
  [[nodiscard]] bool is_same(const FolderFact& folder);

 private:
  [[nodiscard]] std::string difference_of_file(const FileFact& fact, const struct stat& facts, bool& is_same);
  [[nodiscard]] std::string difference_of_content(const FileFact& fact, const struct stat& facts);
  [[nodiscard]] bool is_same_file(const FileFact& fact, const struct stat& facts);

  Compared when_;
  bool one_kernel_;
  ContentReader reader_;
  FileSystems systems_;
};

// At the source: identity and content of the files of `facts`, and their folders. With `written` also the content of
// those that are open for writing. What has gone meanwhile is left out.
void describe_content(std::vector<FileFact>& facts, ContentReader& reader, bool written);
[[nodiscard]] std::vector<FolderFact> folders_of(const std::vector<FileFact>& facts);

}  // namespace ckpt::agent::host
