// SPDX-License-Identifier: Apache-2.0
// The image of a process as it travels between two agents. It consists of CRIU's files and additional facts
// for the target (image_notes.h). The image is first a folder in memory, and is then packed into one memory
// file (host_process/image_pack.h).
// Threads: the event loop. Ownership: the caller owns the folder. Errors: kCorrupt for invalid data from
// another node. kIo.
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

// Returns the prefix of the names of all folders in memory that belong to the agent of `home`. Other agents
// of this machine have jobs and migrations with the same numbers.
[[nodiscard]] std::string folder_prefix(const std::string& home);

// Returns the name of an image folder. `side` is "source" or "target". Other agents of this machine have
// migrations with the same numbers, but not the same home.
[[nodiscard]] std::string image_folder_name(const MigrationContext& context, const JobOperation& operation,
                                            const char* side);
// Removes the source's images of a job that continues here. None of these images is needed, whatever the
// reason for the dump was.
void remove_images_of_source(const MigrationContext& context, wire::JobId job);
// Removes images that a killed agent has left in memory.
void remove_image_folder(const MigrationContext& context, const JobOperation& operation, const char* side);

// The prefix of the names of a rehearsal's image folders, after folder_prefix().
inline constexpr const char* kRehearsalImages = "rehearsal-";

// Removes images that a killed agent of this home has left in memory. These are images of a rehearsal, and of
// a target, whose instance no longer exists. Images of a source are removed for jobs that are not in `live`.
// Call this function at start, before any migration continues.
void remove_unused_images(const Config& config, const std::set<wire::JobId>& live);

// The named resources of the job's processes on this node: memory in /dev/shm, and sockets with a path.
struct NamedResources {
  host::NamedMemory memory;
  host::NamedSockets sockets;
};
// Returns the rules that distinguish the job's names on this node from other names.
[[nodiscard]] host::NameRules name_rules(const MigrationContext& context, const Job& job);

// Returns the mounts that the job has alone.
[[nodiscard]] host::OwnNamespaces own_namespaces(const wire::JobSpec& spec);
[[nodiscard]] host::OwnNamespaces own_namespaces(const Job& job);

// Finds the resources of the job's processes while the processes exist. After their exit the result is empty.
Task<NamedResources> find_named(MigrationContext& context, std::shared_ptr<Job> job);
// Finds the resources, and also those that the job has by name alone. Call this function where the job
// leaves.
Task<NamedResources> find_all_named(MigrationContext& context, std::shared_ptr<Job> job);
// Saves resources and cache files into the image's folder, after a dump.
Task<Result<void>> save_named(MigrationContext& context, std::shared_ptr<Job> job, pid_t root,
                              std::string images);
// Removes the resources after the exit of processes that do not continue here.
Task<> remove_named(MigrationContext& context, NamedResources named);

// The resources that a target has created for a restored process.
// Threads: the event loop. Any thread may call make().
class MadeResources {
 public:
  // Creates the resources of an image, before the restore from its folder.
  Result<void> make(const MigrationContext& context, wire::JobId job, const std::string& images);
  // Keeps the resources, because the process uses them.
  void retain();
  // Removes the resources of a process that was not restored, or has exited. Cache files are removed only in
  // the first case.
  Task<> remove(MigrationContext& context);

 private:
  std::vector<std::string> made_folders_;
  host::NamedMemory memory_;
  host::MadeCacheFiles cached_;
};

// Takes the lock for a dump that creates links. Error kTimedOut means that another dump has held the lock for
// too long.
Task<Result<host::DumpLinks>> acquire_dump_links(MigrationContext& context, const host::NamedMemory& memory);
// Removes the links that CRIU created for a dump that is not used.
Task<> remove_dump_links(MigrationContext& context, std::shared_ptr<Job> job);

// Prepares the program's connections for a dump, and sets how the dump treats them. `repair` records the options
// of connections within the program (connections.h). `has_connections` states whether the check found such
// connections, and `ends` whether those to other programs end. kRefused: the program has connected to itself
// since the check.
Task<Result<void>> prepare_connections(MigrationContext& context, pid_t root, bool has_connections, bool ends,
                                       host::ConnectionRepair& repair, host::DumpOptions& options);
// Ends the connections to other programs in the dumped image. The program's own ones must be `saved`. The
// connections to other programs leave repair mode here, so that their peers are answered while the program may
// still go back.
Task<Result<void>> end_connections(MigrationContext& context, pid_t root,
                                   const host::ConnectionRepair& repair, std::string images, bool saved);
// Resets the connections to other programs of a dumped job that continues elsewhere.
Task<> reset_connections(MigrationContext& context, std::shared_ptr<Job> job);
// Lets the ended connections of a restored process report a reset, before the process runs.
Task<> report_reset_connections(MigrationContext& context, pid_t root, std::vector<std::string>& remarks);
// Turns off repair mode after a dump of a program that continues here.
Task<Result<void>> end_repair(MigrationContext& context, pid_t root, const host::ConnectionRepair& repair);
// Checks that the target meets the requirements of a program. kRefused means that the target allows fewer
// mappings, or is an older agent. Such an agent would close the program's connections to itself, and would
// restore no namespaces.
Result<void> check_needs(const wire::MoveNeeds& needs, const EndpointPayload& target);

// Frees the image's memory in a thread other than the event loop, because this takes milliseconds.
Task<> release_image(MigrationContext& context, HostState image);

// Finds CRIU. kRefused contains the reason why this node has no working CRIU.
Task<Result<host::Criu>> find_criu(MigrationContext& context);

}  // namespace ckpt::agent
