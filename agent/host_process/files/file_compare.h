// SPDX-License-Identifier: Apache-2.0
// Compares a file of the source's list with the target's file. If both nodes share the file
// (file_identity.h), it fits, whatever others write to it meanwhile. A file that each node has for itself
// must have the same content: a build id for programs, else a digest. Memory that is mapped from a file for
// writing must be the same file.
// Threads: any; reads files (offload()). Errors: none; a difference is a text for the user.
#pragma once

#include <string>
#include <vector>

#include "agent/host_process/files/content_digest.h"
#include "agent/host_process/files/file_fact.h"

namespace ckpt::agent::host {

enum class Compared : std::uint8_t {
  kNow,     // the program runs at the source
  kStored,  // it was saved earlier: a shared file may have changed since
};

class FileComparison {
 public:
  // `one_kernel`: source and target are one machine. `seed`: the list's.
  FileComparison(Compared when, bool one_kernel, std::uint64_t seed)
      : when_(when), one_kernel_(one_kernel), reader_(seed) {}

  // Returns the difference; empty: none. `is_same`: both nodes share the file.
  [[nodiscard]] std::string difference(const FileFact& fact, bool& is_same);
  // True if both nodes share the folder: a file that it lacks is gone at the source, too.
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

// Adds identity and content to the files of `facts`, and their folders. With `written` it reads the content
// of files that are open for writing, too. Files that have gone meanwhile are left out. Called at the source.
void describe_content(std::vector<FileFact>& facts, ContentReader& reader, bool written);
[[nodiscard]] std::vector<FolderFact> folders_of(const std::vector<FileFact>& facts);

}  // namespace ckpt::agent::host
