// SPDX-License-Identifier: Apache-2.0
// GET /v1/backup: one consistent copy of the coordinator's folder as a file (libckpt/store/backup). The file
// stays in the folder, under kFolder, and the answer names it. The command that asked is on this machine, as
// api.json and the token are, and a store may be larger than an answer. There is one such file at most; the
// next backup replaces it.
// All file work is on a thread of its own. The store is copied first, by a reader of its own that blocks
// no writer, and the journal then.
// Threads: one io_context on one thread. Ownership: borrows the tables, which outlive it. Errors: kRefused
// while another backup is made, or when the disk is full.
#pragma once

#include <optional>
#include <string>

#include "coordinator/migration/migration_runner.h"
#include "coordinator/requests/api_section.h"
#include "libckpt/store/backup/backup_file.h"

namespace ckpt::coordinator {

class Backups : public ApiSection {
 public:
  static constexpr std::string_view kFolder = "backups";  // in the coordinator's folder

  // `authority`: the folder of the certificate authority; empty: it is not here.
  Backups(Store& store, MigrationRunner& migrations, std::string folder, std::string authority)
      : store_(store),
        migrations_(migrations),
        folder_(std::move(folder)),
        authority_(std::move(authority)) {}

  [[nodiscard]] bool takes(const HttpRequest& request) const override;
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
  std::optional<control::asio::thread_pool> disk_;  // from the first backup on
};

}  // namespace ckpt::coordinator
