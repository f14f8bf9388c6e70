// SPDX-License-Identifier: Apache-2.0
// The image of a process as it travels between two agents. It is CRIU's files and the facts that the target
// needs beside them (image_notes.h). It is a folder in memory, then packed into one memory file
// (host_process/image_pack.h).
// Threads: the event loop. Ownership: the folder is the caller's. Errors: kCorrupt for what another node
// sent; kIo.
#pragma once

#include <set>
#include <string>

#include "agent/host_process/cache_files/cache_files.h"
#include "agent/host_process/criu.h"
#include "agent/host_process/memory_folder.h"
#include "agent/host_process/named_memory/dump_links.h"
#include "agent/host_process/named_memory/named_memory.h"
#include "agent/host_process/sockets/connections.h"
#include "agent/host_process/sockets/named_sockets.h"
#include "agent/jobs/image_notes.h"
#include "agent/migration/modes/migration_context.h"
#include "agent/migration/modes/mode.h"

namespace ckpt::agent {

// The beginning of the names of all folders in memory that belong to the agent of that home. Other agents of
// this machine have jobs and migrations of the same numbers.
[[nodiscard]] std::string folder_prefix(const std::string& home);

// `side`: "source" or "target". Other agents of this machine have migrations of the same numbers, but not the
// same home.
[[nodiscard]] std::string image_folder_name(const MigrationContext& context, const JobOperation& operation,
                                            const char* side);
// Removes the source's images of a job that goes on here: none is needed, whatever it was dumped for.
void remove_images_of_source(const MigrationContext& context, wire::JobId job);
// Images that an agent that was killed has left in memory.
void remove_image_folder(const MigrationContext& context, const JobOperation& operation, const char* side);

// How the names of a rehearsal's image folders begin, after folder_prefix().
inline constexpr const char* kRehearsalImages = "rehearsal-";

// Removes images that a killed agent of this home has left in memory: those of a target, whose instance is
// dead, those of a rehearsal, and those of a source for jobs not in `live`. Called at start, before any
// migration goes on.
void remove_unused_images(const Config& config, const std::set<wire::JobId>& live);

// The named resources of the job's processes on this node: memory in /dev/shm, and sockets with a path.
struct NamedResources {
  host::NamedMemory memory;
  host::NamedSockets sockets;
};
// The rules that tell the job's names on this node from those of others.
[[nodiscard]] host::NameRules name_rules(const MigrationContext& context, const Job& job);

// Finds the resources of the job's processes while these live; nothing afterwards.
Task<NamedResources> find_named(MigrationContext& context, std::shared_ptr<Job> job);
// Finds also the resources that the job has by name alone. Called where the job leaves.
Task<NamedResources> find_all_named(MigrationContext& context, std::shared_ptr<Job> job);
// Saves resources and files of caches into the image's folder, after a dump.
Task<Result<void>> save_named(MigrationContext& context, std::shared_ptr<Job> job, pid_t root,
                              std::string images);
// Removes the resources after the end of processes that do not go on here.
Task<> remove_named(MigrationContext& context, NamedResources named);

// The resources that a target has made for a restored process. Threads: the event loop; make() any.
class MadeResources {
 public:
  // Makes the resources of an image, before the restore from its folder.
  Result<void> make(const MigrationContext& context, wire::JobId job, const std::string& images);
  // Keeps the resources: the process has them.
  void keep();
  // Removes the resources of a process that was not restored, or has ended. Files of caches are removed only
  // in the first case.
  Task<> remove(MigrationContext& context);

 private:
  std::vector<std::string> made_folders_;
  host::NamedMemory memory_;
  host::MadeCacheFiles cached_;
};

// Takes the lock for a dump that makes links. Errors: kTimedOut: another dump has held it for too long.
Task<Result<host::DumpLinks>> take_dump_links(MigrationContext& context, const host::NamedMemory& memory);
// Removes CRIU's links of a dump that is not used.
Task<> remove_dump_links(MigrationContext& context, std::shared_ptr<Job> job);

// Notes the options of connections within the program before a dump (connections.h).
Task<Result<void>> prepare_connections(MigrationContext& context, pid_t root, host::ConnectionRepair& repair);
// Ends repair mode after a dump of a program that goes on here.
Task<Result<void>> end_repair(MigrationContext& context, pid_t root, const host::ConnectionRepair& repair);
// Checks that the target meets the needs of a program. kRefused: it allows fewer mappings, or is an older
// agent that would close the program's connections to itself.
Result<void> check_needs(const wire::MoveNeeds& needs, const EndpointPayload& target);

// Frees the image's memory beside the loop: that takes milliseconds.
Task<> release_image(MigrationContext& context, HostState image);

// Finds CRIU. kRefused, with the reason: this node has none that works.
Task<Result<host::Criu>> find_criu(MigrationContext& context);

}  // namespace ckpt::agent
