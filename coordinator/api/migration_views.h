// SPDX-License-Identifier: Apache-2.0
// Migrations and events as the API shows them (libckpt/api). Pure except for reading the tables.
#pragma once

#include <optional>
#include <string>

#include "coordinator/requests/json.h"
#include "coordinator/state/model.h"
#include "libckpt/api/event.h"
#include "libckpt/api/migration.h"

namespace ckpt::coordinator {

[[nodiscard]] api::Event event_view(const Event& event);
[[nodiscard]] api::MigrateOptions options_view(const wire::MigrateOptions& options);
[[nodiscard]] api::MigrationReport report_view(const Migration& migration);
[[nodiscard]] api::Migration migration_view(const Migration& migration);

// Returns the API view of the migration as JSON.
[[nodiscard]] json migration_json(const Migration& migration);

}  // namespace ckpt::coordinator
