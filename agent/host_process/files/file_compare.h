// SPDX-License-Identifier: Apache-2.0
// Compares a file of the source's list with the target's file. A file that both nodes share (file_identity.h)
// is accepted, even if other programs write to it in the meantime. Files that are separate on each node must
// have the same content. The comparison uses the build id for programs, and a digest for other files. Memory
// that is mapped from a file for writing must be the same file.
// Threads: any. The functions read files (use offload()). Errors: none. A difference is a text for the user.
#pragma once

#include <string>
#include <vector>

#include "agent/host_process/files/content_digest.h"
#include "agent/host_process/files/file_fact.h"

namespace ckpt::agent::host {

enum class Compared : std::uint8_t {
  kNow,     // the program still runs at the source
  kStored,  // the program was saved earlier, so a shared file may have changed since
};

class FileComparison {
 public:
  // Takes the settings of the comparison. `one_kernel` means that source and target are the same machine
  // since the same boot. `seed` is the seed of the source's list.
  FileComparison(Compared when, bool one_kernel, std::uint64_t seed)
      : when_(when), one_kernel_(one_kernel), reader_(seed) {}

  // Returns the difference as a text for the user, or an empty string if there is none. `is_same` is set to
  // true if both nodes share the file.
  [[nodiscard]] std::string difference(const FileFact& fact, bool& is_same);
  // Checks whether both nodes share the folder. A file that is missing in a shared folder is missing at the
  // source, too.
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

// Adds identity and content to the files of `facts`, and adds their folders. With `written` the function also
// reads the content of files that are open for writing. Files that were removed in the meantime are left out.
// Call this function at the source.
void describe_content(std::vector<FileFact>& facts, ContentReader& reader, bool written);
[[nodiscard]] std::vector<FolderFact> folders_of(const std::vector<FileFact>& facts);

}  // namespace ckpt::agent::host
