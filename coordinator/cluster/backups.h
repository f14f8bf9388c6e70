// SPDX-License-Identifier: Apache-2.0
// GET /v1/backup: one consistent copy of the coordinator's folder as a file (libckpt/store/backup). The file
// stays in the coordinator's folder, under kFolder, and the answer names the file. The requesting command
// runs on this machine, as it needs api.json and the token from here. A store may also be larger than an
// answer. At most one such file exists; the next backup replaces it. All file work runs on a separate thread.
// The store is copied first, by a separate reader that blocks no writer. The journal is copied second.
// Threads: one io_context on one thread. Ownership: borrows the tables, which outlive it. Errors: kRefused
// while another backup is being made, or when the disk is full.
#pragma once

#include <optional>
#include <string>

#include "coordinator/migration/migration_runner.h"
#include "coordinator/requests/api_section.h"
#include "libckpt/store/backup/backup_file.h"

namespace ckpt::coordinator {

class Backups : public ApiSection {
 public:
  static constexpr std::string_view kFolder = "backups";  // the subfolder of the coordinator's folder

  // Takes the certificate authority's folder in `authority`; empty: the authority is not on this machine.
  Backups(Store& store, MigrationRunner& migrations, std::string folder, std::string authority)
      : store_(store),
        migrations_(migrations),
        folder_(std::move(folder)),
        authority_(std::move(authority)) {}

  [[nodiscard]] bool handles(const HttpRequest& request) const override;
  control::Task<Result<HttpResponse>> handle(HttpRequest request) override;

 private:
  struct Made {
    backup::Contents contents;
    std::uint64_t bytes = 0;
  };
  control::Task<Result<Made>> make(std::string path);

  Store& store_;
  MigrationRunner& migrations_;
  const std::string folder_;
  const std::string authority_;
  bool busy_ = false;
  std::optional<control::asio::thread_pool> disk_;  // the thread for file work, which exists from the first
                                                    // backup on
};

}  // namespace ckpt::coordinator
