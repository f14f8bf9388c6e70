// SPDX-License-Identifier: Apache-2.0
// The severity of an NVLink 5 error (Xid 144-150, Blackwell), according to NVIDIA's table. Fatal: the
// channels are lost. Link fatal: running work continues until it is drained. Non-fatal: no action is
// required. The functions are pure.
#pragma once

#include <optional>
#include <string>

#include "libckpt/health/kernel_log.h"
#include "libckpt/health/table.h"

namespace ckpt::health {

struct LinkVerdict {
  LinkSeverity severity = LinkSeverity::kNonFatal;
  bool from_table = false;  // whether the table has the error; if false, only the line's own severity was
                            // recognized
  std::string reason;
};

// Returns the verdict. Returns nullopt if neither the table nor the line has one.
[[nodiscard]] std::optional<LinkVerdict> decode_link(const XidTable& table, std::uint32_t xid,
                                                     const LinkEvent& event);

}  // namespace ckpt::health
