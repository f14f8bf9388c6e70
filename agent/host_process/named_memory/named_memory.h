// SPDX-License-Identifier: Apache-2.0
// Named files in /dev/shm through which the processes of a job share memory. Python's spawn and forkserver
// use POSIX semaphores and shared memory. The files travel with the image, and the target creates them again
// under their names. A semaphore's file is mapped by a removed name, because sem_open links a temporary file.
// Therefore CRIU saves the file through a link, which the target creates as well. Files that the job has by
// name alone also travel. Subfolders do not travel.
// Threads: any. All functions block for milliseconds (use offload()). Errors: kRefused for more than
// kMaxNamedFiles, or for a name that is taken at the target. kCorrupt for a malformed image. kIo.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "agent/host_process/processes/name_owner.h"
#include "libckpt/base/result.h"

namespace ckpt::agent::host {

inline constexpr std::size_t kMaxNamedFiles = 4096;
inline constexpr std::size_t kMaxNamesOfFile = 16;

struct NamedFile {
  static constexpr std::uint8_t kVersion = 2, kCompat = 1;
  static constexpr std::string_view kName = "NamedFile";
  std::vector<std::string> names;  // names in /dev/shm, including the names of CRIU's links
  std::uint64_t inode = 0;
  std::uint64_t bytes = 0;
  std::uint32_t mode = 0;  // the file's permission bits only
  std::uint32_t uid = 0;
  std::uint32_t gid = 0;
  bool lost_name = false;  // true if a process has the file by a removed name
  bool by_name = false;    // true if no process has the file, and the job may open it again by its name
                           // (names_alone.h)
  template <class A>
  decltype(auto) fields(A& a) {
    return a(names, inode, bytes, mode, uid, gid, lost_name, by_name);
  }
};

struct NamedMemory {
  static constexpr std::uint8_t kVersion = 1, kCompat = 1;
  static constexpr std::string_view kName = "NamedMemory";
  std::string place;  // text that identifies this machine's /dev/shm
  std::vector<NamedFile> files;
  template <class A>
  decltype(auto) fields(A& a) {
    return a(place, files);
  }
  [[nodiscard]] std::uint64_t bytes() const;
  // Checks whether a process has a file by a removed name. CRIU must create a link for such a file
  // (dump_links.h).
  [[nodiscard]] bool needs_links() const;
  [[nodiscard]] const NamedFile* find(std::uint64_t inode) const;
};

// Returns the files that the tree has open or mapped.
Result<NamedMemory> named_memory_of(pid_t root);
// Returns the files that the tree has open or mapped, and also the files that the job has by name alone.
Result<NamedMemory> named_memory_of(const NameOwner& owner);
// Returns a text for each name that may belong to the job and does not travel.
std::vector<std::string> names_in_doubt(const NameOwner& owner);

// Returns a text for each file that cannot travel because a process outside the tree has it open or mapped.
std::vector<std::string> shared_outside(const NamedMemory& memory, pid_t root);
// Returns the reasons why the files cannot be created at this target. The result is empty if they can be
// created, or if the target's files are the same files.
std::vector<std::string> why_not_made(const NamedMemory& memory);

// Writes contents and names into the dump's folder, and removes CRIU's links. Call this function at the
// source, after the dump.
Result<NamedMemory> save_named_memory(const NameOwner& owner, const std::string& images);

// Creates the files, and changes CRIU's description of them to links in the folder `images`, which must be in
// /dev/shm. Call this function at the target, before the restore from the folder. The function returns the
// created files, which are marked as files of `job` (NameRules). A failure leaves no files behind. If the
// target is the source's own machine, a copy replaces each file that the job has by name alone. The source
// then has no file of its own to remove.
Result<NamedMemory> restore_named_memory(const std::string& images, const std::string& job);

// Removes CRIU's links to the files of `memory`, by the names that the links had.
void remove_links(const NamedMemory& memory);
// Removes the links to the files of `memory`, whatever their current names are.
void remove_links_of(const NamedMemory& memory);
// Checks whether the files of `memory` are in this machine's /dev/shm.
[[nodiscard]] bool is_this_place(const NamedMemory& memory);
// Removes the names of files that no process has open or mapped.
void remove_unused(const NamedMemory& memory);
// Removes the files that restore_named_memory() has created for a folder whose agent was killed.
void remove_made_for(const std::string& images);

}  // namespace ckpt::agent::host
