// SPDX-License-Identifier: Apache-2.0
#include "agent/mover/migration/source_host_state.h"

namespace ckpt::mover {

Result<void> SourceHostState::open_file(const wire::mover::HostStateFile& request, UniqueFd file,
                                        Params params) {
  if (stream_) return Error(ErrorCode::kInvalidArgument, "The host state has a file already");
  CKPT_TRY(stream, HostStream::open(std::move(file), request.limit, request.expected, std::move(params)));
  stream_ = std::move(stream);
  return ok();
}

Result<void> SourceHostState::grew(const wire::mover::HostGrew& request, engine::Sender* sender) {
  if (!stream_) return Error(ErrorCode::kInvalidArgument, "The host state grows, but has no file");
  CKPT_TRYV(stream_->grew(request.filled, request.whole));
  if (sender != nullptr) sender->host_state_grew(request.filled, request.whole);
  return ok();
}

void SourceHostState::announce_to(engine::Sender& sender) const {
  if (!stream_) return;
  const HostStream::Extent extent = stream_->extent();
  sender.host_state_grew(extent.filled, extent.whole);
}

void SourceHostState::announce(engine::Sender& sender) {
  if (!stream_ || announced_) return;
  sender.announce_host_state(stream_->memory().size(), stream_->expected());
  sender.begin_host_state(stream_->memory());
  announced_ = true;
}

Result<engine::RoundReport> SourceHostState::run_final(const wire::mover::FinalRound& order, UniqueFd file,
                                                       Params params, engine::Sender& sender) {
  if (order.host_state_grows) {
    if (!stream_)
      return Error(ErrorCode::kInvalidArgument, "The final round waits for host state that has no file");
    ahead_bytes_ = sender.progress().host_state_bytes;
    CKPT_TRY(report, sender.run_final_while_it_grows(stream_->memory()));
    bytes_ = stream_->extent().filled;
    return report;
  }
  CKPT_TRY(view, HostStateView::open(std::move(file), order.host_state_bytes, std::move(params)));
  view_.emplace(std::move(view));
  bytes_ = order.host_state_bytes;
  return sender.run_final(view_->bytes());
}

track::Fingerprint SourceHostState::fingerprint() {
  return view_ ? view_->fingerprint() : stream_->fingerprint();
}

}  // namespace ckpt::mover
