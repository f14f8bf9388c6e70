// SPDX-License-Identifier: Apache-2.0
#include "agent/coordinator_link/move_checks.h"

#include "agent/migration/source_check.h"
#include "agent/migration/target_check.h"
#include "libckpt/net/control/spawn.h"

namespace ckpt::agent {

MoveChecks::MoveChecks(CoordinatorLink& link, MigrationContext& context) : link_(link), context_(context) {
  link.subscribe(wire::FrameType::kCheckMove, [this](std::span<const std::byte> body) -> Result<void> {
    CKPT_TRY(request, wire::decode<wire::CheckMove>(body));
    control::spawn(context_.executor, "check a move", answer(std::move(request)));
    return ok();
  });
  link.subscribe(wire::FrameType::kCheckTarget, [this](std::span<const std::byte> body) -> Result<void> {
    CKPT_TRY(request, wire::decode<wire::CheckTarget>(body));
    control::spawn(context_.executor, "check a target", answer(std::move(request)));
    return ok();
  });
}

Task<> MoveChecks::answer(wire::CheckMove request) {
  const std::uint64_t id = request.request_id;
  const bool requests_needs = request.requests_needs;
  auto checked = co_await check_move(context_, std::move(request));
  if (!checked) co_return link_.reply(id, checked.error());
  if (!requests_needs) co_return link_.reply(id, ok());
  wire::MoveNeeds needs = *std::move(checked);
  needs.request_id = id;
  if (!link_.send(needs))
    link_.reply(
        id, Error(ErrorCode::kRefused, "The list of the files that the job has open is too long to be sent"));
}

Task<> MoveChecks::answer(wire::CheckTarget request) {
  const std::uint64_t id = request.request_id;
  auto checked = co_await check_target(context_, std::move(request));
  link_.reply(id, checked);
}

}  // namespace ckpt::agent
