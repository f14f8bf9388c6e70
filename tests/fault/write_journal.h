// SPDX-License-Identifier: Apache-2.0
// The journal of a program's writes below one folder, in their order. record_writes.cc writes it, loaded into
// the program (LD_PRELOAD), so the program itself is unchanged. The journal is replayed onto a disk whose
// power is cut (tests/unit/libckpt/store/local/power_cut_files.h).
//
//   auto entries = read_journal("journal");
//   PowerCutFiles disk;
//   load(disk, "before");                                   // durable: the content before
//   replay(disk, std::span(entries).first(n), "/root");     // the power fails after n entries
//   disk.restart(seed);
//   store(disk, "after");
//
// A write or a name change is recorded before it is carried out, a sync once it has returned. Everything that
// the journal records as durable is durable.
// Threads: one. Errors: std::runtime_error, of a test.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "tests/fault/write_journal_format.h"
#include "tests/unit/libckpt/store/local/power_cut_files.h"

namespace ckpt::test {

struct JournalEntry {
  JournalKind kind = JournalKind::kWrite;
  std::string path;   // the absolute path
  std::string other;  // the new path of a rename
  std::uint64_t offset = 0;
  std::vector<std::byte> bytes;
  std::uint64_t end = 0;  // the offset of the entry's end in the journal
};

// Returns the complete entries; a journal's writer may have been killed.
std::vector<JournalEntry> read_journal(const std::string& path);
void replay(checkpoint_store::test::PowerCutFiles& disk, std::span<const JournalEntry> entries,
            const std::string& root);
void load(checkpoint_store::test::PowerCutFiles& disk, const std::string& folder);
// Replaces the content of the folder with the disk's content.
void store(checkpoint_store::test::PowerCutFiles& disk, const std::string& folder);

}  // namespace ckpt::test
