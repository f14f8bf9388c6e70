// SPDX-License-Identifier: Apache-2.0
#include "agent/way.h"

#include "agent/adopted_way.h"
#include "agent/cooperative_way.h"
#include "agent/process_way.h"
#include "agent/swap_way.h"

namespace ckpt::agent {
namespace {

enum class Kind { kCooperative, kSwap, kProcess, kAdoptedSwap, kAdoptedProcess };

Kind kind_of(const migration::SwitchInfo& info) {
  const auto plan = wire::decode_plan(info.plan);
  if (!plan || plan.assume_value().spec.way == wire::Way::kCooperative) return Kind::kCooperative;
  const bool swap = wire::is_swap(plan.assume_value());
  if (plan.assume_value().spec.way == wire::Way::kAdopted)
    return swap ? Kind::kAdoptedSwap : Kind::kAdoptedProcess;
  return swap ? Kind::kSwap : Kind::kProcess;
}

}  // namespace

Task<Result<void>> TargetWay::compare(wire::Bytes) {
  co_return ok();
}

Task<Result<void>> TargetWay::drop_memory(std::shared_ptr<Job>, std::vector<std::uint64_t>) {
  co_return ok();
}

Task<Result<std::shared_ptr<Job>>> TargetWay::bring() {
  co_return Error(ErrorCode::kAborted, "The instance at the target has ended");
}

std::unique_ptr<SourceWay> make_source_way(MigrationContext& context, const migration::SwitchInfo& info) {
  switch (kind_of(info)) {
    case Kind::kSwap:
      return std::make_unique<SwapSource>(context, info);
    case Kind::kProcess:
      return std::make_unique<ProcessSource>(context, info);
    case Kind::kAdoptedSwap:
      return std::make_unique<AdoptedSource>(context, info, true);
    case Kind::kAdoptedProcess:
      return std::make_unique<AdoptedSource>(context, info, false);
    case Kind::kCooperative:
      break;
  }
  return std::make_unique<CooperativeSource>();
}

std::unique_ptr<TargetWay> make_target_way(MigrationContext& context, const migration::SwitchInfo& info) {
  switch (kind_of(info)) {
    case Kind::kSwap:
      return std::make_unique<SwapTarget>(context, info);
    case Kind::kProcess:
      return std::make_unique<ProcessTarget>(context, info);
    case Kind::kAdoptedSwap:
      return std::make_unique<AdoptedTarget>(context, info, true);
    case Kind::kAdoptedProcess:
      return std::make_unique<AdoptedTarget>(context, info, false);
    case Kind::kCooperative:
      break;
  }
  return std::make_unique<CooperativeTarget>(context, info);
}

}  // namespace ckpt::agent
