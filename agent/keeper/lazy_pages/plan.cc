// SPDX-License-Identifier: Apache-2.0
#include "agent/keeper/lazy_pages/plan.h"

#include <fcntl.h>

#include <cstring>
#include <span>

#include "libckpt/base/fd.h"

namespace ckpt::lazy_pages {
namespace {

constexpr std::uint64_t kPlanMagic = 0x314e'414c'504d'4c47;  // the bytes "GLMPLAN1"
constexpr std::uint32_t kPlanVersion = 1;
constexpr std::size_t kMaxPlanBytes = std::size_t{512} << 20;

struct PlanHead {
  std::uint64_t magic = kPlanMagic;
  std::uint32_t version = kPlanVersion;
  std::uint32_t count = 0;
};
static_assert(sizeof(PlanHead) == 16 && sizeof(MissingRange) == 32);

bool is_possible(const MissingRange& range) {
  return range.bytes > 0 && (range.address | range.bytes | range.offset) % kPageBytes == 0 &&
         range.address + range.bytes > range.address && range.offset + range.bytes > range.offset;
}

}  // namespace

Result<void> write_plan(const std::string& folder, const std::vector<MissingRange>& ranges) {
  const std::string path = folder + "/" + kPlanName;
  const UniqueFd file(::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!file) return Error::from_errno("Cannot create " + path);
  PlanHead head;
  head.count = static_cast<std::uint32_t>(ranges.size());
  CKPT_TRYV(write_all(file.get(), std::as_bytes(std::span(&head, 1))));
  return write_all(file.get(), std::as_bytes(std::span(ranges)));
}

Result<std::vector<MissingRange>> read_plan(const std::string& folder) {
  const std::string path = folder + "/" + kPlanName;
  CKPT_TRY(text, read_file(path, kMaxPlanBytes));
  PlanHead head;
  if (text.size() < sizeof head) return Error(ErrorCode::kCorrupt, path + " is too short");
  std::memcpy(&head, text.data(), sizeof head);
  if (head.magic != kPlanMagic || head.version != kPlanVersion ||
      text.size() - sizeof head != head.count * sizeof(MissingRange))
    return Error(ErrorCode::kCorrupt, path + " is not a plan of missing pages");
  std::vector<MissingRange> ranges(head.count);
  if (!ranges.empty())
    std::memcpy(ranges.data(), text.data() + sizeof head, head.count * sizeof(MissingRange));
  for (const MissingRange& range : ranges) {
    if (!is_possible(range)) return Error(ErrorCode::kCorrupt, path + " has an invalid range");
  }
  return ranges;
}

}  // namespace ckpt::lazy_pages
