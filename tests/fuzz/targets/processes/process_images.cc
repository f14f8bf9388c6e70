// SPDX-License-Identifier: Apache-2.0
// The records in the image of a process: {which u8, text or bytes}. Accepted notes name a GPU and a log that
// has a name, and are the same when written again. Changed records of CRIU can be read again, are changed
// only once, and grow only as far as numbers grow. Places found in an index of a memory log are inside that
// log.
#include <algorithm>

#include "agent/gpus/gpu_identity.h"
#include "agent/host_process/criu_image/driver_listener.h"
#include "agent/host_process/criu_image/lazy_pages_choice.h"
#include "agent/host_process/criu_image/link_paths.h"
#include "agent/host_process/criu_image/memory_index.h"
#include "agent/host_process/criu_image/pid_namespace_image.h"
#include "agent/jobs/image_notes.h"
#include "tests/fuzz/fuzz.h"

namespace ckpt::fuzz {
namespace {

// A session and a group of one byte each are replaced by numbers of the greatest length.
constexpr std::size_t kMaxGrowth = 2 * 9;
// The length of the shortest record that has the fields: its size, three keys and three numbers.
constexpr std::size_t kMinRecord = 4 + 3 * 2;

void check_notes(const std::string& text) {
  const auto taken = agent::parse_image_notes(text);
  if (!taken) return;
  const agent::ImageNotes& notes = *taken;
  FUZZ_CHECK(agent::parse_gpu_uuid(notes.gpu).has_value());
  FUZZ_CHECK(notes.log.find('\0') == std::string::npos);
  FUZZ_CHECK(notes.log.empty() ||
             (notes.log.front() == '/' && notes.log.find_first_not_of('/') < notes.log.size()));
  const auto again = agent::parse_image_notes(agent::to_text(notes));
  FUZZ_CHECK(again.has_value() && *again == notes);
}

void check_tree(const std::string& bytes) {
  const auto once = agent::host::with_own_session(bytes);
  if (!once) return;
  FUZZ_CHECK(once->size() <= bytes.size() + bytes.size() / kMinRecord * kMaxGrowth);
  const auto twice = agent::host::with_own_session(*once);
  FUZZ_CHECK(twice.has_value() && *twice == *once);
}

void check_inventory(const std::string& bytes) {
  const auto changed = agent::host::with_other_namespace(bytes);
  if (!changed) return;
  FUZZ_CHECK(changed->pid_namespace_id != 0);
  FUZZ_CHECK(changed->bytes.size() <= bytes.size() + kMaxGrowth);
  FUZZ_CHECK(!agent::host::with_other_namespace(changed->bytes).has_value());
}

void check_links(const std::string& bytes) {
  const std::vector<agent::host::LinkPath> links = {{"link_remap.1", "/link"},
                                                    {"link_remap.2", "/dev/shm/x"}};
  const auto changed = agent::host::with_link_paths(bytes, links);
  if (!changed) return;
  const auto again = agent::host::with_link_paths(*changed, links);
  FUZZ_CHECK(again.has_value() && *again == *changed);
}

void check_files(const std::string& bytes) {
  check_links(bytes);
  const auto taken = [](const std::string&) { return true; };
  const auto changed = agent::host::with_free_driver_names(bytes, taken, [] { return std::string("x"); });
  if (!changed) return;
  const auto again = agent::host::with_free_driver_names(*changed, taken, [] { return std::string("x"); });
  FUZZ_CHECK(again.has_value() && *again == *changed);
}

// Checks both files; the length of the first file precedes it.
void check_pages(const std::string& bytes) {
  Input input(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
  const std::size_t length = std::min<std::size_t>(input.number<std::uint16_t>(), bytes.size());
  const std::string rest = input.text();
  const auto ranges = agent::host::lazy_ranges(rest.substr(0, length),
                                               length < rest.size() ? rest.substr(length) : std::string());
  if (!ranges) return;
  for (const lazy_pages::MissingRange& range : *ranges)
    FUZZ_CHECK(range.bytes > 0 && range.address + range.bytes > range.address);
}

// Checks that places found in an index are inside the log and cover exactly the requested range.
void check_index(const std::string& bytes) {
  Input input(reinterpret_cast<const std::uint8_t*>(bytes.data()), bytes.size());
  const auto log_bytes = input.number<std::uint32_t>();
  const auto address = std::uint64_t{input.number<std::uint16_t>()} * lazy_pages::kPageBytes;
  const auto wanted = std::uint64_t{input.number<std::uint16_t>()} * lazy_pages::kPageBytes;
  const auto index = agent::host::MemoryIndex::parse(input.text(), log_bytes);
  if (!index) return;
  const auto places = index->find(address, wanted);
  if (!places) return;
  std::uint64_t found = 0;
  for (const agent::host::IndexedRange& place : *places) {
    FUZZ_CHECK(place.address == address + found && place.bytes > 0);
    FUZZ_CHECK(place.offset <= log_bytes && place.bytes <= log_bytes - place.offset);
    found += place.bytes;
  }
  FUZZ_CHECK(found == wanted);
}

}  // namespace
}  // namespace ckpt::fuzz

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace ckpt::fuzz;
  Input input(data, size);
  const auto which = input.number<std::uint8_t>();
  constexpr void (*kChecks[])(const std::string&) = {check_notes, check_tree,  check_inventory,
                                                     check_files, check_pages, check_index};
  kChecks[which % std::size(kChecks)](input.text());
  return 0;
}
