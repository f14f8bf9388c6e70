// SPDX-License-Identifier: Apache-2.0
#include "agent/coordinator_link/move_checks.h"

#include "agent/migration/source_check.h"
#include "libckpt/net/control/spawn.h"

namespace ckpt::agent {

MoveChecks::MoveChecks(CoordinatorLink& link, MigrationContext& context) : link_(link), context_(context) {
  link.take(wire::FrameType::kCheckMove, [this](std::span<const std::byte> body) -> Result<void> {
    CKPT_TRY(request, wire::decode<wire::CheckMove>(body));
    control::spawn(context_.executor, "check a move", answer(std::move(request)));
    return ok();
  });
}

Task<> MoveChecks::answer(wire::CheckMove request) {
  const std::uint64_t id = request.request_id;
  auto checked = co_await check_move(context_, std::move(request));
  link_.reply(id, checked);
}

}  // namespace ckpt::agent
