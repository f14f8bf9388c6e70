// SPDX-License-Identifier: Apache-2.0
// The records of the gang commit in their stored form, and their journal.
// Threads: values. Errors: kCorrupt for records that contradict themselves.
#pragma once

#include <span>
#include <vector>

#include "libckpt/protocol/gang/gang_types.h"
#include "libckpt/protocol/handover/basic_journal.h"
#include "libckpt/protocol/wire/codec.h"

namespace ckpt::gang {

struct GangRecords {
  using Record = gang::Record;
  using Key = std::pair<MigrationId, Party>;
  static Key key_of(const Record& record) { return {record.info.migration, record.party}; }
  static Bytes& plan_of(Record& record) { return record.info.plan; }
  static const Bytes& plan_of(const Record& record) { return record.info.plan; }
  static std::vector<std::byte> encode(const Record& record) { return wire::encode(record); }
  static Result<Record> decode(std::span<const std::byte> bytes);
};
using GangJournal = migration::BasicJournal<GangRecords>;

}  // namespace ckpt::gang
