// SPDX-License-Identifier: Apache-2.0
// How bad an NVLink 5 error (Xid 144-150, Blackwell) is, according to NVIDIA's table. Fatal: the channels
// are gone; link fatal: what runs goes on until it is drained; non-fatal: nothing is to be done. Pure.
#pragma once

#include <optional>
#include <string>

#include "libckpt/health/kernel_log.h"
#include "libckpt/health/table.h"

namespace ckpt::health {

struct LinkVerdict {
  LinkSeverity severity = LinkSeverity::kNonFatal;
  bool from_table = false;  // false: only the line's own severity was understood
  std::string reason;
};

// nullopt: neither the table nor the text of the line has it.
[[nodiscard]] std::optional<LinkVerdict> decode_link(const XidTable& table, std::uint32_t xid,
                                                     const LinkEvent& event);

}  // namespace ckpt::health
