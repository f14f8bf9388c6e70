// SPDX-License-Identifier: Apache-2.0
#include "libckpt/base/preloaded.h"

#include <elf.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>

namespace ckpt {
namespace {

class PreloadedTest : public ::testing::Test {
 protected:
  PreloadedTest() {
    std::string path = (std::filesystem::temp_directory_path() / "ckpt-preloaded-XXXXXX").string();
    folder_ = ::mkdtemp(path.data());
  }
  ~PreloadedTest() override { std::filesystem::remove_all(folder_); }

  std::string put(const std::string& name, const std::string& content, mode_t mode = 0755) {
    std::ofstream(folder_ + "/" + name) << content;
    EXPECT_EQ(::chmod((folder_ + "/" + name).c_str(), mode), 0);
    return folder_ + "/" + name;
  }
  // Returns an ELF file with one program header of the given type.
  static std::string elf(std::uint32_t type, unsigned char bits = ELFCLASS64) {
    Elf64_Ehdr header{};
    std::memcpy(header.e_ident, ELFMAG, SELFMAG);
    header.e_ident[EI_CLASS] = bits;
    header.e_phoff = sizeof header;
    header.e_phentsize = sizeof(Elf64_Phdr);
    header.e_phnum = 1;
    Elf64_Phdr part{};
    part.p_type = type;
    return std::string(reinterpret_cast<const char*>(&header), sizeof header) +
           std::string(reinterpret_cast<const char*>(&part), sizeof part);
  }
  std::string why(const std::string& program, uid_t user = 1000) const {
    return why_not_preloaded(program, folder_ + ":/usr/bin:/bin", folder_, user);
  }

  std::string folder_;
};

TEST_F(PreloadedTest, StaticProgramsAreReported) {
  put("static", elf(PT_LOAD));
  EXPECT_NE(why("static").find("static is a static program"), std::string::npos) << why("static");
  EXPECT_NE(why("./static").find("a static program"), std::string::npos);
  put("old", elf(PT_INTERP, ELFCLASS32));
  EXPECT_NE(why("old").find("32-bit"), std::string::npos);
  put("script", "#! " + folder_ + "/static -x\necho\n");
  EXPECT_NE(why("script").find("a static program"), std::string::npos) << "its interpreter counts";
}

TEST_F(PreloadedTest, ProgramsWithOtherPrivilegesAreReported) {
  put("other", elf(PT_INTERP), 0755 | S_ISUID);
  EXPECT_NE(why("other", ::geteuid() + 1).find("set-user-ID"), std::string::npos);
  EXPECT_EQ(why("other", ::geteuid()), "") << "it has its user's rights";
}

TEST_F(PreloadedTest, OtherProgramsAreNotReported) {
  EXPECT_EQ(why("sh"), "");
  EXPECT_EQ(why("no-such-program"), "");
  EXPECT_EQ(why(put("text", "hello, no program")), "");
  EXPECT_EQ(why(put("cut", elf(PT_LOAD).substr(0, 70))), "") << "it cannot be started anyway";
  put("loop", "#!" + folder_ + "/loop\n");
  EXPECT_EQ(why("loop"), "");
}

}  // namespace
}  // namespace ckpt
