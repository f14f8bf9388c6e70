// SPDX-License-Identifier: Apache-2.0
#include "coordinator/cluster/backups.h"

#include <fcntl.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <vector>

#include "coordinator/requests/api_answers.h"
#include "libckpt/api/site.h"
#include "libckpt/base/clock.h"
#include "libckpt/net/control/offload.h"
#include "libckpt/record/document.h"

namespace ckpt::coordinator {
namespace {

struct StoreCopy {
  UniqueFd fd;
  std::uint64_t jobs = 0;
  std::uint64_t migrations = 0;
};

Result<std::uint64_t> rows_of(Database& db, const char* table) {
  CKPT_TRY(statement, db.prepare(std::string("SELECT count(*) FROM ") + table));
  CKPT_TRY(any, statement.next());
  return any ? static_cast<std::uint64_t>(statement.integer(0)) : 0;
}

Result<UniqueFd> open_part(const std::string& path) {
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return Error::from_errno("Opening " + path);
  return fd;
}

// Returns the path of a part of the backup. The paths of the authority's parts are empty if the authority, or
// its key, is not on this machine.
std::string place_of(std::string_view part, const std::string& folder, const std::string& authority) {
  if (!part.starts_with("ca.")) return folder + "/" + std::string(part);
  const std::string path = authority + "/" + std::string(part);
  return !authority.empty() && ::access(path.c_str(), F_OK) == 0 ? path : "/dev/null";
}

Result<std::uint64_t> size_of(int fd) {
  struct stat status {};
  if (::fstat(fd, &status) != 0) return Error::from_errno("Cannot read the status of a part of a backup");
  return static_cast<std::uint64_t>(status.st_size);
}

// Copies the store into a temporary file, whose name is removed before this function returns.
Result<StoreCopy> copy_store(const std::string& folder, const std::string& backups) {
  if (::mkdir(backups.c_str(), 0700) != 0 && errno != EEXIST) return Error::from_errno("Making " + backups);
  const std::string path = backups + "/state.db.copy";
  ::unlink(path.c_str());
  {
    CKPT_TRY(db, Database::open_read_only(folder + "/" + std::string(backup::kStore)));
    CKPT_TRY(statement, db.prepare("VACUUM INTO ?1"));
    CKPT_TRYV(statement.bind(1, path).run());
  }
  StoreCopy copy;
  {
    CKPT_TRY(db, Database::open_read_only(path));
    CKPT_TRY(jobs, rows_of(db, "jobs"));
    CKPT_TRY(migrations, rows_of(db, "migrations"));
    copy.jobs = jobs;
    copy.migrations = migrations;
  }
  CKPT_TRY(fd, open_part(path));
  copy.fd = std::move(fd);
  ::unlink(path.c_str());
  return copy;
}

Result<std::uint64_t> write_file(const std::string& path, const std::string& folder,
                                 const std::string& authority, UniqueFd store,
                                 migration::Journal::Copy journal, backup::Contents& contents) {
  std::vector<UniqueFd> parts;
  CKPT_TRY(store_bytes, size_of(store.get()));
  contents.sizes = {store_bytes, journal.bytes};
  parts.push_back(std::move(store));
  parts.push_back(std::move(journal.fd));
  for (std::size_t i = parts.size(); i < backup::kParts.size(); ++i) {
    CKPT_TRY(part, open_part(place_of(backup::kParts[i], folder, authority)));
    CKPT_TRY(bytes, size_of(part.get()));
    contents.sizes.push_back(bytes);
    parts.push_back(std::move(part));
  }
  CKPT_TRYV(backup::write_backup(path, contents, parts));
  CKPT_TRY(file, open_part(path));
  return size_of(file.get());
}

}  // namespace

bool Backups::handles(const HttpRequest& request) const {
  return request.path[1] == "backup" && request.path.size() == 2;
}

control::Task<Result<HttpResponse>> Backups::handle(HttpRequest request) {
  if (!is_get(request)) co_return no_such_call(request);
  if (busy_) co_return Error(ErrorCode::kRefused, "Another backup is in progress: try again when it is done");
  busy_ = true;
  const std::string path = folder_ + "/" + std::string(kFolder) + "/last.backup";
  auto made = co_await make(path);
  busy_ = false;
  if (!made.has_value()) co_return std::move(made).error();
  const backup::Contents& contents = made->contents;
  spdlog::info("a backup was written: {} bytes, {} jobs", made->bytes, contents.jobs);
  const api::Backup view{.file = path,
                         .bytes = made->bytes,
                         .cluster = contents.cluster,
                         .made_ms = contents.made_ms,
                         .jobs = contents.jobs,
                         .migrations = contents.migrations};
  co_return to_response(200, record::to_answer(view));
}

control::Task<Result<Backups::Made>> Backups::make(std::string path) {
  if (!disk_) disk_.emplace(1);
  const std::string folder = folder_;
  const std::string backups = folder + "/" + std::string(kFolder);
  Made made;
  made.contents.software = GPUMIGRATE_VERSION;
  made.contents.made_ms = wall_clock_ms();
  CKPT_CO_TRY(cluster, store_.cluster_id());
  made.contents.cluster = cluster;
  const auto copy = [&folder, &backups] { return copy_store(folder, backups); };
  CKPT_CO_TRY(store, co_await control::offload(*disk_, copy));
  made.contents.jobs = store.jobs;
  made.contents.migrations = store.migrations;
  // The journal is copied after the store. So the journal contains each migration that the store's copy lists
  // as open or closed.
  CKPT_CO_TRY(journal, co_await migrations_.copy_journal());
  const auto write = [&] {
    return write_file(path, folder, authority_, std::move(store.fd), std::move(journal), made.contents);
  };
  CKPT_CO_TRY(bytes, co_await control::offload(*disk_, write));
  made.bytes = bytes;
  co_return std::move(made);
}

}  // namespace ckpt::coordinator
