// SPDX-License-Identifier: Apache-2.0
// One party's append-only journal of a handover (basic_journal.h). It has the newest record of each
// (migration, party).
#pragma once

#include <utility>

#include "libckpt/protocol/handover/basic_journal.h"
#include "libckpt/protocol/handover/records.h"

namespace ckpt::migration {

struct HandoverRecords {
  using Record = migration::Record;
  using Key = std::pair<MigrationId, Role>;
  static Key key_of(const Record& record) { return {record.info.migration, record.party}; }
  static Bytes& plan_of(Record& record) { return record.info.plan; }
  static const Bytes& plan_of(const Record& record) { return record.info.plan; }
  static std::vector<std::byte> encode(const Record& record) { return encode_record(record); }
  static Result<Record> decode(std::span<const std::byte> bytes) { return decode_record(bytes); }
};
using Journal = BasicJournal<HandoverRecords>;

}  // namespace ckpt::migration
