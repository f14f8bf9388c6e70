// SPDX-License-Identifier: Apache-2.0
#include "agent/host_process/criu_image/pid_namespace_image.h"

#include <gtest/gtest.h>

namespace ckpt::agent::host {
namespace {

std::string from_hex(const std::string& text) {
  std::string bytes;
  for (std::size_t at = 0; at + 1 < text.size(); at += 2)
    bytes.push_back(static_cast<char>(std::stoi(text.substr(at, 2), nullptr, 16)));
  return bytes;
}

std::string to_hex(const std::string& bytes) {
  std::string text;
  for (const char byte : bytes) {
    constexpr const char* kDigits = "0123456789abcdef";
    text.push_back(kDigits[static_cast<unsigned char>(byte) >> 4]);
    text.push_back(kDigits[static_cast<unsigned char>(byte) & 15]);
  }
  return text;
}

// The images as CRIU 4.1.1 wrote them, of process 22219 with thread 22224, of session 31010 and group 21972.
const std::string kTree =
    "1943565430302750"
    "16000000"
    "08cbad01100018d4ab0120a2f20128cbad0128d0ad01";
const std::string kInventory =
    "16313158"
    "50000000"
    "080210011a180801100118012001280130023803400448065007580860052001280130005001580062006a246163633434643235"
    "2d373066302d343239662d383034332d303838393864626664373133";

TEST(PidNamespaceImage, RootProcessLeadsASessionAndAGroup) {
  auto changed = with_own_session(from_hex(kTree));
  ASSERT_TRUE(changed.has_value()) << changed.error().to_string();
  EXPECT_EQ(to_hex(*changed),
            "1943565430302750"
            "16000000"
            "08cbad0118cbad0120cbad01100028cbad0128d0ad01");
}

TEST(PidNamespaceImage, SessionLeaderIsUnchanged) {
  const auto once = with_own_session(from_hex(kTree));
  ASSERT_TRUE(once.has_value());
  const auto twice = with_own_session(*once);
  ASSERT_TRUE(twice.has_value());
  EXPECT_EQ(to_hex(*once), to_hex(*twice));
}

TEST(PidNamespaceImage, InventoryAndProcessHaveDifferentNamespaces) {
  auto changed = with_other_namespace(from_hex(kInventory));
  ASSERT_TRUE(changed.has_value()) << changed.error().to_string();
  EXPECT_EQ(changed->pid_namespace_id, 1u);
  // The image grows by four bytes. Fields that only CRIU knows follow the known fields, unchanged.
  EXPECT_EQ(to_hex(changed->bytes),
            "16313158"
            "54000000"
            "1a1c28ffffffff0708011001180120013002380340044806500758086005"
            "08021001200128013000500158006200"
            "6a2461636334346432352d373066302d343239662d383034332d303838393864626664373133");
  EXPECT_FALSE(with_other_namespace(changed->bytes).has_value()) << "it is done once";
}

TEST(PidNamespaceImage, UnknownFieldsOfEveryKindAreKept) {
  // Fields 7, 8, 9, 10 and 16: a number, eight bytes, a string, a group, four bytes; field 7 occurs twice.
  const std::string unknown =
      "3801"
      "410102030405060708"
      "4a0161"
      "530801"
      "54"
      "850101020304"
      "3802";
  const auto changed =
      with_own_session(from_hex("1943565430302750"
                                "20000000"
                                "08051803"
                                "2004" +
                                unknown));
  ASSERT_TRUE(changed.has_value()) << changed.error().to_string();
  EXPECT_EQ(to_hex(*changed),
            "1943565430302750"
            "20000000"
            "08051805"
            "2005" +
                unknown);
}

TEST(PidNamespaceImage, RecordsWithAMissingFieldAreRefused) {
  for (const char* record : {"04000000"
                             "08051803",
                             "04000000"
                             "08052004",
                             "04000000"
                             "18032004",
                             "07000000"
                             "0a0135"
                             "18032004"})
    EXPECT_FALSE(with_own_session(from_hex(std::string("1943565430302750") + record)).has_value()) << record;
}

TEST(PidNamespaceImage, TruncatedOrUnknownImagesAreRefused) {
  const std::string tree = from_hex(kTree);
  const std::string inventory = from_hex(kInventory);
  for (std::size_t bytes = 0; bytes < tree.size(); ++bytes)
    EXPECT_FALSE(with_own_session(tree.substr(0, bytes)).has_value()) << bytes;
  for (std::size_t bytes = 0; bytes < inventory.size(); ++bytes)
    EXPECT_FALSE(with_other_namespace(inventory.substr(0, bytes)).has_value()) << bytes;
  EXPECT_FALSE(with_own_session(inventory).has_value());
  EXPECT_FALSE(with_other_namespace(tree).has_value());
}

}  // namespace
}  // namespace ckpt::agent::host
