// SPDX-License-Identifier: Apache-2.0
#include "libckpt/inprocess/api/host_states.h"

#include <gtest/gtest.h>

namespace ckpt::job {
namespace {

struct Blob {
  std::string text;
  ckpt_status answer = CKPT_OK;
  bool saw_callback = false;
};

ckpt_status save(void* user, ckpt_writer* writer) {
  auto* blob = static_cast<Blob*>(user);
  blob->saw_callback = in_callback();
  const auto* bytes = reinterpret_cast<const std::byte*>(blob->text.data());
  writer->bytes.insert(writer->bytes.end(), bytes, bytes + blob->text.size());
  return blob->answer;
}

ckpt_status load(void* user, const void* data, size_t bytes) {
  auto* blob = static_cast<Blob*>(user);
  blob->text.assign(static_cast<const char*>(data), bytes);
  return blob->answer;
}

StateImage image_of(const HostStates& states) {
  std::vector<PlannedEntry> entries;
  EXPECT_TRUE(states.plan(entries).has_value());
  const StateFile file = std::move(*write_state(entries));
  return std::move(*StateImage::read(file.fd.get(), file.bytes));
}

TEST(HostStates, NamedMemoryAndCallbackStateAreTransferred) {
  std::uint64_t step = 41;
  Blob blob{"a state of any size"};
  HostStates source;
  ASSERT_TRUE(source.add_memory("step", &step, sizeof step).has_value());
  ASSERT_TRUE(source.add_callbacks("blob", save, load, &blob).has_value());
  EXPECT_EQ(source.fixed_bytes(), 8u);
  const StateImage image = image_of(source);
  EXPECT_TRUE(blob.saw_callback);
  EXPECT_FALSE(in_callback());

  std::uint64_t other_step = 0;
  Blob other_blob;
  HostStates target;
  ASSERT_TRUE(target.add_callbacks("blob", save, load, &other_blob).has_value());
  ASSERT_TRUE(target.add_memory("step", &other_step, sizeof other_step).has_value());
  ASSERT_TRUE(target.check(image).has_value());
  ASSERT_TRUE(target.apply(image).has_value());
  EXPECT_EQ(other_step, 41u);
  EXPECT_EQ(other_blob.text, "a state of any size");
}

void expect_mismatch(const HostStates& target, const StateImage& image, const std::string& name) {
  const Result<void> checked = target.check(image);
  ASSERT_FALSE(checked.has_value());
  EXPECT_NE(checked.error().message().find("'" + name + "'"), std::string::npos) << checked.error().message();
}

TEST(HostStates, DifferencesAreReportedByName) {
  std::uint64_t step = 1;
  char more = 0;
  HostStates source;
  ASSERT_TRUE(source.add_memory("step", &step, sizeof step).has_value());
  const StateImage image = image_of(source);

  HostStates smaller;
  ASSERT_TRUE(smaller.add_memory("step", &step, 4).has_value());
  expect_mismatch(smaller, image, "step");
  HostStates none;
  expect_mismatch(none, image, "step");
  HostStates additional;
  ASSERT_TRUE(additional.add_memory("step", &step, sizeof step).has_value());
  ASSERT_TRUE(additional.add_memory("more", &more, 1).has_value());
  expect_mismatch(additional, image, "more");
  Blob blob;
  HostStates other_kind;
  ASSERT_TRUE(other_kind.add_callbacks("step", save, load, &blob).has_value());
  expect_mismatch(other_kind, image, "step");
}

TEST(HostStates, FailingCallbacksAreReportedByName) {
  Blob blob{"x", CKPT_ERROR_INVALID};
  HostStates states;
  ASSERT_TRUE(states.add_callbacks("blob", save, load, &blob).has_value());
  std::vector<PlannedEntry> entries;
  const Result<void> planned = states.plan(entries);
  ASSERT_FALSE(planned.has_value());
  EXPECT_NE(planned.error().message().find("'blob'"), std::string::npos);
  blob.answer = CKPT_OK;
  const StateImage image = image_of(states);
  blob.answer = CKPT_ERROR_INVALID;
  const Result<void> applied = states.apply(image);
  ASSERT_FALSE(applied.has_value());
  EXPECT_NE(applied.error().message().find("'blob'"), std::string::npos);
}

}  // namespace
}  // namespace ckpt::job
