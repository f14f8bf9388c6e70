// SPDX-License-Identifier: Apache-2.0
#include "libckpt/inprocess/local/keeper_link.h"

#include <unistd.h>

#include <utility>

#include "libckpt/include/ckpt/ckpt.h"

namespace ckpt::local {

Result<std::unique_ptr<KeeperLink>> KeeperLink::connect(const std::string& path, MigrationMode mode,
                                                        bool restored) {
  CKPT_TRY(socket, Socket::connect(path));
  const Hello hello{static_cast<std::uint32_t>(::getpid()), CKPT_ABI_VERSION, mode, restored ? 1u : 0u};
  CKPT_TRYV(socket.send({0, 0, hello}));
  CKPT_TRY(answer, socket.receive());
  if (answer.transfer != Transfer::kDone) {
    return Error(ErrorCode::kUnavailable, "The keeper at " + path + " closed the connection");
  }
  if (const auto* failed = std::get_if<Failed>(&answer.message.body)) return to_error(*failed);
  const auto* welcome = std::get_if<Welcome>(&answer.message.body);
  if (welcome == nullptr)
    return Error(ErrorCode::kProtocol, "The keeper at " + path + " did not accept this process");
  CKPT_TRY(page, ControlPageMapping::open(std::move(answer.descriptors.front())));
  std::optional<BarrierCount> barriers;
  if (welcome->counts_barriers != 0) {
    CKPT_TRY(opened, BarrierCount::open(std::move(answer.descriptors[1])));
    barriers = std::move(opened);
  }
  return std::unique_ptr<KeeperLink>(
      new KeeperLink(std::move(socket), std::move(page), std::move(barriers), *welcome));
}

Result<void> KeeperLink::leave(std::uint64_t request, Body last) {
  const std::lock_guard lock(send_mutex_);
  page_.unmap();
  Result<Transfer> sent = socket_.send({0, request, std::move(last)});
  socket_.close();
  if (!sent.has_value()) return std::move(sent).error();
  return ok();
}

Result<void> KeeperLink::send(std::uint64_t request, Body body, std::span<const int> descriptors) {
  const std::lock_guard lock(send_mutex_);
  CKPT_TRYV(socket_.send({0, request, std::move(body)}, descriptors));
  return ok();
}

}  // namespace ckpt::local
