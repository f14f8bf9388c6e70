// SPDX-License-Identifier: Apache-2.0
#include "agent/migration/modes/tree_work.h"

namespace ckpt::agent {

Task<Milliseconds> time_limit_of(MigrationContext& context, pid_t root) {
  const auto walk = [root] { return Milliseconds(host::time_limit_of(root)); };
  co_return co_await offload(context.images, walk);
}

Task<Result<host::DumpEstimate>> estimate_dump(MigrationContext& context, pid_t root) {
  const auto walk = [root] { return host::estimate_dump(root); };
  co_return co_await offload(context.images, walk);
}

Task<host::TreeSize> size_of_tree(MigrationContext& context, pid_t root) {
  const auto walk = [root] { return host::size_of_tree(root); };
  co_return co_await offload(context.images, walk);
}

Task<Result<std::vector<pid_t>>> processes_of(MigrationContext& context, pid_t root) {
  const auto walk = [root] { return host::processes_of(root); };
  co_return co_await offload(context.images, walk);
}

Task<Result<void>> resume_source(MigrationContext& context, pid_t root, std::set<pid_t> stopped) {
  const auto walk = [root, &stopped] { return host::resume_source(root, stopped); };
  co_return co_await offload(context.images, walk);
}

Task<Result<void>> check_credentials(MigrationContext& context, pid_t root, uid_t uid, gid_t gid) {
  const auto walk = [root, uid, gid] { return host::check_credentials(root, uid, gid); };
  co_return co_await offload(context.images, walk);
}

}  // namespace ckpt::agent
