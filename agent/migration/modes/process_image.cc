// SPDX-License-Identifier: Apache-2.0
#include "agent/migration/modes/process_image.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>

#include <algorithm>

#include "agent/host_process/criu_image/ended_connections.h"
#include "agent/host_process/sockets/outer_connections.h"
#include "libckpt/protocol/wire/ids.h"

namespace ckpt::agent {
namespace {

// The time to wait for another dump's links. A dump with its links takes parts of a second, and the pause
// waits in the meantime.
constexpr Nanos kLongestLinks = 5'000 * kNanosPerMs;
constexpr std::chrono::milliseconds kLinksPause{5};
constexpr std::uint64_t kMappingsOfRestore = 512;  // CRIU's own mappings, in addition to those of the process

}  // namespace

std::string folder_prefix(const std::string& home) {
  struct stat facts {};
  ::stat(home.c_str(), &facts);
  return std::to_string(facts.st_dev) + "." + std::to_string(facts.st_ino) + "-";
}

std::string image_folder_name(const MigrationContext& context, const JobOperation& operation,
                              const char* side) {
  return folder_prefix(context.config.home) + wire::job_text(operation.job()) + "." + operation.name() + "-" +
         side;
}

void remove_image_folder(const MigrationContext& context, const JobOperation& operation, const char* side) {
  const auto place = host::find_memory_place();
  if (place) host::remove_memory_folder(*place, image_folder_name(context, operation, side));
}

void remove_images_of_source(const MigrationContext& context, wire::JobId job) {
  const auto place = host::find_memory_place();
  if (!place) return;
  const std::string begin = folder_prefix(context.config.home) + wire::job_text(job) + ".";
  host::remove_memory_folders(*place, begin,
                              [](const std::string& rest) { return rest.ends_with("-source"); });
}

void remove_unused_images(const Config& config, const std::set<wire::JobId>& live) {
  const auto place = host::find_memory_place();
  if (!place) return;
  std::set<std::string> names;
  for (const wire::JobId job : live) names.insert(wire::job_text(job));
  const auto unused = [&names](const std::string& rest) {
    return rest.ends_with("-target") || rest.starts_with(kRehearsalImages) ||
           (rest.ends_with("-source") && rest.starts_with("j") &&
            !names.contains(rest.substr(0, rest.find('.'))));
  };
  host::remove_memory_folders(*place, folder_prefix(config.home), unused, host::remove_made_for);
}

host::NameRules name_rules(const MigrationContext& context, const Job& job) {
  host::NameRules rules;
  rules.job = folder_prefix(context.config.home) + wire::job_text(job.id());
  rules.started_unix_ms = job.record().started_unix_ms;
  const auto all = context.jobs.all();
  rules.is_alone = std::none_of(all.begin(), all.end(), [&job](const std::shared_ptr<Job>& other) {
    return other->id() != job.id() && !other->ended() && other->record().spec.uid == job.record().spec.uid;
  });
  return rules;
}

host::OwnNamespaces own_namespaces(const wire::JobSpec& spec) {
  return {spec.has_own_namespaces(), spec.private_tmp};
}

host::OwnNamespaces own_namespaces(const Job& job) {
  return own_namespaces(job.record().spec);
}

Task<NamedResources> find_named(MigrationContext& context, std::shared_ptr<Job> job) {
  const auto find = [root = static_cast<pid_t>(job->rank_pid()), own = own_namespaces(*job)] {
    NamedResources named;
    if (auto memory = host::named_memory_of(root); memory && !own.present) named.memory = *std::move(memory);
    if (auto sockets = host::named_sockets_of(root, own)) named.sockets = *std::move(sockets);
    return named;
  };
  co_return co_await offload(context.images, find);
}

Task<NamedResources> find_all_named(MigrationContext& context, std::shared_ptr<Job> job) {
  if (own_namespaces(*job).present) co_return co_await find_named(context, job);
  const auto find = [root = static_cast<pid_t>(job->rank_pid()), rules = name_rules(context, *job)] {
    NamedResources named;
    auto memory = host::named_memory_of(host::name_owner(root, rules));
    if (memory) named.memory = *std::move(memory);
    if (auto sockets = host::named_sockets_of(root)) named.sockets = *std::move(sockets);
    return named;
  };
  co_return co_await offload(context.images, find);
}

Task<Result<void>> save_named(MigrationContext& context, std::shared_ptr<Job> job, pid_t root,
                              std::string images) {
  const host::NameRules rules = name_rules(context, *job);
  const host::OwnNamespaces own = own_namespaces(*job);
  std::vector<std::string> folders = context.config.cache_folders;
  std::erase_if(folders, [&own](const std::string& folder) { return own.contains(folder); });
  const auto save = [root, &rules, &images, &folders, &own]() -> Result<void> {
    CKPT_TRYV(host::save_cache_files(root, folders, images));
    if (!own.present) {
      CKPT_TRYV(host::save_named_memory(host::name_owner(root, rules), images));
    }
    return host::save_socket_folders(root, images, own);
  };
  co_return co_await offload(context.images, save);
}

Task<> remove_named(MigrationContext& context, NamedResources named) {
  if (named.memory.files.empty() && named.sockets.paths.empty()) co_return;
  const auto remove = [&named] {
    host::remove_unused(named.memory);
    host::remove_left(named.sockets);
    return true;
  };
  co_await offload(context.images, remove);
}

Result<void> MadeResources::make(const MigrationContext& context, wire::JobId job,
                                 const std::string& images) {
  CKPT_TRY(cached, host::make_cache_files(images, context.config.cache_folders));
  cached_ = std::move(cached);
  CKPT_TRY(folders, host::make_socket_folders(images));
  made_folders_ = std::move(folders);
  CKPT_TRY(memory,
           host::restore_named_memory(images, folder_prefix(context.config.home) + wire::job_text(job)));
  memory_ = std::move(memory);
  return ok();
}

void MadeResources::retain() {
  made_folders_.clear();
  memory_ = {};
  cached_ = {};
}

Task<> MadeResources::remove(MigrationContext& context) {
  const auto folders = std::exchange(made_folders_, {});
  const auto memory = std::exchange(memory_, {});
  const auto cached = std::exchange(cached_, {});
  if (folders.empty() && memory.files.empty() && cached.files.empty()) co_return;
  const auto undo = [&folders, &memory, &cached] {
    host::remove_cache_files(cached);
    host::remove_folders(folders);
    host::remove_unused(memory);
    return true;
  };
  co_await offload(context.images, undo);
}

Task<Result<host::DumpLinks>> acquire_dump_links(MigrationContext& context, const host::NamedMemory& memory) {
  if (!memory.needs_links()) co_return host::DumpLinks();
  const auto take = [&memory] { return host::DumpLinks::try_acquire(memory); };
  asio::steady_timer timer(context.executor);
  const Nanos began = now_ns();
  while (now_ns() - began < kLongestLinks) {
    auto links = co_await offload(context.images, take);
    if (links) co_return std::move(*links);
    timer.expires_after(kLinksPause);
    co_await timer.async_wait(asio::use_awaitable);
  }
  co_return Error(ErrorCode::kTimedOut,
                  "Another dump on this machine still has its links in /dev/shm: try again later");
}

Task<> remove_dump_links(MigrationContext& context, std::shared_ptr<Job> job) {
  const auto remove = [root = static_cast<pid_t>(job->rank_pid()), own = own_namespaces(*job)] {
    host::remove_own_links(root, own);
    if (own.present) return true;  // the names of its memory are others' on this node
    const auto memory = host::named_memory_of(root);
    if (memory) host::remove_links(*memory);
    return true;
  };
  co_await offload(context.images, remove);
}

namespace {

Error connected_to_itself() {
  return {ErrorCode::kRefused, "The program has connected to itself since the check: move the job again"};
}

}  // namespace

Task<Result<void>> prepare_connections(MigrationContext& context, pid_t root, bool has_connections, bool ends,
                                       host::ConnectionRepair& repair, host::DumpOptions& options) {
  using Prepared = std::pair<host::ConnectionRepair, bool>;
  const auto prepare = [root, has_connections, ends]() -> Result<Prepared> {
    CKPT_TRY(before, host::ConnectionRepair::before(root));
    if (!ends) return Prepared(std::move(before), has_connections);
    CKPT_TRY(found, host::connections_of(root));
    // If there are none within the program, CRIU leaves all connections alone.
    if (found.inner.empty()) return Prepared(std::move(before), false);
    if (!has_connections) return connected_to_itself();
    CKPT_TRYV(host::hold_packets(root, found.outer));
    return Prepared(std::move(before), true);
  };
  CKPT_CO_TRY(prepared, co_await offload(context.images, prepare));
  repair = std::move(prepared.first);
  options.connections = prepared.second;
  options.ends_connections = ends;
  co_return ok();
}

Task<Result<void>> end_connections(MigrationContext& context, pid_t root,
                                   const host::ConnectionRepair& repair, std::string images, bool saved) {
  const auto end = [root, &repair, &images, saved]() -> Result<void> {
    CKPT_TRY(found, host::end_outer_connections(images));
    if (found.inner != 0 && !saved) return connected_to_itself();
    if (!saved) return ok();  // CRIU has changed no socket
    CKPT_TRY(connections, host::connections_of(root));
    return repair.end(root, connections.inner);
  };
  co_return co_await offload(context.images, end);
}

Task<> reset_connections(MigrationContext& context, std::shared_ptr<Job> job) {
  const auto reset = [root = static_cast<pid_t>(job->rank_pid())] { return host::reset_outer(root); };
  const auto done = co_await offload(context.images, reset);
  if (!done && done.error().code() != ErrorCode::kNotFound)
    spdlog::warn("connections not reset: job {} reason {}", wire::job_text(job->id()),
                 done.error().to_string());
}

Task<> report_reset_connections(MigrationContext& context, pid_t root, std::vector<std::string>& remarks) {
  const auto report = [root] { return host::report_resets(root); };
  const auto done = co_await offload(context.images, report);
  if (done) co_return;
  spdlog::warn("the program may see its reset connections as closed normally: pid {} reason {}", root,
               done.error().to_string());
  remarks.push_back("the program may see connections that the move reset as closed normally: " +
                    done.error().message());
}

Task<Result<void>> end_repair(MigrationContext& context, pid_t root, const host::ConnectionRepair& repair) {
  const auto end = [root, &repair] { return repair.end(root); };
  co_return co_await offload(context.images, end);
}

Result<void> check_needs(const wire::MoveNeeds& needs, const EndpointPayload& target) {
  const bool has_room =
      target.max_mappings == 0 || (needs.most_mappings < target.max_mappings &&
                                   target.max_mappings - needs.most_mappings >= kMappingsOfRestore);
  if (!has_room)
    return Error(ErrorCode::kRefused,
                 fmt::format("A process of the job has {} memory mappings, but the target allows only {} for "
                             "each process during the restore: raise vm.max_map_count there",
                             needs.most_mappings, target.max_mappings));
  if (needs.resets_connections && !target.resets_connections)
    return Error(ErrorCode::kRefused,
                 "The move resets connections (--connections reset), but under the target's older agent the "
                 "program would see them as closed normally: update that agent");
  if (needs.has_own_namespaces && !target.restores_namespaces)
    return Error(ErrorCode::kRefused,
                 "The job has namespaces of its own, which the target's older agent cannot restore: update "
                 "that agent");
  if (!needs.has_connections || target.restores_connections) return ok();
  return Error(ErrorCode::kRefused,
               "The program has connections to itself, which the target's older agent cannot restore: update "
               "that agent");
}

Task<> release_image(MigrationContext& context, HostState image) {
  const auto close = [&image] {
    image.file.reset();
    return true;
  };
  co_await offload(context.images, close);
}

Task<Result<host::Criu>> find_criu(MigrationContext& context) {
  auto found = co_await host::Criu::find(context.config.criu, context.config.home);
  if (found) co_return found;
  co_return Error(ErrorCode::kRefused, "This node cannot move a process").caused_by(std::move(found).error());
}

}  // namespace ckpt::agent
